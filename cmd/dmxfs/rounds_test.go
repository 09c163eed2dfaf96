package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// lockedFile is a program's view of a data file on one host: how it locks, and
// whether it keeps the file open.
type lockedFile struct {
	kind     string // flock, fcntl, ofd; or open: the open lock alone
	own      bool   // the data file is locked, not a lock file beside it
	kept     bool
	dir      string
	file     string // the data file, if it is not called data
	lock, fd int
	mapped   []byte
}

const mapSize = 4096

// with calls f under the lock, with the data file open.
func (l *lockedFile) with(f func() error) error {
	if err := l.enter(); err != nil {
		return fmt.Errorf("%s: lock: %w", l.dir, err)
	}
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", l.dir, err)
	}
	return l.leave()
}

func (l *lockedFile) open(name string) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Open(filepath.Join(l.dir, name), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		return err
	})
	return fd, err
}

func (l *lockedFile) enter() (err error) {
	if l.fd < 0 && (l.own || l.kind == "open") {
		if l.fd, err = l.open(cmp.Or(l.file, "data")); err != nil {
			return err
		}
	}
	if l.kind == "open" {
		return nil
	}
	on := l.fd
	if !l.own {
		if l.lock < 0 {
			if l.lock, err = l.open("lock"); err != nil {
				return err
			}
		}
		on = l.lock
	}
	if err := lockCall(l.kind, on, true); err != nil {
		return err
	}
	if l.fd < 0 {
		l.fd, err = l.open(cmp.Or(l.file, "data"))
	}
	return err
}

func (l *lockedFile) leave() error {
	if !l.kept {
		if l.mapped != nil {
			_ = unix.Munmap(l.mapped)
			l.mapped = nil
		}
		if !l.own || l.kind == "open" {
			unix.Close(l.fd)
			l.fd = -1
		}
	}
	if l.kind == "open" {
		return nil
	}
	on := l.fd
	if !l.own {
		on = l.lock
	}
	err := lockCall(l.kind, on, false)
	if !l.kept && l.own {
		unix.Close(l.fd)
		l.fd = -1
	}
	return err
}

// mapping is the first page of the data file.
func (l *lockedFile) mapping() (_ []byte, err error) {
	if l.mapped == nil {
		l.mapped, err = unix.Mmap(l.fd, 0, mapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	return l.mapped, err
}

// content is the file as read(2) and stat(2) have it, which must agree.
func (l *lockedFile) content() ([]byte, unix.Stat_t, error) {
	var st, byName unix.Stat_t
	if err := unix.Fstat(l.fd, &st); err != nil {
		return nil, st, fmt.Errorf("fstat: %w", err)
	}
	if err := unix.Stat(filepath.Join(l.dir, "data"), &byName); err != nil {
		return nil, st, fmt.Errorf("stat: %w", err)
	}
	if st.Mtim != byName.Mtim {
		// MooseFS sets the time of a write some while after it.
		if err := unix.Fstat(l.fd, &st); err != nil {
			return nil, st, fmt.Errorf("fstat: %w", err)
		}
	}
	if st.Size != byName.Size || st.Mode != byName.Mode || st.Mtim != byName.Mtim {
		return nil, st, fmt.Errorf("fstat and stat differ: %d bytes, mode %o, at %v; %d, %o, %v",
			st.Size, st.Mode, st.Mtim, byName.Size, byName.Mode, byName.Mtim)
	}
	b := make([]byte, st.Size+100)
	var n int
	err := retry(func() (err error) {
		n, err = unix.Pread(l.fd, b, 0)
		return err
	})
	if err != nil {
		return nil, st, fmt.Errorf("read: %w", err)
	}
	if int64(n) != st.Size {
		return nil, st, fmt.Errorf("read %d bytes of a file of %d", n, st.Size)
	}
	return b[:n], st, nil
}

// rounds lets two hosts change a file in turns, and after each change the other
// one must see it: rounds KIND self|lockfile kept|anew N DIR1 DIR2 [IDLE], with
// so many milliseconds before each change.
func rounds(args []string) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	var hosts [2]*lockedFile
	for i := range hosts {
		hosts[i] = &lockedFile{kind: args[0], own: args[1] == "self", kept: args[2] == "kept", dir: args[4+i], lock: -1, fd: -1}
	}
	var want []byte
	for i := range n {
		for _, s := range roundSteps {
			idle(args[6:])
			mode := uint32(0o600 + i%8)
			writer, reader := hosts[i%2], hosts[1-i%2]
			if err := writer.with(func() (err error) {
				want, err = s.change(writer, want, i)
				if err == nil {
					err = unix.Fchmod(writer.fd, mode)
				}
				return err
			}); err != nil {
				return fmt.Errorf("round %d: %s: change: %w", i, s.name, err)
			}
			if err := reader.with(func() error { return reader.check(want, mode) }); err != nil {
				return fmt.Errorf("round %d: %s: %w", i, s.name, err)
			}
		}
	}
	return nil
}

// idle waits for as many milliseconds as are given: not for anything to happen,
// but for what the clients of the storage have cached to grow old.
func idle(ms []string) {
	for _, s := range ms {
		if d, err := time.ParseDuration(s + "ms"); err == nil {
			<-time.After(d)
		}
	}
}

// check compares what this host sees with what there should be.
func (l *lockedFile) check(want []byte, mode uint32) error {
	got, st, err := l.content()
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("read %d bytes ending in %q, want %d ending in %q", len(got), tail(got), len(want), tail(want))
	}
	if st.Mode&0o777 != mode {
		return fmt.Errorf("mode %o, want %o", st.Mode&0o777, mode)
	}
	m, err := l.mapping()
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if k := min(len(want), mapSize); !bytes.Equal(m[:k], want[:k]) {
		return fmt.Errorf("the mapping has %q, want %q", tail(m[:k]), tail(want[:k]))
	}
	return nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-40):] }

