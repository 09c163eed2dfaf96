package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
	"github.com/dmxfs/dmxfs/locks"
)

// lockErrno is the one table from what a Locker answers to what a program
// sees. The same errors mean the same for every call; where open(2) and
// flock(2) document no such error they are still told apart by it:
//
//	ErrWouldBlock   EAGAIN     as O_NONBLOCK, LOCK_NB and F_SETLK document
//	ErrInterrupted  EINTR      only if the kernel withdrew the request
//	ErrTimeout      ETIMEDOUT  not EAGAIN: nobody asked for a try
//	ErrDeadlock     EDEADLK    as fcntl(2); for open(2), too, and never for flock(2)
//	ErrUnavailable  ENOLCK     as fcntl(2) and flock(2); for open(2), too
//	ErrLost         EIO
//	ErrDamaged      EIO
//	ErrBequeathed   none, see bequeathed
//	anything else   EIO
//
// A request that the Locker ended as interrupted although the kernel did not
// withdraw it gets EIO: the kernel turns an EINTR that it did not ask for into
// errno 512, which no program understands.
func lockErrno(err error, cancel <-chan struct{}) fuse.Status {
	switch {
	case err == nil:
		return fuse.OK
	case errors.Is(err, locks.ErrWouldBlock):
		return fuse.EAGAIN
	case errors.Is(err, locks.ErrInterrupted):
		if closed(cancel) {
			return fuse.EINTR
		}
		return fuse.EIO
	case errors.Is(err, locks.ErrTimeout):
		return fuse.Status(unix.ETIMEDOUT)
	case errors.Is(err, locks.ErrDeadlock):
		return fuse.Status(unix.EDEADLK)
	case errors.Is(err, locks.ErrUnavailable):
		return fuse.Status(unix.ENOLCK)
	case errors.Is(err, locks.ErrBequeathed):
		return bequeathed
	}
	return fuse.EIO
}

// errLetGo is the error of a wait that had to end: the program is about to die,
// or stands in the way of others, see stuck.go. The program sees EINTR.
var errLetGo = errors.New("the wait is given up")

// maxErrno is the greatest error number that the kernel accepts in a reply
// plus one. A reply with more is refused, and the caller hangs for ever.
const maxErrno = 512

// status turns the error of a system call on the backing file system into a
// reply. ENOSYS is not passed on: the kernel would stop sending this kind of
// request for the whole mount, although only this one file failed. EINTR can
// come out of a backing file system that was asked to do something slow while
// the Go runtime sent a signal; it is not the program's interruption.
func status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	switch err {
	case errLetGo:
		return fuse.EINTR
	case locks.ErrBequeathed:
		return bequeathed
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fuse.EIO
	}
	switch {
	case errno == unix.ENOSYS:
		return fuse.ENOTSUP
	case errno == unix.EINTR, errno == 0, errno >= maxErrno:
		return fuse.EIO
	}
	return fuse.Status(errno)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// retryEINTR is again.Call.
func retryEINTR(f func() error) error { return again.Call(f) }
