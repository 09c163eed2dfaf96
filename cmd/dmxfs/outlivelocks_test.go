package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// counts adds one to a number under a lock of the file, or of one beside it.
func (w *outliver) counts(kind string, own bool) func() error {
	l := &lockedFile{kind: kind, own: own, dir: w.dir, lock: -1, fd: -1}
	g, err := w.guard(w.kind)
	return func() error {
		if err != nil {
			return err
		}
		if l.fd < 0 && l.lock < 0 { // how it goes on is up to chance
			l.kept = w.r.IntN(4) > 0
		} else if w.r.IntN(50) == 0 {
			l.kept = false
		}
		return l.with(func() error {
			return g.with(func() error { return g.adds(l.fd) })
		})
	}
}

// countsOpen adds one to a number under the open lock, which is taken by the first read.
func (w *outliver) countsOpen() func() error {
	l := &lockedFile{kind: "open", dir: w.dir, lock: -1, fd: -1}
	g, err := w.guard(w.kind)
	return func() error {
		if err != nil {
			return err
		}
		return l.with(func() error {
			if _, err := numberIn(l.fd); err != nil {
				return err
			}
			return g.with(func() error { return g.adds(l.fd) })
		})
	}
}

// queues takes a lock that others have for long: there is always somebody who waits.
func (w *outliver) queues() func() error {
	kinds := []string{"flock", "fcntl", "ofd"}
	l := &lockedFile{own: true, kept: true, dir: w.dir, lock: -1, fd: -1}
	g, err := w.guard(w.kind)
	return func() error {
		if err != nil {
			return err
		}
		// fcntl(2) and flock(2) know nothing of one another: both are taken.
		l.kind = "flock"
		second := kinds[1+w.r.IntN(2)]
		return l.with(func() error {
			if err := lockCall(second, l.fd, true); err != nil {
				return err
			}
			err := g.with(func() error {
				<-time.After(time.Duration(w.r.IntN(120)) * time.Millisecond) // the others wait
				return g.adds(l.fd)
			})
			if err != nil {
				return err
			}
			return lockCall(second, l.fd, false)
		})
	}
}

// nameLock is a lock that is held by who has made a name.
type nameLock interface {
	take(path string, who []byte) error
	mine(path string, who []byte) error
	drop(path string) error
}

type lockDir struct{}

func (lockDir) take(path string, _ []byte) error { return os.Mkdir(path, 0o700) }
func (lockDir) drop(path string) error {
	return retry(func() error { return unix.Rmdir(path) })
}
func (lockDir) mine(path string, _ []byte) error {
	st, err := os.Lstat(path)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("it is %v", st.Mode())
	}
	return err
}

type lockFile struct{}

func (lockFile) take(path string, who []byte) error {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	if err := retry(func() error { _, err := unix.Write(fd, who); return err }); err != nil {
		return fmt.Errorf("write who has made it: %v", err) // not: as if it were not made
	}
	return unix.Close(fd)
}

func (lockFile) drop(path string) error {
	return retry(func() error { return unix.Unlink(path) })
}

func (lockFile) mine(path string, who []byte) error {
	b, err := os.ReadFile(path)
	if err == nil && string(b) != string(who) {
		err = fmt.Errorf("LOCK FILE OF ANOTHER ONE: %q, want %q", b, who)
	}
	return err
}

// locksByName adds one to a number while it has a name that it has made, which nobody else
// can, and waits by trying. Who does not know whether it has made or removed the name
// finds out beside the mounts: it waits until nobody else is about to make or remove it.
// Then it is nobody's if nobody is in there.
func (w *outliver) locksByName(l nameLock) func() error {
	g, err := w.guard(w.kind)
	name, data := filepath.Join(w.dir, "lock"), filepath.Join(w.dir, "number")
	about, err2 := os.OpenFile(filepath.Join(w.local, "about-"+w.kind), os.O_RDWR|os.O_CREATE, 0o644)
	n := 0
	return func() error {
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		n++
		who := fmt.Appendf(nil, "%s %d\n", w.who, n)
		for begun := time.Now(); ; <-time.After(time.Duration(1+w.r.IntN(20)) * time.Millisecond) {
			err := w.about(about, func() error {
				if err := l.take(name, who); err != nil {
					return err
				}
				return g.enter()
			})
			if err == nil {
				break
			}
			if w.doubts(err, "make", name) {
				err = w.clear(about, g, l, name)
			}
			if err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			if time.Since(begun) > time.Second { // that is no error: trying is not fair
				return nil
			}
		}
		err := w.addsOnce(g, data)
		if err == nil {
			err = l.mine(name, who)
		}
		if err == nil {
			err = w.about(about, func() error { return errors.Join(g.leave(), l.drop(name)) })
			if w.doubts(err, "remove", name) {
				err = w.clear(about, g, l, name)
			}
		}
		return err
	}
}

// about calls f while nobody is in clear.
func (w *outliver) about(lock *os.File, f func() error) error {
	if err := retry(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_SH) }); err != nil {
		return err
	}
	return errors.Join(f(), unix.Flock(int(lock.Fd()), unix.LOCK_UN))
}

// clear removes the name if it is nobody's.
func (w *outliver) clear(about *os.File, g *guard, l nameLock, name string) error {
	if err := retry(func() error { return unix.Flock(int(about.Fd()), unix.LOCK_EX) }); err != nil {
		return err
	}
	defer func() { _ = unix.Flock(int(about.Fd()), unix.LOCK_UN) }()
	if g.enter() != nil {
		return nil // somebody has made it, and knows
	}
	defer func() { _ = g.leave() }()
	for {
		err := l.drop(name)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if !w.doubts(err, "remove", name) {
			return err
		}
	}
}

// addsOnce adds one to the number in a file that it opens for that.
func (w *outliver) addsOnce(g *guard, data string) error {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(data, unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(g.adds(fd), unix.Close(fd))
}
