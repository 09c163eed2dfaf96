package process

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// WithoutSystemd is the environment of a process that is not to speak to systemd.
func WithoutSystemd() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
}

// Dying reports whether a process has ended but for threads that cannot: its
// first thread is gone, and there are others.
func Dying(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	if State(b) != 'Z' {
		return false
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	return err == nil && len(threads) > 1
}

// State is the state of a process or thread in its /proc/PID/stat (proc_pid_stat(5)),
// such as 'Z'; 0: it cannot be read.
func State(stat []byte) byte {
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
	return err == nil && (State(b) == 'T' || State(b) == 't')
}

// End has a process end, also if it is stopped.
func End(pid int) error {
	if err := unix.Kill(pid, unix.SIGTERM); err != nil || !Stopped(pid) {
		return err
	}
	return unix.Kill(pid, unix.SIGCONT)
}

// Outlive keeps this process from ending because nobody takes its log any more,
// or a terminal is gone. A watcher logs just when its daemon has died: if that
// ended it, nobody would start another one. What a process catches, and does not
// ignore, its children do not inherit.
func Outlive() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGHUP) }
