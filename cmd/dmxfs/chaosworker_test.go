package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The programs of the chaos test. Each works on one mount until it is told to
// end, whatever errors it gets, and writes down what it did.

// chaosWorker: chaos KIND WHO MOUNT LOG PAUSE REST. It does nothing while the file
// PAUSE exists, rests for up to REST after each step, and ends after SIGTERM.
func chaosWorker(args []string) error {
	kind, who, pause := args[0], args[1], args[4]
	rest, err := time.ParseDuration(args[5])
	if err != nil {
		return err
	}
	log, err := os.OpenFile(args[3], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	w := &worker{who: who, mount: args[2], log: log, rests: rest}
	work, ok := map[string]func() error{
		"counter-flock": func() error { return w.counter("flock") },
		"counter-fcntl": func() error { return w.counter("fcntl") },
		"counter-ofd":   func() error { return w.counter("ofd") },
		"reader":        w.reader,
		"open":          func() error { return w.group("groups", 0) },
		"many":          w.many,
		"sqlite":        w.insert,
	}[kind]
	if !ok {
		return fmt.Errorf("no worker %q", kind)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	for {
		select {
		case <-end:
			return nil
		case <-time.After(time.Millisecond + rand.N(rest)):
		}
		if _, err := os.Stat(pause); err == nil {
			continue
		}
		if err := work(); err != nil {
			fmt.Fprintf(log, "# %v\n", err)
			<-time.After(20 * time.Millisecond)
		}
	}
}

type worker struct {
	who, mount string
	log        *os.File
	n          int
	rests      time.Duration
	rest       time.Time // until when many does nothing
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return ts.Nano()
}

// under opens a file, takes a lock, and calls f, whose I/O calls go through io:
// that notes when each began. The section is written down if there was one.
//
// Without a lock it is the open lock that keeps others away, from the first I/O
// on: until then it gives way, and that of a new file is asked for meanwhile.
func (w *worker) under(file, mode string, flags int, lock func(fd int) error, f func(s *section, fd int, io func(func() error) error) error) error {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(filepath.Join(w.mount, file), flags|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	defer unix.Close(fd)
	if lock != nil {
		if err := lock(fd); err != nil {
			return fmt.Errorf("lock %s: %w", file, err)
		}
	}
	s := section{File: file, Who: w.who, Mode: mode, Acquired: monotonic()}
	s.Last = s.Acquired
	err = f(&s, fd, func(call func() error) error {
		began := monotonic()
		err := retry(call)
		if err == nil && lock == nil && s.Acquired == s.Last {
			s.Acquired = monotonic()
			began = s.Acquired + 1
		}
		if err == nil {
			s.Last = began
		}
		return err
	})
	s.OK = err == nil
	// An open lock through which nothing was read or written keeps nobody away.
	if lock != nil || s.Last != s.Acquired {
		fmt.Fprintln(w.log, s)
	}
	if err != nil {
		return fmt.Errorf("I/O on %s: %w", file, err)
	}
	return nil
}

// counter adds one to the number in a file.
func (w *worker) counter(kind string) error {
	lock := func(fd int) error { return lockCall(kind, fd, true) }
	return w.under("counter-"+kind, "W", unix.O_RDWR, lock, func(s *section, fd int, io func(func() error) error) error {
		var v int64
		b := make([]byte, 32)
		err := io(func() error {
			n, err := unix.Pread(fd, b, 0)
			if err == nil {
				v, err = strconv.ParseInt(string(b[:n]), 10, 64)
			}
			return err
		})
		if err != nil {
			return err
		}
		if rand.IntN(4) == 0 {
			<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
		s.Value, s.Tried = v+1, true
		if err := io(func() error { _, err := unix.Pwrite(fd, fmt.Appendf(nil, "%d", v+1), 0); return err }); err != nil {
			return err
		}
		s.Wrote = true
		return io(func() error { return unix.Fsync(fd) })
	})
}

// reader sees that a counter stays as it is while it holds a shared lock. (A
// read may be served from the cache; fsync(2) asks the daemon.)
func (w *worker) reader() error {
	lock := func(fd int) error { return retry(func() error { return unix.Flock(fd, unix.LOCK_SH) }) }
	return w.under("counter-flock", "R", unix.O_RDONLY, lock, func(s *section, fd int, io func(func() error) error) error {
		var first string
		b := make([]byte, 32)
		for i := range 3 {
			n, err := 0, error(nil)
			if err = io(func() error { n, err = unix.Pread(fd, b, 0); return err }); err != nil {
				return err
			}
			if err := io(func() error { return unix.Fsync(fd) }); err != nil {
				return err
			}
			if i == 0 {
				first = string(b[:n])
			} else if first != string(b[:n]) {
				fmt.Fprintf(w.log, "! %s read %q and then %q under one shared lock\n", w.who, first, b[:n])
			}
		}
		return nil
	})
}

// group appends three lines under an open lock.
func (w *worker) group(file string, flags int) error {
	w.n++
	id := fmt.Sprintf("%s-%d", w.who, w.n)
	err := w.under(file, "W", unix.O_WRONLY|unix.O_APPEND|flags, nil, func(s *section, fd int, io func(func() error) error) error {
		for i := range 3 {
			line := fmt.Appendf(nil, "%s/%d\n", id, i+1)
			if err := io(func() error { _, err := unix.Write(fd, line); return err }); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		fmt.Fprintf(w.log, "G %s %s\n", file, id)
	}
	return err
}

// many appends to many files, most of them new, and rests, so that others
// delegate to this node, and this one to others. Workers of one moment use the
// same files.
func (w *worker) many() error {
	if time.Now().Before(w.rest) {
		return nil
	}
	var failed error
	for range 10 + rand.IntN(60) {
		now := monotonic() / int64(20*time.Millisecond)
		if err := w.group(fmt.Sprintf("many/%d", now-int64(rand.IntN(10))), unix.O_CREAT); err != nil {
			failed = err
		}
	}
	w.rest = time.Now().Add(rand.N(3*time.Second + 10*w.rests))
	return failed
}

// insert adds a row to a database.
func (w *worker) insert() error {
	w.n++
	id := fmt.Sprintf("%s-%d", w.who, w.n)
	cmd := exec.Command("sqlite3", "-batch", "-cmd", ".timeout 5000", filepath.Join(w.mount, "t.db"), "insert into t values('"+id+"')")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("sqlite3: %w: %s", err, strings.TrimSpace(string(out)))
	}
	fmt.Fprintf(w.log, "Q %s\n", id)
	return nil
}

// readMarks reads the lines of a worker's log that begin with a mark.
func readMarks(path, mark string) ([]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, mark+" "); ok && strings.HasSuffix(rest, "\n") {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	return found, err
}
