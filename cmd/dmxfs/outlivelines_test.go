package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// appendsInTurn appends lines to a file to which all hosts append, under a lock.
func (w *outliver) appendsInTurn() func() error {
	g, err := w.guard(w.kind)
	fd := -1
	return func() error {
		if err != nil {
			return err
		}
		if fd < 0 {
			err := retry(func() (err error) {
				fd, err = unix.Open(filepath.Join(w.dir, "data"), unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0)
				return err
			})
			if err != nil {
				return err
			}
		}
		if err := lockCall("flock", fd, true); err != nil {
			return err
		}
		err := g.with(func() error {
			return g.update(func(truth []byte) ([]byte, error) {
				for i := range 1 + w.r.IntN(3) {
					line := fmt.Appendf(nil, "%s %d %d\n", w.who, w.state.steps.Load(), i)
					if err := retry(func() error { _, err := unix.Write(fd, line); return err }); err != nil {
						return nil, fmt.Errorf("append: %w", err)
					}
					truth = append(truth, line...)
				}
				return truth, endsAs(fd, truth)
			})
		})
		if err != nil {
			return err
		}
		if err := lockCall("flock", fd, false); err != nil {
			return err
		}
		if w.r.IntN(20) == 0 {
			err := unix.Close(fd)
			fd = -1
			return err
		}
		return nil
	}
}

// endsAs checks the size of a file, and its end.
func endsAs(fd int, want []byte) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size != int64(len(want)) {
		return fmt.Errorf("WRONG SIZE: %d, want %d", st.Size, len(want))
	}
	from := max(0, len(want)-3000)
	b := make([]byte, 4000)
	var n int
	if err := retry(func() (err error) { n, err = unix.Pread(fd, b, int64(from)); return err }); err != nil {
		return err
	}
	return differ(b[:n], want[from:], from)
}

// writesLog appends to a file to which nobody else appends, without a lock, and which
// others follow. What is to be there is written beside the mount before.
func (w *outliver) writesLog() func() error {
	fd := -1
	var size int64
	truth, err := os.OpenFile(filepath.Join(w.local, "truth-"+w.who), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return func() error {
		if err != nil {
			return err
		}
		if fd < 0 {
			err := retry(func() (err error) {
				fd, err = unix.Open(filepath.Join(w.dir, w.who), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
				return err
			})
			if err != nil {
				return err
			}
		}
		if n := w.state.steps.Load(); n%30 == 29 { // hosts that follow it are let in
			<-time.After(time.Duration(1100+w.r.IntN(400)) * time.Millisecond)
		}
		line := fmt.Appendf(nil, "%s %d %x\n", w.who, w.state.steps.Load(), w.r.Uint64())
		if _, err := truth.Write(line); err != nil {
			return err
		}
		for {
			n := 0
			err := retry(func() (err error) { n, err = unix.Write(fd, line); return err })
			if err == nil && n < len(line) {
				err = fmt.Errorf("%d of %d bytes", n, len(line))
			}
			if err == nil {
				break
			}
			if !w.doubts(err, "append", w.who) {
				return fmt.Errorf("append: %w", err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				return err
			}
			if st.Size == size+int64(len(line)) {
				break
			}
			if st.Size != size {
				return fmt.Errorf("WRONG SIZE after an append in doubt: %d, it was %d", st.Size, size)
			}
		}
		size += int64(len(line))
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Size != size {
			return fmt.Errorf("WRONG SIZE: %d, want %d", st.Size, size)
		}
		return nil
	}
}

// tails follows the log of its own host, and one of another host.
func (w *outliver) tails() func() error {
	type followed struct {
		name string
		f    *os.File
		at   int
	}
	var all []*followed
	hosts, err := filepath.Glob(filepath.Join(w.mount, "log", "*-log"))
	for _, name := range hosts {
		if err == nil {
			x := &followed{name: filepath.Base(name)}
			x.f, err = os.Open(name)
			all = append(all, x)
		}
	}
	b := make([]byte, 1<<16)
	return func() error {
		if err != nil {
			return err
		}
		for _, x := range all {
			n, err := unix.Pread(int(x.f.Fd()), b, int64(x.at))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", x.name, err)
			}
			want, err := os.ReadFile(filepath.Join(w.local, "truth-"+x.name))
			if err != nil {
				return err
			}
			if x.at+n > len(want) || !bytes.Equal(b[:n], want[x.at:x.at+n]) {
				return fmt.Errorf("%s: %w", x.name, differ(b[:n], want[x.at:min(x.at+n, len(want))], x.at))
			}
			x.at += n
		}
		return nil
	}
}
