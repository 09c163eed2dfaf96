package keeper

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ID is a keeper among all processes there have been since the machine was started.
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // when, as /proc/PID/stat has it
}

// Keeper is one of the descriptors of this process.
type Keeper struct {
	id       ID
	lifeline int
	found    *Found
}

// Start makes a keeper of the descriptors of this process. lifeline is an end of a pipe
// for reading: the keeper ends when nobody has the other end any more, which therefore
// must not be open here. tracer, if it is not 0, is a process whose descendants may take
// descriptors out of the keeper where only ancestors could (Yama).
//
// The keeper has a copy of the memory, which is shared as long as it does not change:
// it is best made early.
func Start(lifeline, tracer int) (*Keeper, error) {
	k, err := start(lifeline, tracer)
	if err != nil {
		return nil, fmt.Errorf("keep descriptors beyond the end of this process: %w", err)
	}
	return k, nil
}

func start(lifeline, tracer int) (*Keeper, error) {
	if err := checkLifeline(lifeline); err != nil {
		return nil, err
	}
	if err := forbidden(tracer); err != nil {
		return nil, err
	}
	// Of its own: another descriptor under this number is one that the keeper would
	// read from when it is stopped and goes on.
	own, err := unix.FcntlInt(uintptr(lifeline), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var ready [2]int // the keeper says there that it is one
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		unix.Close(own)
		return nil, err
	}
	defer unix.Close(ready[0])
	defer unix.Close(ready[1])
	k := &Keeper{lifeline: own}
	if k.id.PID, err = spawn(own, tracer, ready[1]); err != nil {
		unix.Close(own)
		return nil, fmt.Errorf("clone: %w", err)
	}
	k.id.Start, err = startOf(k.id.PID)
	if err == nil {
		k.found, err = Find(k.id)
	}
	if err == nil {
		err = k.await(ready[0])
	}
	if err == nil { // the system call may be forbidden here, as in a container
		var fd int
		if fd, err = k.found.Take(own); err == nil {
			unix.Close(fd)
			err = k.found.alive() // as it may be to end it later
		}
	}
	if err != nil {
		unix.Kill(k.id.PID, unix.SIGKILL)
		return nil, errors.Join(err, k.wait())
	}
	return k, nil
}

// await returns when the keeper has said so by fd, or has ended.
func (k *Keeper) await(fd int) error {
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(k.found.pidfd), Events: unix.POLLIN}}
		_, err := unix.Poll(p, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case p[0].Revents != 0:
			return nil
		default:
			return fmt.Errorf("%w: it has ended at once", ErrGone)
		}
	}
}

// ID is by what another process finds the keeper.
func (k *Keeper) ID() ID { return k.id }

// Ending is what AwaitEnd waits for. The caller closes it. It can be made as long as
// neither Stop nor Reap was called.
func (k *Keeper) Ending() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(k.found.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // no thread waits in it
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "keeper"), nil
}

// AwaitEnd returns when a keeper has ended, or with an error when its file is closed.
func AwaitEnd(ending *os.File) error {
	raw, err := ending.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
}

// Reap is for a keeper that has ended by itself, or was killed, instead of Stop.
func (k *Keeper) Reap() error { return k.wait() }

// Stop ends the keeper. What this process has open stays open.
func (k *Keeper) Stop() error {
	if k.found != nil {
		if err := k.found.End(); err != nil {
			return err
		}
	}
	return k.wait()
}

// wait waits for a keeper that ends, and gives up what this process has for it.
func (k *Keeper) wait() error {
	if k.found != nil {
		_ = k.found.Close() // of no use any more
	}
	for {
		if _, err := unix.Wait4(k.id.PID, nil, 0, nil); err != unix.EINTR {
			break // ECHILD: somebody else has waited for it
		}
	}
	return unix.Close(k.lifeline)
}

// checkLifeline is an error if a keeper that waits for the end of fd would not end.
func checkLifeline(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("descriptor %d, whose end the keeper should wait for: %w", fd, err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO || flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_NONBLOCK != 0 {
		return fmt.Errorf("descriptor %d, whose end the keeper should wait for, is not a blocking end of a pipe for reading", fd)
	}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, n := range names {
		other, err := strconv.Atoi(n.Name())
		var ost unix.Stat_t
		if err != nil || unix.Fstat(other, &ost) != nil || ost.Ino != st.Ino || ost.Dev != st.Dev {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(other), unix.F_GETFL, 0); err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY {
			return fmt.Errorf("descriptor %d is the other end of the pipe whose end the keeper should wait for: it would never end", other)
		}
	}
	return nil
}

// startOf is when a process was started, which has not ended.
func startOf(pid int) (uint64, error) {
	state, start, err := statOf(pid)
	if err == nil && (state == "Z" || state == "X") {
		return 0, unix.ESRCH
	}
	return start, err
}

// statOf is the state of a process, and when it was started.
func statOf(pid int) (state string, start uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	// The name in parentheses may have spaces and parentheses.
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0], start, err
}

// name is what the keeper is called in lists of processes.
var name = [16]byte{'d', 'm', 'x', 'f', 's', '-', 'k', 'e', 'e', 'p', 'e', 'r'}

// rest is what the keeper reads into.
var rest [1]byte

// spawn makes the process. No signal reaches it but SIGKILL and SIGSTOP: the handlers
// of the Go runtime must not run there.
func spawn(lifeline, tracer, ready int) (pid int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, old := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, err
	}
	pid, e := clone(uintptr(lifeline), uintptr(tracer), uintptr(ready))
	err = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	if e != 0 {
		return 0, e
	}
	return pid, err
}

// clone does nothing in the child but system calls: it is a copy of one thread of many,
// and no part of the runtime works there.
//
//go:norace
//go:noinline
func clone(lifeline, tracer, ready uintptr) (int, syscall.Errno) {
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_FILES|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		return int(pid), e
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0, 0)
	if tracer != 0 {
		syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_PTRACER, tracer, 0, 0, 0, 0)
	}
	syscall.RawSyscall(syscall.SYS_WRITE, ready, uintptr(unsafe.Pointer(&rest)), 1)
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READ, lifeline, uintptr(unsafe.Pointer(&rest)), 1)
		if e == syscall.EINTR || e == 0 && n > 0 {
			continue
		}
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
