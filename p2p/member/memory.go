package member

import "github.com/dmxfs/dmxfs/locks"

// The storage can be restored from a backup or a snapshot, with the views as
// they were then. Epochs, and with them fencing tokens, would be given for a
// second time. So every node keeps the newest epoch that it has known, and does
// not join below.

// memory is what this node keeps over the end of the process, in [Saved].
type memory struct {
	*base
	saved Saved
	began int64 // when this process started
}

func (s *memory) start(saved Saved) { s.saved, s.began = saved, s.now }

func (s *memory) save(to Saved) {
	if to != s.saved {
		s.saved = to
		s.out.Save = &to
	}
}

// linked keeps the epoch of a view that is known to be linked.
func (s *memory) linked(e locks.Epoch) {
	if to := s.saved; e > to.Epoch {
		to.Epoch = e
		s.save(to)
	}
}

// pause is how long a node that was dropped waits before it joins again.
func (s *memory) pause() int64 { return max(s.saved.Backoff, s.p.BackoffMin) }

// joined: this node is in the view. Should it be dropped soon it waits twice as
// long as the last time.
func (s *memory) joined() {
	s.save(Saved{Was: true, Backoff: min(max(2*s.saved.Backoff, s.p.BackoffMin), s.p.BackoffMax), Epoch: s.saved.Epoch})
}

// served forgets the back-off of a node that has been a member since then for
// long enough.
func (s *memory) served(since int64) {
	if s.saved.Backoff != 0 && s.now-since >= s.p.Served {
		s.save(Saved{Was: true, Epoch: s.saved.Epoch})
	}
}

// dropped: the others went on without this node.
func (s *memory) dropped() {
	if !s.saved.Was {
		s.save(Saved{Was: true, Backoff: s.saved.Backoff, Epoch: s.saved.Epoch})
	}
}

// left: this node has left as wished, and is as one that starts for the first time.
func (s *memory) left() { s.save(Saved{Epoch: s.saved.Epoch}) }
