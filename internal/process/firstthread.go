package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// FirstThread tells when the first thread of a process has ended: one that was killed may
// have others that cannot end yet.
type FirstThread struct {
	pidfd *os.File // nil: nobody tells
	done  chan struct{}
}

// WatchFirstThread begins that. Where the kernel does not tell it (before Linux 6.9) Ended is
// never closed. Stop is to be called.
func WatchFirstThread(pid int) *FirstThread {
	f := &FirstThread{done: make(chan struct{})}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_THREAD|unix.PIDFD_NONBLOCK)
	if err != nil {
		return f
	}
	f.pidfd = os.NewFile(uintptr(fd), "first thread")
	raw, err := f.pidfd.SyscallConn()
	if err != nil {
		return f
	}
	go func() {
		err := raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return err == nil && n > 0
		})
		if err == nil {
			close(f.done)
		}
	}()
	return f
}

// Ended is closed when the thread has ended, also if all others have. A program that is
// executed may look so.
func (f *FirstThread) Ended() <-chan struct{} { return f.done }

// Stop ends what WatchFirstThread has begun.
func (f *FirstThread) Stop() {
	if f.pidfd != nil {
		f.pidfd.Close() // and with that the wait for it
	}
}
