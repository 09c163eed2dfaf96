package trouble

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// What keeps a daemon from starting is either for good, as wrong options or
// another secret, or it may pass: then the watcher of a mount that was usable
// once tries again for ever, and systemd does.

// mayPass marks an error of a daemon that was started in vain.
type mayPass struct{ error }

// MayPass is err, which is not final whatever its exit number says.
func MayPass(err error) error { return &mayPass{err} }

func (e *mayPass) Unwrap() error { return e.error }

// Final reports whether it makes no sense to start a daemon again after err.
func Final(err error) bool {
	if _, ok := errors.AsType[*mayPass](err); ok {
		return false
	}
	code := exitcode.Of(err)
	return code == exitcode.Refused || code == exitcode.Usage
}

// troubles of storage, of local disks and of a host that has too little of
// something. They say nothing of the mount.
var troubles = []error{
	unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ESTALE, unix.EBADFD, unix.EREMOTEIO, unix.ENXIO, unix.ENODEV, unix.ENOMEDIUM, unix.EUCLEAN,
	unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH, unix.ECONNREFUSED, unix.ECONNRESET,
	unix.ECONNABORTED, unix.ENOTCONN, unix.ESHUTDOWN, unix.EPIPE, unix.EPROTO,
	unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EBUSY, unix.EINTR,
	register.ErrFull, register.ErrNoCluster, register.ErrOtherCluster, journal.ErrNoSpace,
}

// mistakes are what people make of storage, and unmake: they end a first mount
// with words, but not a mount that was usable before.
var mistakes = []error{unix.ENOENT, unix.ENOTDIR, unix.EROFS, unix.EACCES, unix.EPERM, register.ErrDamaged}

// isOneOf reports whether err is, or wraps, an error of a list.
func isOneOf(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Passing reports whether err may pass.
func Passing(err error) bool { return isOneOf(err, troubles) || isOneOf(err, mistakes) }

// StorageCode is the exit number for an error of the shared directory.
func StorageCode(err error) int {
	if errors.Is(err, register.ErrNoLink) || errors.Is(err, register.ErrUnusable) {
		return exitcode.Refused // whatever number the client has for it
	}
	if isOneOf(err, troubles) {
		return exitcode.Failure
	}
	return exitcode.Refused
}
