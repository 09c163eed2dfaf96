package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// outliver is one of the programs of TestProgramsOutliveTheDaemon. It ends with the first
// error that it gets. What it believes of its locks and files is checked by what it and
// the others write down in a directory beside the mounts.
type outliver struct {
	kind, who  string
	mount, dir string // dir is the kind's own, in the mount
	local      string
	r          *rand.Rand
	rest       time.Duration // the longest between two steps
	many       int
	log        *os.File
	state      *outliverState
}

// outliverState is memory that the test has, too.
type outliverState struct {
	steps  atomic.Uint64
	doubts atomic.Uint64
}

// outlivers make the step that each kind of program repeats.
var outlivers = map[string]func(w *outliver) func() error{
	"counter-flock": func(w *outliver) func() error { return w.counts("flock", true) },
	"counter-fcntl": func(w *outliver) func() error { return w.counts("fcntl", false) },
	"counter-ofd":   func(w *outliver) func() error { return w.counts("ofd", true) },
	"counter-open":  (*outliver).countsOpen,
	"queue":         (*outliver).queues,
	"mkdir":         func(w *outliver) func() error { return w.locksByName(lockDir{}) },
	"excl":          func(w *outliver) func() error { return w.locksByName(lockFile{}) },
	"content":       (*outliver).changesOwn,
	"shared":        (*outliver).changesShared,
	"removed":       (*outliver).changesRemoved,
	"many":          (*outliver).keepsMany,
	"longer":        (*outliver).makesLonger,
	"append":        (*outliver).appendsInTurn,
	"replace":       (*outliver).replaces,
	"log":           (*outliver).writesLog,
	"tail":          (*outliver).tails,
	"names":         (*outliver).changesNames,
	"sqlite":        (*outliver).inserts,
	"git":           (*outliver).commits,
	"probe":         (*outliver).probes,
}

// outlive: outlive KIND WHO MOUNT LOCAL SEED REST MANY. It ends after SIGTERM.
func outlive(args []string) error {
	w := &outliver{kind: args[0], who: args[1], mount: args[2], dir: filepath.Join(args[2], args[0]), local: args[3]}
	seed, err := strconv.ParseUint(args[4], 10, 64)
	if err != nil {
		return err
	}
	w.r = rand.New(rand.NewPCG(seed, 0))
	if w.rest, err = time.ParseDuration(args[5]); err != nil {
		return err
	}
	if w.many, err = strconv.Atoi(args[6]); err != nil {
		return err
	}
	if w.log, err = os.OpenFile(filepath.Join(w.local, "log-"+w.who), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return err
	}
	if w.state, err = mapState(w.local, w.who); err != nil {
		return err
	}
	begin, ok := outlivers[w.kind]
	if !ok {
		return fmt.Errorf("no program %q", w.kind)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	for step := begin(w); ; {
		select {
		case <-end:
			return nil
		case <-time.After(time.Duration(w.r.Int64N(int64(w.rest)))):
		}
		if err := step(); err != nil {
			return fmt.Errorf("%s, at %s: %w", w.who, time.Now().Format(time.StampMicro), err)
		}
		w.state.steps.Add(1)
	}
}

// mapState is the state of a program, which the test has made.
func mapState(local, who string) (*outliverState, error) {
	f, err := os.OpenFile(filepath.Join(local, "state-"+who), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(outliverState{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*outliverState)(unsafe.Pointer(&b[0])), nil
}

// doubts reports whether err is what a change may get of which it cannot be known who has
// made it, see takeover.md; and notes it. what is the call, name what it changes.
func (w *outliver) doubts(err error, what, name string) bool {
	if !errors.Is(err, unix.EIO) {
		return false
	}
	w.state.doubts.Add(1)
	fmt.Fprintf(w.log, "? %s %s\n", what, name)
	return true
}

// removes removes a name of which nobody else knows.
func (w *outliver) removes(name string) error {
	for {
		err := os.Remove(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !w.doubts(err, "remove", name) {
			return err
		}
	}
}

// moves renames what nobody else knows.
func (w *outliver) moves(from, to string) error {
	for {
		err := os.Rename(from, to)
		if err == nil || !w.doubts(err, "rename", to) {
			return err
		}
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
}

// makes makes a file that is not there, and of which nobody else knows.
func (w *outliver) makes(name string, flags int) (fd int, err error) {
	for {
		err = retry(func() (err error) {
			fd, err = unix.Open(name, flags|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
			return err
		})
		if err == nil {
			return fd, nil
		}
		if err = fmt.Errorf("make %s: %w", name, err); !w.doubts(err, "make", name) {
			return -1, err
		}
		if err := w.removes(name); err != nil {
			return -1, err
		}
	}
}

// guard is what is known outside of the mounts of something that one program at a time
// may use, by its lock: whether one does, and what it has left.
type guard struct {
	name, who   string
	held, truth *os.File
}

func (w *outliver) guard(name string) (*guard, error) {
	g := &guard{name: name, who: w.who}
	var err error
	if g.held, err = os.OpenFile(filepath.Join(w.local, "held-"+name), os.O_RDWR|os.O_CREATE, 0o644); err == nil {
		g.truth, err = os.OpenFile(filepath.Join(w.local, "truth-"+name), os.O_RDWR|os.O_CREATE, 0o644)
	}
	return g, err
}

// errTwoHolders is the worst that can be.
var errTwoHolders = errors.New("TWO HOLDERS")

// with calls f inside: nobody else may be there.
func (g *guard) with(f func() error) error {
	if err := g.enter(); err != nil {
		return err
	}
	return errors.Join(f(), g.leave())
}

// update calls f, which gets what the last one has left, and leaves something.
func (g *guard) update(f func(truth []byte) ([]byte, error)) error {
	b, err := os.ReadFile(g.truth.Name())
	if err == nil {
		b, err = f(b)
	}
	if err == nil {
		if err = g.truth.Truncate(0); err == nil {
			_, err = g.truth.WriteAt(b, 0)
		}
	}
	return err
}

func (g *guard) enter() error {
	err := unix.FcntlFlock(g.held.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err != nil {
		other, _ := os.ReadFile(g.held.Name())
		return fmt.Errorf("%w of %s: %s, and %s", errTwoHolders, g.name, g.who, strings.TrimSpace(string(other)))
	}
	_, err = g.held.WriteAt(fmt.Appendf(nil, "%-40s\n", g.who), 0)
	return err
}

func (g *guard) leave() error {
	return unix.FcntlFlock(g.held.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

// numberIn is what is written in a file of a mount.
func numberIn(fd int) (n int, err error) {
	b := make([]byte, 32)
	var k int
	if err := retry(func() (err error) { k, err = unix.Pread(fd, b, 0); return err }); err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	return strconv.Atoi(string(b[:k]))
}

// adds adds one to the number in fd, which is that of g.
func (g *guard) adds(fd int) error {
	return g.update(func(truth []byte) ([]byte, error) {
		n, err := numberIn(fd)
		if err != nil {
			return nil, err
		}
		if want := string(truth); strconv.Itoa(n) != want {
			return nil, fmt.Errorf("LOST UPDATE: %s says %d, want %s", g.name, n, want)
		}
		now := strconv.AppendInt(nil, int64(n+1), 10)
		err = retry(func() error { _, err := unix.Pwrite(fd, now, 0); return err })
		if err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		return now, nil
	})
}
