package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The helpers are programs that tests run in mounts. They are this binary, so
// that nothing needs to be compiled or installed.

const helperEnv = "DMXFS_TEST_HELPER"

// helpers are the programs by name. Each gets its arguments.
var helpers = map[string]func(args []string) error{
	"actor":        actorMain,
	"add":          add,
	"append":       appendLines,
	"beside":       beside,
	"cachefs":      serveCache,
	"change-later": changeLater,
	"chaos":        chaosWorker,
	"counter":      counter,
	"exclusive":    exclusive,
	"followed":     followed,
	"grow":         grow,
	"handover":     measureHandover,
	"headless":     headless,
	"hoard":        func([]string) error { return hoard() },
	"hold":         hold,
	"keep-open":    keepOpen,
	"lame":         serveLame,
	"loopback":     serveLoopback,
	"mkdir":        func(args []string) error { return os.Mkdir(args[0], 0o700) },
	"name-lock":    countUnderName,
	"many-locks":   manyLocks,
	"map-writer":   mappedWriter,
	"names":        nameRounds,
	"open-alone":   openAlone,
	"outlive":      outlive,
	"overwrite":    overwrite,
	"pass":         passOn,
	"past-the-end": pastTheEnd,
	"readers":      readers,
	"replace":      replaceRounds,
	"replaced":     replacedOpen,
	"rounds":       rounds,
	"take":         func(args []string) error { return take(args[0], args[1], false) },
	"time":         timeOp,
	"token":        func(args []string) error { return printToken(args[0]) },
	"told":         func(args []string) error { return toldLater(args[0], args[1]) },
	"try":          func(args []string) error { return take(args[0], args[1], true) },
	"try-open":     func(args []string) error { return tryOpen(args[0]) },
	"uml":          umlInit,
	"update":       update,
	"wait-signal":  waitSignal,
	"waiters":      manyWaiters,
}

