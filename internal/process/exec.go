package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenProgram opens a program to be executed, by its descriptor: what is executed is what
// was opened, also if another file gets its name meanwhile.
func OpenProgram(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the program %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		f.Close()
		return nil, fmt.Errorf("%s is no program: %w", path, errors.Join(err, unix.EACCES))
	}
	return f, nil
}

// Inherit has files outlive execve(2), which exec calls. It returns only with an error.
func Inherit(files []int, exec func() error) error {
	// Nothing is started meanwhile that would inherit them.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	defer CloseOnExec()
	// All threads of the next program have what this thread has by then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0)
	for _, fd := range files {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return exec()
}

// CloseOnExec has all descriptors but the standard ones be closed by execve(2).
func CloseOnExec() {
	if unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	all, _ := os.ReadDir("/proc/self/fd") // Linux before 5.11
	for _, e := range all {
		fd := 0
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Duplicate is another descriptor of what is open as f, which execve(2) closes; -1 with
// an error.
func Duplicate(f syscall.Conn) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(failed, err); err != nil {
		return -1, err
	}
	return fd, nil
}
