package fusefs

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Every file that the kernel knows costs a descriptor here, and the kernel
// forgets files only when it is short of memory. This file sees to it that it
// does so before descriptors run out.

// raiseFileLimit raises the limit of open files as far as it goes, and returns it.
func raiseFileLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	if most := systemFileLimit(); l.Max < most {
		up := unix.Rlimit{Cur: most, Max: most}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &up) == nil { // needs CAP_SYS_RESOURCE
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

// room is where descriptors begin to be short, and whom to tell.
type room struct {
	high int           // a descriptor with this number means that they are short
	ask  chan struct{} // holds a word when they are
	made chan struct{} // holds a word when the kernel was made to forget some
}

func newRoom(limit uint64) room {
	return room{
		high: int(min(limit-limit/4, math.MaxInt32)),
		ask:  make(chan struct{}, 1),
		made: make(chan struct{}, 1),
	}
}

// watchRoom looks at a new descriptor. They are numbered from below, so a high
// number tells how many there are.
func (f *fileSystem) watchRoom(fd int) {
	if fd >= f.room.high {
		f.askRoom()
	}
}

func (f *fileSystem) askRoom() {
	select {
	case f.room.ask <- struct{}{}:
	default:
	}
}

// roomPatience is how long a request waits for a descriptor before it fails.
const roomPatience = 2 * time.Second

// withRoom makes a call that takes a descriptor, and if there is none waits
// for one.
func (f *fileSystem) withRoom(call func() error) error {
	err := call()
	if err != unix.EMFILE && err != unix.ENFILE {
		return err
	}
	end := time.NewTimer(roomPatience)
	defer end.Stop()
	for {
		f.askRoom()
		select {
		case <-f.room.made:
		case <-end.C:
			f.log.Error("no file descriptor left; raise the limit of open files of the daemon", "err", err)
			return err
		}
		if err = call(); err != unix.EMFILE && err != unix.ENFILE {
			return err
		}
	}
}

// Constants of makeRoom.
const (
	roomBatch = 1024                  // nodes at a time
	roomPause = 10 * time.Millisecond // for the kernel to forget them
)

// keepRoom makes the kernel forget files when descriptors are short.
func (f *fileSystem) keepRoom(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.room.ask:
		}
		for f.tree.size() > f.room.high/2 {
			before := f.tree.size()
			if !f.makeRoom(roomBatch) {
				break // everything is in use
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(roomPause):
			}
			select {
			case f.room.made <- struct{}{}:
			default:
			}
			if f.tree.size() >= before {
				break
			}
		}
	}
}

// makeRoom asks the kernel to forget up to n nodes that are not in use as far
// as is known here. It reports whether there were any.
func (f *fileSystem) makeRoom(n int) bool {
	ids, names := f.tree.unused(n)
	if len(ids) == 0 {
		return false
	}
	f.stats.Pruned.Add(int64(len(ids)))
	if f.server.PruneNotify(ids) == fuse.OK { // Linux 6.18
		return true
	}
	for _, l := range names {
		f.server.EntryNotify(l.dir.id, l.name)
	}
	return len(names) > 0
}

// unused picks nodes that are not open and have nothing below them that is
// known, and the names of those of them that are not directories: a directory
// may be somebody's working directory, which would lose its path if the kernel
// were told that the name is invalid.
func (t *tree) unused(n int) (ids []uint64, names []dirName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.byKey { // in random order
		if len(ids) == n {
			break
		}
		if x == t.root || x.pins > 0 || len(x.children) > 0 {
			continue
		}
		ids = append(ids, x.id)
		if !x.isDir() && len(x.names) > 0 {
			names = append(names, x.names[len(x.names)-1])
		}
	}
	return ids, names
}
