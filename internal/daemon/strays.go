package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// strays are hosts that were members and are none any more, as far as this daemon knows, or
// the one before it did whose mount it has. Such a host may be cut off, and its programs go on
// with what needs no lock; nobody can ask it what they change. It is none any more when it is
// back, since it remembers itself what it has done.
type strays struct {
	memory *recent.Memory // which keeps them for the next daemon
	log    *slog.Logger

	mu sync.Mutex
	k  strayNote
}

// strayNote is what is kept.
type strayNote struct {
	Since   int64            `json:"since"` // who is gone since then is known; as recent.Now
	Epoch   locks.Epoch      `json:"epoch"`
	Members map[string]bool  `json:"members"` // of that view
	Gone    map[string]stray `json:"gone"`
}

// stray is a host that is gone.
type stray struct {
	At   int64 `json:"at"`   // when that was known
	Left bool  `json:"left"` // it has said so, which alone does not mean that it has no mount
}

// newStrays goes on with what memory has.
func newStrays(memory *recent.Memory, log *slog.Logger) *strays {
	s := &strays{memory: memory, log: log}
	b := memory.Note()
	if b != nil {
		if err := json.Unmarshal(b, &s.k); err != nil {
			log.Warn("which hosts the daemon that was killed had missed cannot be read", "err", err)
			b = nil
		}
	}
	if b == nil {
		s.k = strayNote{Since: recent.Now()}
	}
	if s.k.Gone == nil {
		s.k.Gone = map[string]stray{}
	}
	return s
}

// begin takes the next view of which this node is a member.
func (s *strays) begin(v *member.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := recent.Now()
	gone := maps.Clone(s.k.Members)
	if gone == nil {
		gone = map[string]bool{}
	}
	left := map[string]bool{}
	for _, d := range v.Dropped {
		gone[d.Peer] = true
		left[d.Peer] = v.Reason == member.ReasonLeave && d.Why == "left"
	}
	next := s.k.Epoch == 0 || v.Epoch == s.k.Epoch+1
	for peer := range gone {
		if _, ok := s.k.Gone[peer]; !ok || s.k.Members[peer] {
			s.k.Gone[peer] = stray{now, next && left[peer]}
		}
	}
	s.k.Epoch, s.k.Members = v.Epoch, map[string]bool{}
	for i := range v.Members {
		peer := v.Members[i].Peer
		s.k.Members[peer] = true
		delete(s.k.Gone, peer)
	}
	s.keep()
}

// forget has a host be no stray any more: an admin knows that it is gone.
func (s *strays) forget(peer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.k.Members[peer] {
		return fmt.Errorf("%s is a member", peer)
	}
	delete(s.k.Gone, peer)
	s.keep()
	return nil
}

// mostStrays is how many are kept. Of more nothing is known any more.
const mostStrays = 200

// REQUIRES: mu held.
func (s *strays) keep() {
	if len(s.k.Gone) > mostStrays {
		s.k.Gone, s.k.Since = map[string]stray{}, recent.Now()
		s.log.Warn("more hosts are missed than are remembered")
	}
	b, err := json.Marshal(&s.k)
	if err == nil {
		err = s.memory.SetNote(b)
	}
	if err != nil {
		s.log.Error("which hosts are missed cannot be kept", "err", err)
	}
}

// now is what is known.
func (s *strays) now() strayNote {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.k
	k.Gone, k.Members = maps.Clone(k.Gone), nil
	return k
}

// changesAnswer is the answer to the question what a host has changed.
type changesAnswer struct {
	Changes *recent.Answer `json:"changes"`
	Strays  strayNote      `json:"strays"`
}

// check is an error if h may not know all hosts that can have changed something since t,
// beside the members of v, or knows one. records are the peers that have one.
func (k *strayNote) check(v *member.View, h *recent.Host, t int64, records map[string]bool) error {
	if k.Epoch != v.Epoch {
		return fmt.Errorf("a member is at view %d, and not at %d", k.Epoch, v.Epoch)
	}
	if h.Latest(k.Since) >= t {
		return fmt.Errorf("a member does not know yet who else may be there")
	}
	for peer, x := range k.Gone {
		if v.HasPeer(peer) {
			continue
		}
		if !x.Left || records[peer] || h.Latest(x.At) >= t {
			return fmt.Errorf("the host %s may be cut off, and its programs go on without locks", peer)
		}
	}
	return nil
}
