package registertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Store is the content of the directory of views, now and in the past. Times
// are in any unit, and do not decrease from call to call that changes
// something. It is not safe for concurrent use.
type Store struct {
	// Newest is the greatest epoch that was ever linked.
	Newest locks.Epoch
	// Relinked counts links of names that had been removed before: the store
	// accepts them, as a file system does.
	Relinked int
	// Away, if not nil, tells the views whose names are on a server that is down:
	// listings leave them out, and they cannot be linked.
	Away func(e locks.Epoch) bool
	// Unseeable, if not nil, is whether a look finds out that a view which is Away is not
	// just missing; else each does.
	Unseeable func() bool

	views   []*file[locks.Epoch, *member.View]
	asks    []*file[string, member.Challenge]
	answers []*file[[2]string, member.Answer]
	damaged map[locks.Epoch]error
}

// file is a name and what it had from one time until another.
type file[K comparable, V any] struct {
	name     K
	data     V
	from, to int64 // to is always for what is there now
}

const always = int64(1) << 62

func find[K comparable, V any](files []*file[K, V], name K) *file[K, V] {
	for _, f := range files {
		if f.name == name && f.to == always {
			return f
		}
	}
	return nil
}

func put[K comparable, V any](files []*file[K, V], now int64, name K, data V) []*file[K, V] {
	if f := find(files, name); f != nil {
		f.to = now
	}
	return append(files, &file[K, V]{name, data, now, always})
}

// ErrAway is what the storage says of a name on a server that is down.
var ErrAway = errors.New("transport endpoint is not connected")

func (s *Store) away(e locks.Epoch) bool { return s.Away != nil && s.Away(e) }

// Unseen is the error of a look that has seen l, if a view that it should show is on
// a server that is down; see [member.LookOp].
func (s *Store) Unseen(op member.LookOp, l member.Look) error {
	if l.Newest < op.Linked && s.away(op.Linked) && (s.Unseeable == nil || s.Unseeable()) {
		return fmt.Errorf("view %d: %w", op.Linked, ErrAway)
	}
	return nil
}

// Link gives v its name, or fails with [member.ErrExists].
func (s *Store) Link(now int64, v *member.View) error {
	if s.away(v.Epoch) {
		return fmt.Errorf("link %s: %w", member.ViewName(v.Epoch), ErrAway)
	}
	for _, f := range s.views {
		if f.name == v.Epoch && f.to == always {
			return fmt.Errorf("link %s: %w", member.ViewName(v.Epoch), member.ErrExists)
		}
	}
	if v.Epoch <= s.Newest {
		s.Relinked++
	}
	s.Newest = max(s.Newest, v.Epoch)
	s.views = append(s.views, &file[locks.Epoch, *member.View]{v.Epoch, v, now, always})
	return nil
}

// Ask, Answer and Unask are as in member.AskOp, AnswerOp and UnaskOp.
func (s *Store) Ask(now int64, c member.Challenge) {
	s.asks = put(s.asks, now, asker(c.Node, c.Own), c)
}

func (s *Store) Answer(now int64, a member.Answer) {
	s.answers = put(s.answers, now, [2]string{asker(a.To, a.Own), a.Node.Peer}, a)
}

func (s *Store) Unask(now int64, op member.UnaskOp) {
	name := asker(op.Node, op.Own)
	if f := find(s.asks, name); f != nil {
		f.to = now
	}
	for _, f := range s.answers {
		if f.name[0] == name && f.to == always {
			f.to = now
		}
	}
}

// asker is what an ask has its name from.
func asker(n member.Node, own bool) string {
	if own {
		return n.String()
	}
	return n.Peer
}

// Prune removes the views below e, but never the newest.
func (s *Store) Prune(now int64, e locks.Epoch) {
	for _, f := range s.views {
		if f.name < e && f.name < s.Newest && f.to == always {
			f.to = now
		}
	}
}

// Remove removes the view of epoch e, whatever it is. No client does that: it
// is what a register does whose link replaces what is there.
func (s *Store) Remove(now int64, e locks.Epoch) {
	if f := find(s.views, e); f != nil {
		f.to = now
	}
}

// Damage makes the view of epoch e unreadable, with this error, for all looks
// from now on; nil mends it.
func (s *Store) Damage(e locks.Epoch, err error) {
	if s.damaged == nil {
		s.damaged = map[locks.Epoch]error{}
	}
	s.damaged[e] = err
}

// Damaged reports whether the view of epoch e is unreadable.
func (s *Store) Damaged(e locks.Epoch) bool { return s.damaged[e] != nil }

// Clear removes everything, as an admin may.
func (s *Store) Clear(now int64) {
	for _, f := range s.views {
		f.to = min(f.to, now)
	}
	for _, f := range s.asks {
		f.to = min(f.to, now)
	}
	for _, f := range s.answers {
		f.to = min(f.to, now)
	}
}

// Forget removes what only looks at times before at would see.
func (s *Store) Forget(at int64) {
	s.views = slices.DeleteFunc(s.views, func(f *file[locks.Epoch, *member.View]) bool { return f.to < at })
	s.asks = slices.DeleteFunc(s.asks, func(f *file[string, member.Challenge]) bool { return f.to < at })
	s.answers = slices.DeleteFunc(s.answers, func(f *file[[2]string, member.Answer]) bool { return f.to < at })
}

// View is the view of epoch e as of now, or nil.
func (s *Store) View(e locks.Epoch) *member.View {
	if f := find(s.views, e); f != nil {
		return f.data
	}
	return nil
}

// Look is what a look sees whose listing is as of the time at. Began is left
// to the caller.
func (s *Store) Look(at int64, op member.LookOp) member.Look {
	var l member.Look
	var newest, before *member.View
	for _, f := range s.views {
		if f.from > at || f.to <= at || s.away(f.name) {
			continue
		}
		if f.name > l.Newest {
			l.Newest, newest = f.name, f.data
		}
		l.Known = l.Known || f.name == op.Known
	}
	if l.Newest > op.Known {
		l.View = newest
		if err := s.damaged[l.Newest]; err != nil {
			l.View = nil
			l.Bad = fmt.Errorf("view %d: %w", l.Newest, err)
			for _, f := range s.views {
				if f.name == l.Newest-1 && f.from <= at && at < f.to {
					before = f.data
				}
			}
			if before != nil && before.Epoch > op.Known && s.damaged[before.Epoch] == nil {
				l.View = before
			}
		}
	}
	if op.Asks {
		for _, f := range s.asks {
			if f.from <= at && at < f.to {
				l.Asks = append(l.Asks, f.data)
			}
		}
	}
	if !op.For.IsZero() {
		for _, f := range s.answers {
			if f.from <= at && at < f.to && f.data.To == op.For {
				l.Answers = append(l.Answers, f.data)
			}
		}
	}
	return l
}

// Do carries an operation other than a look out.
func (s *Store) Do(now int64, op member.Op) error {
	switch op := op.(type) {
	case member.LinkOp:
		return s.Link(now, op.View)
	case member.AskOp:
		s.Ask(now, op.Challenge)
	case member.AnswerOp:
		s.Answer(now, op.Answer)
	case member.UnaskOp:
		s.Unask(now, op)
	case member.PruneOp:
		s.Prune(now, op.Below)
	default:
		panic(fmt.Sprintf("not an operation that changes something: %T", op))
	}
	return nil
}
