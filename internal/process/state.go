package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dying reports whether a process has ended but for threads that cannot: its
// first thread is gone, and there are others.
func Dying(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	if state(b) != 'Z' {
		return false
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	return err == nil && len(threads) > 1
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
