package fusefs

import (
	"bytes"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// What /proc tells of a thread is read on the way of its first request. os.ReadFile
// would offer each file to the runtime's poller, which cannot use it, and read it in
// pieces, since it has no size: thirteen system calls in place of four.

// openAbout opens a file in /proc about a thread.
func (ps *processes) openAbout(tid uint32, name string) (fd int, err error) {
	name = strconv.FormatUint(uint64(tid), 10) + "/" + name
	err = retryEINTR(func() error {
		fd, err = unix.Openat(ps.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// readAbout reads such a file.
func (ps *processes) readAbout(tid uint32, name string) ([]byte, error) {
	fd, err := ps.openAbout(tid, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 4096)
	for {
		text = slices.Grow(text, 512)
		n, err := readOnce(fd, text[len(text):cap(text)])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
	}
}

// readOnce is read(2).
func readOnce(fd int, p []byte) (n int, err error) {
	err = retryEINTR(func() error {
		n, err = unix.Read(fd, p)
		return err
	})
	return n, err
}

// status is /proc/TID/status (proc_pid_status(5)).
func (ps *processes) status(tid uint32) ([]byte, error) { return ps.readAbout(tid, "status") }

// statusField is a number in one of its first lines, which one read has.
func (ps *processes) statusField(tid uint32, field string) (uint32, error) {
	fd, err := ps.openAbout(tid, "status")
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var first [512]byte
	n, err := readOnce(fd, first[:])
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(statusWord(first[:n], field), 10, 32)
	return uint32(id), err
}

// statusWords are the words of a line of /proc/TID/status.
func statusWords(status []byte, name string) [][]byte {
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return bytes.Fields(v)
		}
	}
	return nil
}

// statusWord is the first of them, or empty.
func statusWord(status []byte, name string) string {
	if w := statusWords(status, name); len(w) > 0 {
		return string(w[0])
	}
	return ""
}

// isInFault reports whether a thread waits for a page of a mapping, and not in a call.
func (ps *processes) isInFault(tid uint32) bool {
	call, err := ps.readAbout(tid, "syscall")
	return err == nil && bytes.HasPrefix(call, []byte("-1"))
}

// awaitsPage reports whether a thread is seen to wait for a page that others read for it.
func (ps *processes) awaitsPage(tid uint32) bool {
	where, err := ps.readAbout(tid, "wchan")
	return err == nil && (bytes.HasPrefix(where, []byte("folio_wait")) || bytes.HasPrefix(where, []byte("wait_on_page")))
}
