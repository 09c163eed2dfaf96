package rw

import (
	"errors"
	"fmt"
	"maps"

	"github.com/dmxfs/dmxfs/locks"
)

// check verifies that the indexes agree with what they index.
func (cs *claims) check() error {
	waiting, reads, writes := 0, 0, 0
	owned := make(map[locks.OwnerID]int)
	waits := make(map[locks.OwnerID]int)
	for _, t := range cs.tickets {
		switch {
		case !t.held:
			waiting++
			waits[t.owner]++
			if i := cs.waiting.find(t); i >= len(cs.waiting.queue) || cs.waiting.queue[i] != t {
				return fmt.Errorf("ticket %d is not in its place in the queue", t.id)
			}
			continue
		case t.mode == locks.Write:
			writes++
		default:
			reads++
		}
		owned[t.owner]++
	}
	if waiting != len(cs.waiting.queue) || len(owned) != len(cs.held.owners) {
		return fmt.Errorf("%d tickets wait but %d are queued; %d owners but %d trees", waiting, len(cs.waiting.queue), len(owned), len(cs.held.owners))
	}
	if !maps.Equal(waits, cs.waiting.owners) {
		return fmt.Errorf("%v wait by owner, not %v", waits, cs.waiting.owners)
	}
	if nothing.from != nil || nothing.blocker != nil || nothing.blocking != nil || nothing.rank != (rank{}) {
		return fmt.Errorf("what claims share that have nothing was changed: %+v", nothing)
	}
	err := errors.Join(checkTree(cs.held.reads, byMode, reads), checkTree(cs.held.writes, byMode, writes))
	for o, n := range owned {
		err = errors.Join(err, checkTree(cs.held.owners[o], byOwner, n))
	}
	for _, q := range []queue{cs.waiting.queue, cs.owed} {
		for i, c := range q {
			if i > 0 && q[i-1].compare(&c.rank) >= 0 {
				err = errors.Join(err, fmt.Errorf("%v is queued behind %v", &c.rank, &q[i-1].rank))
			}
			if u := c.blocker; u != nil && (c.place >= len(u.blocking) || u.blocking[c.place] != c) {
				err = errors.Join(err, fmt.Errorf("%v is not among those that its blocker blocks", &c.rank))
			}
		}
	}
	return err
}

func checkTree(t *claim, k, n int) error {
	var last *claim
	count := 0
	var err error
	walk(t, k, func(c *claim) bool {
		if last != nil && inOrder(last, c) >= 0 || !c.held {
			err = fmt.Errorf("tree %d: ticket %d is out of place", k, c.id)
		}
		end := c.rng.End
		for _, x := range []*claim{c.links[k].left, c.links[k].right} {
			if x != nil {
				end = max(end, x.links[k].end)
			}
		}
		writes, mixed := false, false
		walk(c, k, func(x *claim) bool {
			writes, mixed = writes || x.mode == locks.Write, mixed || x.owner != c.owner
			return !writes || !mixed
		})
		if writes != c.writes[k] || mixed != c.mixed[k] {
			err = fmt.Errorf("tree %d: ticket %d has writes %v and mixed %v, not %v and %v", k, c.id, c.writes[k], c.mixed[k], writes, mixed)
		}
		if end != c.links[k].end {
			err = fmt.Errorf("tree %d: ticket %d has end %d, not %d", k, c.id, c.links[k].end, end)
		}
		last = c
		count++
		return true
	})
	if count != n {
		err = errors.Join(err, fmt.Errorf("tree %d has %d tickets, not %d", k, count, n))
	}
	return err
}

// denied is hard(c) != nil.
func (cs *claims) denied(c *claim) bool {
	for _, t := range cs.tickets {
		if t.held && t.conflict(c) {
			return true
		}
	}
	return false
}

// blocked is hard(c) != nil || soft(c) != nil.
func (cs *claims) blocked(c *claim) bool {
	if cs.denied(c) {
		return true
	}
	before := cs.waiting.queue
	if c.from == nil {
		before = append(before[:len(before):len(before)], cs.owed...)
	}
	for _, u := range before {
		if u.conflict(c) && u.compare(&c.rank) < 0 && (c.try || !cs.waitsForOwner(u, c)) {
			return true
		}
	}
	return false
}

// waitsForOwner reports whether u conflicts with what the owner of c holds.
func (cs *claims) waitsForOwner(u, c *claim) bool {
	if c.from != nil {
		return c.own.conflicts(u.mode, u.rng)
	}
	for _, t := range cs.tickets {
		if t.held && t.owner == c.owner && u.rng.Overlaps(t.rng) &&
			(u.mode == locks.Write || t.mode == locks.Write) {
			return true
		}
	}
	return false
}
