package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// Snapshot is a cluster at one moment, as one node sees it.
type Snapshot struct {
	At      time.Time // when the answers were there
	Took    time.Duration
	Status  Status
	Peers   Peers
	Locks   []Lock
	Missing []string // members whose locks are not known
	// Graph is who waits for whom; never nil.
	Graph *waitgraph.Graph
	Err   error // what could not be asked; the rest is as it was last

	search []string // of each lock, what is searched
}

// Take asks a source for everything at once. A member that does not answer
// within that time is among the missing. What can't be had is as in last, which
// may be nil.
func Take(ctx context.Context, from Source, last *Snapshot, within time.Duration) *Snapshot {
	began := time.Now()
	s := &Snapshot{Graph: &waitgraph.Graph{}}
	if last != nil {
		s.Status, s.Peers, s.Locks, s.Missing, s.Graph = last.Status, last.Peers, last.Locks, last.Missing, last.Graph
	}
	var status, peers, locks, waits error
	var wg sync.WaitGroup
	wg.Go(func() {
		if v, err := from.Status(ctx); err != nil {
			status = fmt.Errorf("status: %w", err)
		} else {
			s.Status = v
		}
	})
	wg.Go(func() {
		if v, err := from.Peers(ctx); err != nil {
			peers = fmt.Errorf("members: %w", err)
		} else {
			s.Peers = v
		}
	})
	wg.Go(func() {
		if v, err := from.Locks(ctx, within); err != nil {
			locks = fmt.Errorf("locks: %w", err)
		} else {
			s.Locks, s.Missing = v.Locks, v.Missing
		}
	})
	wg.Go(func() {
		if v, err := from.Waits(ctx, within); err != nil {
			waits = fmt.Errorf("waits: %w", err)
		} else {
			s.Graph = v
		}
	})
	wg.Wait()
	s.Err = errors.Join(status, peers, locks, waits)
	s.At = time.Now()
	s.Took = s.At.Sub(began)
	s.index()
	return s
}

func (s *Snapshot) index() {
	s.search = make([]string, len(s.Locks))
	for i := range s.Locks {
		l := &s.Locks[i]
		s.search[i] = strings.ToLower(fmt.Sprintf("%s\n%s\n%s\n%s\n%s\n%d\n%s\n%s\n%s", l.Path, l.Host, l.Command, l.Class, l.State, l.PID, l.Node, l.Algorithm, l.File))
	}
}

// Silent are the members that do not answer, and those that were expelled lately.
func (s *Snapshot) Silent() []waitgraph.Member { return s.Graph.Silent() }

// Same reports whether two snapshots say the same to people, but for times that
// only grow. long is the wait from which on a lock stands out.
func Same(a, b *Snapshot, long time.Duration) bool {
	if a == nil || b == nil {
		return a == b
	}
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	x, y := a.Status, b.Status
	if x.State != y.State || x.Epoch != y.Epoch || x.PID != y.PID || !slices.Equal(x.Problems, y.Problems) || !slices.EqualFunc(a.Silent(), b.Silent(), func(m, n waitgraph.Member) bool { return m.ID == n.ID && m.State == n.State }) {
		return false
	}
	peer := func(m, n Peer) bool { return m.ID == n.ID && m.State == n.State && m.Connected == n.Connected }
	if !slices.EqualFunc(a.Peers.Members, b.Peers.Members, peer) || len(a.Peers.Gone) != len(b.Peers.Gone) ||
		len(a.Peers.Joining) != len(b.Peers.Joining) || !slices.Equal(a.Peers.Revoked, b.Peers.Revoked) {
		return false
	}
	if !slices.EqualFunc(a.Graph.Waits, b.Graph.Waits, func(v, w waitgraph.Wait) bool {
		return v.Process == w.Process && v.Request == w.Request && v.InCycle == w.InCycle && slices.EqualFunc(v.For, w.For, func(x, y waitgraph.Blocker) bool {
			return x.Process == y.Process && x.Kind == y.Kind && x.Node == y.Node
		})
	}) {
		return false
	}
	return slices.EqualFunc(a.Locks, b.Locks, func(l, m Lock) bool {
		return l.Same(m) && l.Path == m.Path && l.State == m.State && l.Mode == m.Mode && l.End == m.End && l.Use == m.Use && l.Since.Equal(m.Since) &&
			slices.Equal(l.WaitsFor, m.WaitsFor) && (l.State != Waiting || l.Long(a.At, long) == m.Long(b.At, long))
	})
}

// None is a snapshot of nothing, for the reason err.
func None(at time.Time, err error) *Snapshot {
	return &Snapshot{At: at, Graph: &waitgraph.Graph{}, Err: err}
}
