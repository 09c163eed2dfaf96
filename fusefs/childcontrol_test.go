package fusefs

import (
	"os"
	"sync/atomic"

	"github.com/dmxfs/dmxfs/locks"
)

// control is what a test asks the child to do.
type control struct {
	s      *Server
	locker *fakeLocker
	ended  chan error
	lates  []LateWrite
	held   heldAttr
	kept   KeptState
	crash  atomic.Pointer[Crash]
}

// HoldAttr, Held and Answer are those of loopbackControl, for answers of this mount.
func (c *control) HoldAttr(n int, _ *None) error { return loopbackControl{&c.held}.HoldAttr(n, nil) }
func (c *control) Held(_ None, n *int) error     { return loopbackControl{&c.held}.Held(None{}, n) }
func (c *control) Answer(i int, _ *None) error   { return loopbackControl{&c.held}.Answer(i, nil) }

// None is no argument, and no answer.
type None struct{}

func (c *control) lateWrite(w LateWrite) {
	c.locker.mu.Lock()
	c.lates = append(c.lates, w)
	c.locker.mu.Unlock()
}

// HoldArgs is a lock that the other node takes.
type HoldArgs struct {
	Key   locks.Key
	Mode  locks.Mode
	Range locks.Range
}

func (c *control) Hold(a HoldArgs, id *int) (err error) {
	*id, err = c.locker.hold(a.Key, a.Mode, a.Range, nil)
	return err
}

func (c *control) Wanted(k locks.Key, m *locks.Mode) error {
	*m = c.locker.Wanted(k)
	return nil
}

func (c *control) Drop(id int, _ *None) error {
	c.locker.drop(id)
	return nil
}

func (c *control) Suspend(yes bool, _ *None) error {
	c.locker.suspend(yes)
	return nil
}

// Refused is how often it was asked for a lock of a tenure that is over.
func (c *control) Refused(_ None, n *int) error {
	c.locker.mu.Lock()
	defer c.locker.mu.Unlock()
	*n = c.locker.refused
	return nil
}

func (c *control) Expel(tell bool, _ *None) error {
	c.locker.expel()
	if tell {
		c.s.Expelled()
	}
	return nil
}

func (c *control) Refresh(k locks.Key, _ *None) error { return c.s.Refresh(k) }
func (c *control) Flush(k locks.Key, _ *None) error   { return c.s.Flush(k) }

// FlushAll is that of the mount.
func (c *control) FlushAll(k locks.Key, _ *None) error { return c.s.FlushAll([]locks.Key{k})[k] }

// Sizes are the sizes of a file that threads were told by answers which count whenever the
// kernel takes them over.
func (c *control) Sizes(k locks.Key, sizes *map[uint32]int64) error {
	*sizes = map[uint32]int64{}
	for _, n := range c.s.fs.tree.ofFile(k.File) {
		n.cacheMu.Lock()
		for a := range n.answers {
			(*sizes)[a.tid] = a.size
		}
		n.cacheMu.Unlock()
	}
	return nil
}

// Bounds is what is known of the sizes that the kernel believes a file to have, the
// thread that makes a READ of it again, and how long this host has made it.
func (c *control) Bounds(k locks.Key, b *[5]int64) error {
	for _, n := range c.s.fs.tree.ofFile(k.File) {
		*b = [5]int64{n.bounds.least.Load(), n.bounds.most.Load(), n.bounds.late.Load(), 0, n.made.size.Load()}
		if x := n.again.Load(); x != nil {
			b[3] = int64(x.tid)
		}
		c.s.fs.tree.unpin(n)
	}
	return nil
}

// Reread is a READ of k that is made again, by a thread that has not gone on.
func (c *control) Reread(k locks.Key, _ *None) error {
	for _, n := range c.s.fs.tree.ofFile(k.File) {
		n.again.Store(newRereading(77, 0, c.s.fs.now()))
		n.bounds.late.Store(3)
		c.s.fs.tree.unpin(n)
	}
	return nil
}

// HoldOpen keeps what is open from being opened anew, or written out.
func (c *control) HoldOpen(yes bool, _ *None) error {
	for _, h := range c.s.fs.handles.all() {
		if yes {
			h.mu.Lock()
		} else {
			h.mu.Unlock()
		}
	}
	return nil
}

func (c *control) Calls(_ None, calls *[]string) error {
	*calls = c.locker.takeCalls()
	return nil
}

func (c *control) Holders(k locks.Key, n *int) error {
	*n = c.locker.holders(k)
	return nil
}

func (c *control) Stats(_ None, s *Stats) error {
	*s = c.s.Stats()
	return nil
}

func (c *control) Late(_ None, w *[]LateWrite) error {
	c.locker.mu.Lock()
	defer c.locker.mu.Unlock()
	*w = c.lates
	return nil
}

// Counts are sizes of the mount's tables.
type Counts struct {
	Nodes, Handles, Dirs, Threads, Descriptors int
	Unprotected, Known                         int
	Dropping                                   int // nodes whose pages are being dropped
	Telling                                    int // see pausing
	Looks, Parked                              int // of watchHolders; requests that wait, with something of a file locked
	Storage                                    Storage
	Dropped                                    bool // what the kernel had while a server was killed
	Unsynced                                   int  // open files that fsync(2) is owed
}

func (c *control) Counts(_ None, n *Counts) error {
	f := c.s.fs
	n.Nodes, n.Handles, n.Dirs = f.tree.size(), f.handles.len(), f.dirs.len()
	f.tree.mu.Lock()
	for _, x := range f.tree.byID {
		if x.dropping() {
			n.Dropping++
		}
		parked, _, _ := x.parking()
		n.Parked += len(parked)
	}
	f.tree.mu.Unlock()
	f.procs.mu.RLock()
	n.Threads = len(f.procs.threads)
	f.procs.mu.RUnlock()
	f.unprotected.mu.Lock()
	n.Unprotected, n.Known = len(f.unprotected.all), len(f.unprotected.known)
	f.unprotected.mu.Unlock()
	fds, err := os.ReadDir("/proc/self/fd")
	n.Descriptors = len(fds)
	n.Storage = f.storage
	for _, h := range f.handles.all() {
		if h.wrote.Load() {
			n.Unsynced++
		}
	}
	n.Dropped = closed(f.conn.serving) && f.redo.dropped != nil && closed(f.redo.dropped)
	n.Looks, n.Telling = int(f.waits.looks.Load()), int(f.pause.telling.Load())
	return err
}

// CPU is the time that the child has computed, in microseconds.
func (c *control) CPU(_ None, us *int64) error { return loopbackControl{}.CPU(None{}, us) }

func (c *control) Unmount(lazy bool, _ *None) error { return c.s.Unmount(lazy) }

func (c *control) Ended(_ None, _ *None) error { return <-c.ended }

// OpenHandles tells how many open files the nodes have.
func (c *control) OpenHandles(_ None, n *int) error {
	t := c.s.fs.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.byID {
		*n += len(x.openHandles())
	}
	return nil
}
