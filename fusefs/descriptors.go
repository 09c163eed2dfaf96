package fusefs

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The daemon needs descriptors for what programs open, and for itself: to talk
// to other nodes, to look at the storage, to journal. What programs open must
// not use up the latter, or no host could have a lock any more that this one
// has a say in. The kernel gives out the lowest number that is free; so from a
// certain number on they are kept back.

// fdLimits are the limits.
type fdLimits struct {
	anchors int // of files that are not open
	most    int // numbers below this are for what programs open
}

// descriptors makes room for those that are opened.
type descriptors struct {
	*base
	fdLimits
	noRoomAt atomic.Int64 // when noRoom last logged, on the server's clock
}

// reserved is how many descriptors are kept back, where there are enough.
const reserved = 512

// fdLimitsOf divides a limit of open files. Half of it is for anchors, so
// that as many files can be open.
func fdLimitsOf(limit uint64) fdLimits {
	n := int(min(limit, math.MaxInt32))
	return fdLimits{anchors: max(16, n/2), most: n - min(reserved, n/4)}
}

// RaiseFileLimit raises the limit of open files as far as it goes, and returns
// it. A mount does so, too; who starts one without CAP_SYS_RESOURCE, which it has
// no other use for, does so before.
func RaiseFileLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	if most := systemFileLimit(); l.Max < most {
		up := unix.Rlimit{Cur: most, Max: most}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &up) == nil { // needs CAP_SYS_RESOURCE, if it is more
			return most
		}
	}
	up := unix.Rlimit{Cur: l.Max, Max: l.Max}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &up) == nil {
		return up.Cur
	}
	return l.Cur
}

func systemFileLimit() uint64 {
	b, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// withRoom opens what stays open for a program. If too much is open it makes
// room, and if there is none it fails with ENFILE. open must have no other
// effect; for what has see hasRoom.
func (ds *descriptors) withRoom(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if err == nil && fd < ds.most {
			return fd, nil
		}
		if err != nil && err != unix.EMFILE && err != unix.ENFILE {
			return -1, err
		}
		closeFD(fd)
		if !ds.makeRoom() {
			ds.noRoom()
			return -1, unix.ENFILE
		}
	}
}

// withReserve opens an anchor, or what is closed in a moment. It may be one of
// those that are kept back: there are not more of them than requests, since
// anchors of what is not open can be weighed.
func (ds *descriptors) withReserve(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		switch {
		case err == nil && fd < ds.most:
			return fd, nil
		case err != nil && err != unix.EMFILE && err != unix.ENFILE:
			return -1, err
		case ds.makeRoom():
			closeFD(fd)
			continue
		case err != nil:
			ds.noRoom()
		}
		return fd, err
	}
}

// hasRoom makes sure that there is room for one more file of a program.
func (ds *descriptors) hasRoom() error {
	fd, err := ds.withRoom(func() (int, error) { return unix.FcntlInt(uintptr(ds.fds), unix.F_DUPFD_CLOEXEC, 0) })
	closeFD(fd)
	return err
}

func (ds *descriptors) makeRoom() bool {
	t := ds.tree
	for steps := 0; ; steps += weighSteps {
		t.mu.Lock()
		done, most := t.weigh(weighBatch), 2*len(t.anchors.nodes)
		t.unlock()
		if done > 0 || steps >= most {
			return done > 0
		}
	}
}

// noRoom logs, once in a while, what only an admin can change.
func (ds *descriptors) noRoom() {
	const every = 10 * time.Second
	now := ds.now()
	last := ds.noRoomAt.Load()
	if (last == 0 || now-last >= every.Milliseconds()) && ds.noRoomAt.CompareAndSwap(last, max(now, 1)) {
		ds.log.Error("programs have too many files open: no more can be opened on this mount until some are closed; raise the daemon's limit of open files",
			"open", ds.handles.len(), "descriptors", ds.most)
	}
}