// roundSteps are changes of the data file, which has the content old before
// and what they return after.
var roundSteps = []struct {
	name   string
	change func(l *lockedFile, old []byte, i int) ([]byte, error)
}{
	{"append", func(l *lockedFile, old []byte, i int) ([]byte, error) {
		line := fmt.Appendf(nil, "line %d of %s\n", i, l.kind)
		end, err := unix.Seek(l.fd, 0, unix.SEEK_END)
		if err != nil {
			return nil, err
		}
		if end != int64(len(old)) {
			return nil, fmt.Errorf("the end is at %d, want %d", end, len(old))
		}
		_, err = unix.Pwrite(l.fd, line, end)
		return append(bytes.Clone(old), line...), err
	}},
	{"append with O_APPEND", func(l *lockedFile, old []byte, i int) ([]byte, error) {
		line := fmt.Appendf(nil, "appended %d\n", i)
		if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_SETFL, unix.O_APPEND); err != nil {
			return nil, err
		}
		_, err := unix.Write(l.fd, line)
		if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_SETFL, 0); err != nil {
			return nil, err
		}
		return append(bytes.Clone(old), line...), err
	}},
	{"same size", func(l *lockedFile, old []byte, i int) ([]byte, error) {
		now := bytes.Clone(old)
		copy(now, fmt.Sprintf("%06d", i))
		_, err := unix.Pwrite(l.fd, now[:6], 0)
		return now, err
	}},
	{"mmap and msync", func(l *lockedFile, old []byte, i int) ([]byte, error) {
		m, err := l.mapping()
		if err != nil {
			return nil, err
		}
		now := bytes.Clone(old)
		copy(now, fmt.Sprintf("M%06d", i))
		copy(m, now[:7])
		return now, unix.Msync(m, unix.MS_SYNC)
	}},
	{"mmap", func(l *lockedFile, old []byte, i int) ([]byte, error) {
		if !l.kept && l.kind != "open" {
			// Its pages are written out at munmap and close, by the kernel,
			// and nothing tells when: POSIX wants msync before the unlock.
			return old, nil
		}
		m, err := l.mapping()
		if err != nil {
			return nil, err
		}
		now := bytes.Clone(old)
		copy(now, fmt.Sprintf("m%06d", i))
		copy(m, now[:7])
		return now, nil
	}},
	{"truncate", func(l *lockedFile, old []byte, i int) ([]byte, error) {
		now := old[:max(len(old)-9, min(len(old), 10))]
		if len(old) > 8000 {
			now = old[:10]
		}
		return now, unix.Ftruncate(l.fd, int64(len(now)))
	}},
}

// replaceRounds lets two hosts replace a file in turns by another one, by
// rename(2), under a lock file: replace KIND N DIR1 DIR2 [IDLE].
func replaceRounds(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var hosts [2]*lockedFile
	for i := range hosts {
		hosts[i] = &lockedFile{kind: args[0], kept: true, dir: args[2+i], lock: -1, fd: -1}
	}
	for i := range n {
		writer, reader := hosts[i%2], hosts[1-i%2]
		idle(args[4:])
		text := fmt.Sprintf("version %06d", i)
		err := writer.with(func() error {
			temp := filepath.Join(writer.dir, "temp")
			if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
				return err
			}
			return os.Rename(temp, filepath.Join(writer.dir, "replaced"))
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		err = reader.with(func() error {
			b, err := os.ReadFile(filepath.Join(reader.dir, "replaced"))
			if err == nil && string(b) != text {
				err = fmt.Errorf("read %q, want %q", b, text)
			}
			if _, e := os.Stat(filepath.Join(reader.dir, "temp")); err == nil && !os.IsNotExist(e) {
				err = fmt.Errorf("the temporary file is still there: %v", e)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

// readers reads a file again and again under a lock for writing, or for
// "open" opens it to read: readers KIND self|lockfile kept|anew N DIR.
func readers(args []string) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	if args[0] == "open" {
		for range n {
			if _, err := os.ReadFile(filepath.Join(args[4], "data")); err != nil {
				return err
			}
		}
		return nil
	}
	l := &lockedFile{kind: args[0], own: args[1] == "self", kept: args[2] == "kept", dir: args[4], lock: -1, fd: -1}
	for range n {
		err := l.with(func() error {
			_, _, err := l.content()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
