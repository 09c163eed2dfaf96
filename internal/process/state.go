package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dying reports whether a process has ended but for threads that cannot: its first thread
// is gone, and there are others, or it was killed, and that one is in a system call that
// nothing interrupts. Where the call is only slow it is so for a moment.
func Dying(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	switch state(b) {
	case 'Z':
		threads, err := os.ReadDir(filepath.Join(dir, "task"))
		return err == nil && len(threads) > 1
	case 'D':
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		return err == nil && killed(status)
	}
	return false
}

// killed reports whether SIGKILL waits for a thread, as its /proc/PID/status has it
// (proc_pid_status(5)).
func killed(status []byte) bool {
	for line := range bytes.Lines(status) {
		if mask, ok := bytes.CutPrefix(line, []byte("SigPnd:")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
			return err == nil && n&(1<<(unix.SIGKILL-1)) != 0
		}
	}
	return false
}

// state is the state of a process or thread in its /proc/PID/stat (proc_pid_stat(5)),
// such as 'Z'; 0: it cannot be read.
func state(stat []byte) byte {
	// The name before it may have anything in it, but nothing behind it has brackets.
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	if len(rest) < 2 {
		return 0
	}
	return rest[1]
}

// Stopped reports whether a process was sent a SIGSTOP, or is traced and stands still.
func Stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && (state(b) == 'T' || state(b) == 't')
}

// End has a process end, also if it is stopped.
func End(pid int) error {
	if err := unix.Kill(pid, unix.SIGTERM); err != nil || !Stopped(pid) {
		return err
	}
	return unix.Kill(pid, unix.SIGCONT)
}
