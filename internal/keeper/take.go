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
	files *os.File // its directory in /proc of what it has open; nil: not needed yet
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
	return &Found{id: id, pidfd: pidfd}, nil
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
// then. It is -1 if nothing is open under the number.
func (f *Found) TakePath(fd int) (int, error) {
	got, err := f.Take(fd)
	if !errors.Is(err, unix.EBADF) {
		return got, err
	}
	dir, err := f.open()
	if err != nil {
		return -1, err
	}
	got, err = unix.Openat(int(dir.Fd()), strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		return got, nil
	}
	if _, gone := f.Take(fd); !errors.Is(gone, unix.EBADF) { // it may have ended
		return -1, gone
	}
	if err == unix.ENOENT {
		return -1, nil
	}
	return -1, fmt.Errorf("open descriptor %d of its keeper: %w", fd, err)
}

// open is the directory of what the keeper has open. It is that of the keeper for good,
// whatever process has its number later.
func (f *Found) open() (*os.File, error) {
	if f.files != nil {
		return f.files, nil
	}
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", f.id.PID))
	if err == nil {
		// It may have ended before that.
		if start, bad := startOf(f.id.PID); bad != nil || start != f.id.Start {
			dir.Close()
			err = ErrGone
		}
	} else if errors.Is(err, os.ErrNotExist) {
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("what the keeper of descriptors, process %d, has open: %w", f.id.PID, err)
	}
	f.files = dir
	return dir, nil
}

// smallTable is for how many descriptors there is no need to make room.
const smallTable = 256

// MakeRoom has the table of descriptors of this process be so large that all that the keeper
// has open can be taken. It would grow by itself, from one power of two to the next; but each
// time the kernel waits until no processor looks at the old one any more, some 10 ms, if the
// process has threads.
func (f *Found) MakeRoom() error {
	dir, err := f.open()
	if err != nil {
		return err
	}
	st, err := dir.Stat()
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	most := min(uint64(st.Size()), limit.Cur) // the size is how many there are; before Linux 6.2 it is 0
	if most < smallTable {
		return nil
	}
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, int(most)-1)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// Sockets are the descriptors of sockets that the keeper has, but for those of which known
// says that they are of something else: to look at one takes some microseconds.
func (f *Found) Sockets(known func(fd int) bool) (list []int, err error) {
	dir, err := f.open()
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("what the keeper of descriptors, process %d, has open: %w", f.id.PID, err)
	}
	b := make([]byte, len(socketLink))
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || known(fd) {
			continue
		}
		if n, err := unix.Readlinkat(int(dir.Fd()), name, b); err == nil && string(b[:n]) == socketLink {
			list = append(list, fd)
		}
	}
	return list, nil
}

// socketLink is how the link of a socket begins.
const socketLink = "socket:"

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

// Reap waits for a keeper if it has ended: where orphans go to nobody who waits for them, as in a
// container, it is this process that they go to. Whoever has its number by now is left alone: that
// may be a process of which somebody else waits to learn how it has ended.
func Reap(id ID) {
	if _, start, err := statOf(id.PID); err == nil && start == id.Start {
		_, _ = unix.Wait4(id.PID, nil, unix.WNOHANG, nil) // it may be the child of another process
	}
}

// alive is an error if the keeper has ended, or may not be sent signals.
func (f *Found) alive() error {
	switch err := unix.PidfdSendSignal(f.pidfd, 0, nil, 0); err {
	case nil:
		return nil
	case unix.ESRCH:
		return fmt.Errorf("%w: process %d has ended", ErrGone, f.id.PID)
	default:
		return fmt.Errorf("the keeper of descriptors, process %d, could not be ended, as pidfd_send_signal(2) is forbidden here: %w", f.id.PID, err)
	}
}

// Close forgets the keeper, which lives on.
func (f *Found) Close() error {
	if f.pidfd < 0 {
		return nil
	}
	fd := f.pidfd
	f.pidfd = -1
	if f.files != nil {
		f.files.Close()
	}
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
