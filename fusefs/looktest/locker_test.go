package looktest

import (
	"slices"
	"sync"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/locks"
)

// service is a lock service that several mounts ask. It does for them what an
// engine does: has the data written out and looked at anew when a lock goes from
// one to another, and tells who has one that others want it.
type service struct {
	mu      sync.Mutex
	changed chan struct{}
	mounts  []*fusefs.Server
	held    []heldLock
	waiting []heldLock
	writer  map[locks.Key]int    // who had the key for writing last
	writes  map[locks.Key]uint64 // how often it went to another one
	seen    map[int]map[locks.Key]uint64
}

type heldLock struct {
	node   int
	key    locks.Key
	owner  locks.OwnerID
	handle locks.HandleID
	mode   locks.Mode
	rg     locks.Range
}

func newService(nodes int) *service {
	s := &service{changed: make(chan struct{}), mounts: make([]*fusefs.Server, nodes),
		writer: map[locks.Key]int{}, writes: map[locks.Key]uint64{}, seen: map[int]map[locks.Key]uint64{}}
	for i := range nodes {
		s.seen[i] = map[locks.Key]uint64{}
	}
	return s
}

func (s *service) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (x *heldLock) conflicts(o *heldLock) bool {
	return x.key == o.key && (x.node != o.node || x.owner != o.owner) &&
		(x.mode == locks.Write || o.mode == locks.Write) && x.rg.Overlaps(o.rg)
}

// node is the service as one mount sees it.
type node struct {
	*service
	id int
}

func (n *node) Lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	want := heldLock{n.id, r.Key, r.Owner, r.Handle, r.Mode, r.Range}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, want)
	defer func() {
		if i := slices.Index(n.waiting, want); i >= 0 {
			n.waiting = slices.Delete(n.waiting, i, i+1)
		}
	}()
	for told := false; ; told = true {
		i := slices.IndexFunc(n.held, func(h heldLock) bool { return h.conflicts(&want) })
		if i < 0 {
			break
		}
		if r.Try {
			return locks.Grant{}, locks.ErrWouldBlock
		}
		holder, changed := n.mounts[n.held[i].node], n.changed
		n.mu.Unlock()
		r.WillWait()
		if !told {
			holder.Wanted(r.Key)
		}
		select {
		case <-changed:
			n.mu.Lock()
		case <-cancel:
			n.mu.Lock()
			return locks.Grant{}, locks.ErrInterrupted
		}
	}
	if last, ok := n.writer[r.Key]; ok && last != n.id && n.seen[n.id][r.Key] != n.writes[r.Key] {
		n.seen[n.id][r.Key] = n.writes[r.Key]
		n.held = append(n.held, want) // nobody else gets it meanwhile
		if !r.Blind {
			n.mu.Unlock()
			r.WillWait()
			err := n.mounts[last].Flush(r.Key)
			if err == nil {
				err = n.mounts[n.id].Refresh(r.Key)
			}
			n.mu.Lock()
			if err != nil {
				n.drop(func(h *heldLock) bool { return *h == want })
				return locks.Grant{}, err
			}
		}
	} else {
		n.held = append(n.held, want)
	}
	// In the other classes a new lock of an owner takes the place of its old one.
	if i := len(n.held) - 1; r.Key.Class != locks.Open {
		for j := i - 1; j >= 0; j-- {
			if h := &n.held[j]; h.node == n.id && h.key == r.Key && h.owner == r.Owner {
				n.held = slices.Delete(n.held, j, j+1)
			}
		}
	}
	if r.Mode == locks.Write {
		if last, ok := n.writer[r.Key]; !ok || last != n.id {
			n.writes[r.Key]++
		}
		n.writer[r.Key] = n.id
		n.seen[n.id][r.Key] = n.writes[r.Key]
	}
	return locks.Grant{Tenure: 1}, nil
}

// drop gives up what is held of this node that which selects. REQUIRES: mu held.
func (n *node) drop(which func(*heldLock) bool) bool {
	before := len(n.held)
	n.held = slices.DeleteFunc(n.held, func(h heldLock) bool { return h.node == n.id && which(&h) })
	n.wake()
	return len(n.held) < before
}

func (n *node) unlock(which func(*heldLock) bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.drop(which)
}

func (n *node) LockNow(*locks.Request) (locks.Grant, bool) { return locks.Grant{}, false }

func (n *node) Unlock(k locks.Key, o locks.OwnerID, _ locks.Range) bool {
	return n.unlock(func(h *heldLock) bool { return h.key == k && h.owner == o })
}

func (n *node) UnlockOwner(k locks.Key, o locks.OwnerID) { n.Unlock(k, o, locks.Whole) }

func (n *node) UnlockHandle(k locks.Key, id locks.HandleID, _ string) {
	n.unlock(func(h *heldLock) bool { return h.key == k && h.handle == id })
}

func (n *node) Wanted(k locks.Key) locks.Mode {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.held {
		for _, w := range n.waiting {
			if h.node == n.id && w.node != n.id && w.key == k && h.conflicts(&w) {
				return w.mode
			}
		}
	}
	return 0
}

func (n *node) Test(<-chan struct{}, *locks.Request) (*locks.Conflict, error) { return nil, nil }
func (n *node) Closing(locks.Key, locks.HandleID)                             {}
func (n *node) Share(locks.Key, locks.HandleID, string) bool                  { return false }
func (n *node) Moment() locks.Moment                                          { return 1 }
func (n *node) Tenure() locks.Tenure                                          { return 1 }
func (n *node) Admit(<-chan struct{}, locks.Tenure) error                     { return nil }

// keeper is the mount that keeps names, or -1.
func (s *service) keeper() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.key.File == fusefs.LeasePath && h.mode == locks.Write {
			return h.node
		}
	}
	return -1
}
