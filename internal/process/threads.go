package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// restTime is how long a thread of this process may be in the kernel such that nothing
// interrupts it, while programs wait. The journal writes now and then.
const restTime = 100 * time.Millisecond

// AwaitThreads waits until no thread of this process is in the kernel such that
// execve(2) would wait for it, perhaps for ever: for a disk, for storage that hangs.
func AwaitThreads(ctx context.Context) error {
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
		if state(stat) == 'D' || strings.Contains(string(wchan), "request_wait") && !asksItself(name) {
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
