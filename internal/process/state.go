package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dying reports whether a process has ended but for threads that cannot. Its first thread
// may be one of them: then it was sent a SIGKILL, or is ending. Otherwise that is gone, and
// there are others. It is true for a moment of each that is killed.
func Dying(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	if state(b) != 'Z' {
		return ends(b) || killed(b)
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	return err == nil && len(threads) > 1
}

// ends reports whether a thread is on its way out, from its /proc/PID/stat.
func ends(stat []byte) bool {
	const exiting = 0x4 // PF_EXITING, since Linux 2.0
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	return err == nil && flags&exiting != 0
}

// EndOf is how a process is ending that is [Dying]; zero if it ends with 0, or the kernel does
// not tell. It has ended if it is not there any more.
func EndOf(pid int) (how unix.WaitStatus, there bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 50 {
		return 0, true
	}
	code, _ := strconv.ParseUint(string(f[49]), 10, 32) // field 52
	return unix.WaitStatus(code), true
}

// Started is when a process was started, in the kernel's ticks since boot: with its number it
// is one process among all that there have been since then.
func Started(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}

// killed reports whether a SIGKILL is pending for a thread, from its /proc/PID/stat: it does
// nothing more in its program then. The kernel gives one that is for the process to each of
// its threads.
func killed(stat []byte) bool {
	const sigkill = 1 << (9 - 1)
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 29 {
		return false
	}
	pending, err := strconv.ParseUint(string(f[28]), 10, 64) // field 31
	return err == nil && pending&sigkill != 0
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
