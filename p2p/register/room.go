package register

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Room for views is kept on the storage while there is some, so that members
// can be dropped when it is full: files in roomDir, of random bytes, since some
// storage keeps zeros without any room. A view that finds no room takes one of
// them for its temporary file.
//
// A rename decides who has it. It is written in place, which takes no new
// blocks, and cut to its length afterwards. Storage that writes elsewhere in
// any case (btrfs, ZFS) may have no room for that either: then the file is
// removed, and the view written anew, which is as good unless another program
// is faster.
const (
	roomDir   = Name + "/room"
	roomFiles = 8
	minRoom   = 16 << 10 // bytes of one; a view of 16 members takes half of it
)

// room is that room.
type room struct {
	*storage

	mu      sync.Mutex
	largest int // bytes of the largest view that was seen
}

// roomName is the name of one of the files.
func roomName(i int) string { return fmt.Sprint(i) }

// size is how large they are: twice as large as the largest view that was
// seen here, which leaves a view without some of its members enough.
func (r *room) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := minRoom
	for size < 2*r.largest && size < member.MaxViewSize {
		size *= 2
	}
	return size
}

// sawView notes how large views are.
func (r *room) sawView(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.largest = max(r.largest, size)
}

// fill makes the files that are missing or too small, unless the storage is
// so full that they would be a good part of what is left.
func (r *room) fill() error {
	if _, err := r.makeDir(roomDir); err != nil {
		return err
	}
	dir, err := r.open(roomDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	size := r.size()
	var data []byte
	var failed error
	for i := range roomFiles {
		st, err := dir.stat(roomName(i))
		if err == nil && st.Size >= int64(size) {
			continue
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return dir.wrap("stat", roomName(i), err)
		}
		if data == nil {
			if r.nearlyFull(4 * roomFiles * int64(size)) {
				return nil
			}
			data = make([]byte, size)
			rand.Read(data)
		}
		err = dir.replace(roomName(i), data)
		if err != nil && !errors.Is(err, ErrPermission) {
			return err
		}
		failed = errors.Join(failed, err) // another user's, in a directory with the sticky bit
	}
	return failed
}

// nearlyFull reports that less than size is left, where the storage tells.
func (r *room) nearlyFull(size int64) bool {
	var st unix.Statfs_t
	err := again.Call(func() error { return unix.Fstatfs(r.root, &st) })
	unit := int64(st.Frsize)
	if unit == 0 {
		unit = max(int64(st.Bsize), 1)
	}
	return err == nil && st.Blocks > 0 && int64(st.Bavail) < size/unit
}

// writeView is writeTemp for a view, see views.Link: it takes from the room if there
// is no other.
func (r *room) writeView(dir directory, name string, data []byte, mode os.FileMode) error {
	full := dir.writeTemp(name, data, mode)
	if !errors.Is(full, ErrFull) {
		return full
	}
	r.each(func(room directory, from string) bool {
		err := r.writeOver(room, from, dir, name, data, mode)
		if errors.Is(err, ErrFull) {
			// The room that was taken has been given back.
			err = dir.writeTemp(name, data, mode)
		}
		if err == nil {
			full = nil
		}
		return err == nil
	})
	return full
}

// linkView is link for a view, see views.Link: the name may need room, too, for which a file of
// the room is removed.
func (r *room) linkView(dir directory, from, to string) error {
	err := dir.link(from, to)
	if !isFull(err) {
		return err
	}
	r.each(func(room directory, name string) bool {
		if room.unlink(name) != nil {
			return false
		}
		err = dir.link(from, to)
		return !isFull(err)
	})
	return err
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// each calls f with the files of the room that may be there, until it
// returns true.
func (r *room) each(f func(room directory, name string) bool) {
	room, err := r.open(roomDir)
	if err != nil {
		return // none was kept
	}
	defer room.Close()
	for i := range roomFiles {
		if f(room, roomName(i)) {
			return
		}
	}
}

// writeOver makes a file of the room, from, the file name in dir, with all of
// data on the storage. If it fails nothing is left of either; only a file that
// this node may not write to goes back to the room.
//
// The file looks old until it is written to. If another node prunes it just
// then the link fails, and the machine tries again.
func (r *room) writeOver(room directory, from string, dir directory, name string, data []byte, mode os.FileMode) error {
	if err := again.Call(func() error { return unix.Renameat(room.fd(), from, dir.fd(), name) }); err != nil {
		if isFull(err) { // the name needs room
			room.unlink(from)
			return dir.wrap("rename", name, err)
		}
		return fmt.Errorf("take room: %w", err) // another node has it, or may not give it away
	}
	f, err := dir.openFile(name, unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if unix.Renameat(dir.fd(), name, room.fd(), from) != nil {
			dir.unlink(name)
		}
		return dir.wrap("open", name, err)
	}
	if !mayWriteOver(f) {
		f.Close()
		dir.unlink(name)
		return fmt.Errorf("%s: %s/%s is not a file of the room", r.source, roomDir, from)
	}
	if err = r.finish(f, data, mode); err != nil {
		dir.unlink(name)
		return dir.wrap("write", name, err)
	}
	return nil
}

// mayWriteOver tells a file of the room from what somebody else put there: a
// pipe, or a second name of a file that is precious.
func mayWriteOver(f *os.File) bool {
	var st unix.Stat_t
	err := again.Call(func() error { return unix.Fstat(int(f.Fd()), &st) })
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1
}
