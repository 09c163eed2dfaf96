package keeper

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is the error of a keeper that there is not any more.
var ErrGone = errors.New("the keeper of the descriptors is gone")

// Found is a keeper, perhaps of another process.
type Found struct {
	id    ID
	pidfd int
	// dir is its /proc/PID/fd, open: of the process that it is of, whoever has the number
	// later. It is -1 until the first [Found.TakePath].
	dir int
}

// Find finds a keeper.
func Find(id ID) (*Found, error) {
	pidfd, err := unix.PidfdOpen(id.PID, 0)
	switch {
	case err == unix.ESRCH || err == unix.EINVAL && id.PID <= 0:
		return nil, fmt.Errorf("%w: there is no process %d", ErrGone, id.PID)
	case err != nil:
		return nil, fmt.Errorf("keeper of descriptors, process %d: %w", id.PID, err)
	}
	// From now on the number stands for one process; was it the one that is meant?
	switch start, err := startOf(id.PID); {
	case errors.Is(err, os.ErrNotExist) || err == unix.ESRCH:
		unix.Close(pidfd)
		return nil, fmt.Errorf("%w: process %d has ended", ErrGone, id.PID)
	case err != nil:
		unix.Close(pidfd)
		return nil, fmt.Errorf("keeper of descriptors, process %d: %w", id.PID, err)
	case start != id.Start:
		unix.Close(pidfd)
		return nil, fmt.Errorf("%w: process %d is another one by now", ErrGone, id.PID)
	}
	return &Found{id, pidfd, -1}, nil
}

// Take is a descriptor for the open file that the keeper has under the number fd, which
// is closed by execve(2). It can be taken more than once.
func (f *Found) Take(fd int) (int, error) {
	for {
		got, err := unix.PidfdGetfd(f.pidfd, fd, 0)
		switch err {
		case nil:
			return got, nil
		case unix.EINTR:
			continue
		case unix.ESRCH:
			err = fmt.Errorf("%w: process %d has ended", ErrGone, f.id.PID)
		case unix.EBADF:
			err = fmt.Errorf("it was not open: %w", err)
		case unix.EPERM:
			err = notAllowed(err)
		}
		return -1, fmt.Errorf("take descriptor %d from its keeper: %w", fd, err)
	}
}

// TakePath is Take, for a file that may have been opened with O_PATH, and is so opened again
// then. It is -1 if nothing is open under the number. There may be thousands, for which
// programs wait.
func (f *Found) TakePath(fd int) (int, error) {
	got, err := unix.PidfdGetfd(f.pidfd, fd, 0)
	switch err {
	case nil:
		return got, nil
	case unix.EBADF:
	default:
		return f.Take(fd) // which says what is wrong, if anything is
	}
	if f.dir < 0 {
		if f.dir, err = unix.Open(fmt.Sprintf("/proc/%d/fd", f.id.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			f.dir = -1
			return -1, fmt.Errorf("open the descriptors of their keeper, process %d: %w", f.id.PID, err)
		}
		// The keeper may have ended, and the number may be that of another process by now.
		if got, err := f.Take(fd); !errors.Is(err, unix.EBADF) {
			closeDir(&f.dir)
			return got, err
		}
	}
	got, err = unix.Openat(f.dir, strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		return got, nil
	case unix.ENOENT, unix.ESRCH: // nothing is open, or the keeper has ended
		if got, err := f.Take(fd); !errors.Is(err, unix.EBADF) {
			return got, err
		}
		return -1, nil
	}
	return -1, fmt.Errorf("open descriptor %d of its keeper: %w", fd, err)
}

func closeDir(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// endTime is how long a keeper may take to end. If it is the last one that has files
// open, these are closed by its end.
const endTime = 10 * time.Second

// End ends the keeper, and returns when it has ended.
func (f *Found) End() error {
	if err := unix.PidfdSendSignal(f.pidfd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("end the keeper of descriptors, process %d: %w", f.id.PID, err)
	}
	for until := time.Now().Add(endTime); ; {
		p := []unix.PollFd{{Fd: int32(f.pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(max(time.Until(until).Milliseconds(), 0)))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("end the keeper of descriptors, process %d: %w", f.id.PID, err)
		case n == 0:
			return fmt.Errorf("the keeper of descriptors, process %d, was killed and does not end: a file that it closes hangs", f.id.PID)
		default:
			return f.Close()
		}
	}
}

// Close forgets the keeper, which lives on.
func (f *Found) Close() error {
	if f.pidfd < 0 {
		return nil
	}
	fd := f.pidfd
	f.pidfd = -1
	closeDir(&f.dir)
	return unix.Close(fd)
}

// yama is where the Yama security module says what it allows.
var yama = "/proc/sys/kernel/yama/ptrace_scope"

func scope() string {
	b, err := os.ReadFile(yama)
	if err != nil {
		return "0" // there is none
	}
	return strings.TrimSpace(string(b))
}

// forbidden is an error if it is clear that no other process could take anything out of
// a keeper of this one.
func forbidden(tracer int) error {
	may := mayTrace()
	switch s := scope(); {
	case s == "3":
		return fmt.Errorf("no process may trace another one here (%s is 3, until the machine is started anew)", yama)
	case s == "2" && !may:
		return fmt.Errorf("only a process with CAP_SYS_PTRACE may trace another one here (%s is 2)", yama)
	case s == "1" && !may && tracer == 0:
		return fmt.Errorf("only its ancestors may trace a process here (%s is 1), and nobody else is named", yama)
	}
	return nil
}

// mayTrace reports whether this process has CAP_SYS_PTRACE.
func mayTrace() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	return unix.Capget(&h, &d[0]) == nil && d[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// notAllowed says what may be missing.
func notAllowed(err error) error {
	if s := scope(); s != "0" {
		return fmt.Errorf("this process may not trace the keeper, as the Yama security module has it (%s is %s), or it is of another user: %w", yama, s, err)
	}
	return fmt.Errorf("this process may not trace the keeper: it is of another user, or its memory may not be read, and CAP_SYS_PTRACE is missing; or pidfd_getfd(2) is forbidden here: %w", err)
}