func helperMain(name string, args []string) {
	err := fmt.Errorf("no helper %q", name)
	if help, ok := helpers[name]; ok {
		err = help(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The first thread is where main runs only if it stays there from the beginning.
func init() {
	if os.Getenv(helperEnv) == "headless" {
		runtime.LockOSThread()
	}
}

// headless ends its first thread, and not the others; with a path one of them waits
// for what it leads to, and ends them all: headless [PATH].
func headless(args []string) error {
	if len(args) > 0 {
		go func() {
			var st unix.Stat_t
			_ = unix.Stat(args[0], &st)
			os.Exit(0)
		}()
	}
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	return nil
}

// hold takes a lock until it is killed.
func hold(args []string) error {
	if err := take(args[0], args[1], false); err != nil {
		return err
	}
	select {}
}

// waitSignal takes a lock, and can be interrupted.
func waitSignal(args []string) error {
	signal.Reset(unix.SIGINT)
	return take(args[0], args[1], false)
}

// retry repeats a call that a signal interrupted: the Go runtime sends some to
// itself.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// take locks a file by one kind of call, and waits unless it is a try. The
// file is opened for reading and writing, which is given up by the lock call.
func take(kind, name string, try bool) error {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if !try {
		return lockCall(kind, fd, true)
	}
	if kind == "flock" {
		return retry(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	}
	cmd := unix.F_SETLK
	if kind == "ofd" {
		cmd = unix.F_OFD_SETLK
	}
	return retry(func() error { return unix.FcntlFlock(uintptr(fd), cmd, &unix.Flock_t{Type: unix.F_WRLCK}) })
}

// printToken prints the fencing token of an inherited descriptor.
func printToken(fd string) error {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return err
	}
	b := make([]byte, 32)
	if n, err = unix.Fgetxattr(n, tokenName, b); err != nil {
		return fmt.Errorf("fgetxattr: %w", err)
	}
	fmt.Printf("%s", b[:n])
	return nil
}

// lockCall locks (or unlocks) all of fd by one of three kinds of call.
func lockCall(kind string, fd int, lock bool) error {
	switch kind {
	case "flock":
		how := unix.LOCK_UN
		if lock {
			how = unix.LOCK_EX
		}
		return retry(func() error { return unix.Flock(fd, how) })
	case "fcntl", "ofd":
		cmd := unix.F_SETLKW
		if kind == "ofd" {
			cmd = unix.F_OFD_SETLKW
		}
		l := unix.Flock_t{Type: unix.F_UNLCK}
		if lock {
			l.Type = unix.F_WRLCK
		}
		return retry(func() error { return unix.FcntlFlock(uintptr(fd), cmd, &l) })
	}
	return fmt.Errorf("no kind of lock %q", kind)
}

// counter adds one to the number in the file data, again and again, each time
// under a lock: counter KIND kept|anew self|lockfile TIMES [REST], with a rest after each.
func counter(args []string) error {
	kind, anew, own := args[0], args[1] == "anew", args[2] == "self"
	times, err := strconv.Atoi(args[3])
	rest := time.Duration(0)
	if err == nil && len(args) > 4 {
		rest, err = time.ParseDuration(args[4])
	}
	if err != nil {
		return err
	}
	lockFD, dataFD := -1, -1
	open := func(fd *int, name string) error {
		if *fd >= 0 && !anew {
			return nil
		}
		return retry(func() (err error) {
			*fd, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
			return err
		})
	}
	for range times {
		if own {
			if err := open(&dataFD, "data"); err != nil {
				return fmt.Errorf("open data: %w", err)
			}
			lockFD = dataFD
		} else if err := open(&lockFD, "lock"); err != nil {
			return fmt.Errorf("open lock: %w", err)
		}
		if err := lockCall(kind, lockFD, true); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if !own {
			if err := open(&dataFD, "data"); err != nil {
				return fmt.Errorf("open data: %w", err)
			}
		}
		if err := increment(dataFD); err != nil {
			return err
		}
		if !own && anew {
			unix.Close(dataFD)
		}
		if err := lockCall(kind, lockFD, false); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
		if anew {
			unix.Close(lockFD)
		}
		if rest > 0 {
			<-time.After(rest)
		}
	}
	return nil
}

func increment(fd int) error {
	b := make([]byte, 32)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	v, err := strconv.Atoi(string(b[:n]))
	if err != nil {
		return fmt.Errorf("the file says %q: %w", b[:n], err)
	}
	if _, err := unix.Pwrite(fd, strconv.AppendInt(nil, int64(v+1), 10), 0); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// overwrite writes to a file, again and again, with a rest after each, until it is killed:
// overwrite FILE REST.
func overwrite(args []string) error {
	rest, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	fd, err := unix.Open(args[0], unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	for i := byte(0); ; i++ {
		if _, err := unix.Pwrite(fd, []byte{i}, 0); err != nil {
			return err
		}
		if rest > 0 {
			<-time.After(rest)
		}
	}
}

// appendLines writes numbered lines to a file under a lock that it keeps, for
// ever if TIMES is 0: append KIND FILE TAG TIMES. It ends with the first error.
func appendLines(args []string) error {
	kind, name, tag := args[0], args[1], args[2]
	times, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	fd := -1
	err = retry(func() (err error) {
		fd, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if kind != "open" {
		if err := lockCall(kind, fd, true); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
	}
	for i := 0; times == 0 || i < times; i++ {
		line := fmt.Appendf(nil, "%s %d\n", tag, i)
		if err := retry(func() error { _, err := unix.Write(fd, line); return err }); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if times == 0 {
			<-time.After(time.Millisecond)
		}
	}
	return nil
}

// grow makes a file longer by a byte, again and again, each time under a lock,
// at the end that read(2) finds: grow KIND FILE TIMES.
func grow(args []string) error {
	times, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	fd, err := unix.Open(args[1], unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	b := make([]byte, 1<<16)
	for range times {
		if err := lockCall(args[0], fd, true); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		n, err := unix.Pread(fd, b, 0)
		if err != nil {
			return fmt.Errorf("pread: %w", err)
		}
		if _, err := unix.Pwrite(fd, []byte("x"), int64(n)); err != nil {
			return fmt.Errorf("pwrite: %w", err)
		}
		if err := lockCall(args[0], fd, false); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
	}
	return nil
}
