package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/statedir"
)

// restTime is how long a thread of this process may be in the kernel such that nothing
// interrupts it, while programs wait. The journal writes now and then.
const restTime = 100 * time.Millisecond

// awaitThreads waits until no thread of this process is in the kernel such that
// execve(2) would wait for it, perhaps for ever: for a disk, for storage that hangs.
func awaitThreads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		n, err := stuckThreads("/proc/self/task")
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%d threads of the daemon wait for a disk, or for storage that does not answer", n)
		}
	}
}

// stuckThreads counts the threads below a /proc/PID/task that nothing interrupts, or
// that wait for a file system that is a process, which nothing interrupts when that
// has begun.
func stuckThreads(dir string) (n int, err error) {
	threads, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range threads {
		name := filepath.Join(dir, e.Name())
		stat, err := os.ReadFile(filepath.Join(name, "stat"))
		if err != nil {
			continue // it has ended
		}
		wchan, _ := os.ReadFile(filepath.Join(name, "wchan"))
		if stateIn(stat) == 'D' || strings.Contains(string(wchan), "request_wait") && !asksItself(name) {
			n++
		}
	}
	return n, nil
}

// asksItself reports whether a thread asks for the size of a file system, as the mount
// does of itself to wake up who reads requests: what is not read ends with the thread.
func asksItself(thread string) bool {
	text, _ := os.ReadFile(filepath.Join(thread, "syscall"))
	call, _, _ := strings.Cut(string(text), " ")
	return call == strconv.Itoa(unix.SYS_FSTATFS)
}

// upgradingFile in a state directory says until when its daemon may look like one that
// cannot end, in ms of CLOCK_BOOTTIME: see mayLookDead.
const upgradingFile = "upgrading"

func noteUpgrading(s *statedir.Dir, log *slog.Logger) {
	until := strconv.FormatInt(boottime()+upgradingTime.Milliseconds(), 10)
	if err := os.WriteFile(s.File(upgradingFile), []byte(until+"\n"), 0o600); err != nil {
		log.Warn("dmxfs unmount may take this daemon for one that cannot end", "err", err)
	}
}

// isUpgrading reports whether a daemon of a state directory may just execute another
// program.
func isUpgrading(state string) bool {
	b, err := os.ReadFile(filepath.Join(state, upgradingFile))
	if err != nil {
		return false
	}
	until, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	left := until - boottime()
	return err == nil && left > 0 && left <= upgradingTime.Milliseconds() // else it is of before the host was booted
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// copyFD is another descriptor of a file, and none if that is nil.
func copyFD(f *os.File, to *int) error {
	if f == nil {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { *to, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	if failed != nil {
		*to = 0
	}
	return errors.Join(err, failed)
}
