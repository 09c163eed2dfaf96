package rw

import (
	"errors"
	"fmt"
	"maps"

	"dmxfs/locks"
)

// Check verifies what one node can see of the invariants in doc.go, that the
// indexes agree with what they index, and that pump has left nothing undone.
// All of it by the definitions, in the plainest way.
func (m *machine) Check() error {
	return errors.Join(m.checkPermissions(), m.checkIndexes(), m.checkPumped())
}

func (m *machine) checkPermissions() error {
	for _, p := range m.peers {
		if !p.auth.Valid() || !p.given.Valid() {
			return fmt.Errorf("%s: malformed sets %v, %v", p.id, p.auth, p.given)
		}
		if p.auth.Meets(p.given) {
			return fmt.Errorf("I2: auth %v and given %v of %s meet", p.auth, p.given, p.id)
		}
		for _, t := range m.tickets {
			if !t.held {
				continue
			}
			if t.mode == locks.Write && !p.auth.Contains(t.rng) {
				return fmt.Errorf("I3: ticket %d writes %v, but auth of %s is %v", t.id, t.rng, p.id, p.auth)
			}
			if t.mode == locks.Read && p.given.Overlaps(t.rng) {
				return fmt.Errorf("I4: ticket %d reads %v, but %v is given to %s", t.id, t.rng, p.given, p.id)
			}
		}
	}
	return nil
}

func (m *machine) checkIndexes() error {
	waiting, reads, writes := 0, 0, 0
	owned := make(map[locks.OwnerID]int)
	waits := make(map[locks.OwnerID]int)
	for _, t := range m.tickets {
		switch {
		case !t.held:
			waiting++
			waits[t.owner]++
			if i := m.waiting.find(t); i >= len(m.waiting) || m.waiting[i] != t {
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
	if waiting != len(m.waiting) || len(owned) != len(m.owners) {
		return fmt.Errorf("%d tickets wait but %d are queued; %d owners but %d trees", waiting, len(m.waiting), len(owned), len(m.owners))
	}
	if !maps.Equal(waits, m.waits) {
		return fmt.Errorf("%v wait by owner, not %v", waits, m.waits)
	}
	err := errors.Join(checkTree(m.reads, byMode, reads), checkTree(m.writes, byMode, writes))
	for o, n := range owned {
		err = errors.Join(err, checkTree(m.owners[o], byOwner, n))
	}
	for _, q := range []queue{m.waiting, m.owed} {
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
		if writes != c.links[k].writes || mixed != c.links[k].mixed {
			err = fmt.Errorf("tree %d: ticket %d has writes %v and mixed %v, not %v and %v", k, c.id, c.links[k].writes, c.links[k].mixed, writes, mixed)
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

// checkPumped looks at every claim by the definition of pump.
func (m *machine) checkPumped() error {
	if m.frozen {
		return nil
	}
	if len(m.lookOwed)+len(m.lookWaiting)+len(m.changed) > 0 {
		return fmt.Errorf("a turn ended with something to look at")
	}
	for _, q := range m.owed {
		if q.try {
			return fmt.Errorf("the try %v is not answered", &q.rank)
		}
		if !m.blocked(q) {
			return fmt.Errorf("%v of %s could be answered", q.tag, q.from.id)
		}
	}
	for _, t := range m.waiting {
		if t.try && m.denied(t) {
			return fmt.Errorf("ticket %d should have been denied", t.id)
		}
		blocked, complete := m.blocked(t), true
		for _, p := range m.others() {
			if !p.lacks(t.mode, t.rng) {
				continue
			}
			complete = false
			if blocked && (t.mode == locks.Read || t.try) {
				continue
			}
			if !p.served(t, m.holds(t)) {
				return fmt.Errorf("ticket %d has not asked %s", t.id, p.id)
			}
		}
		if !blocked && complete && !m.barred {
			return fmt.Errorf("ticket %d could be granted", t.id)
		}
	}
	return nil
}

// denied is hard(c) != nil.
func (m *machine) denied(c *claim) bool {
	for _, t := range m.tickets {
		if t.held && t.conflict(c) {
			return true
		}
	}
	return false
}

// blocked is hard(c) != nil || soft(c) != nil.
func (m *machine) blocked(c *claim) bool {
	if m.denied(c) {
		return true
	}
	before := m.waiting
	if c.from == nil {
		before = append(before[:len(before):len(before)], m.owed...)
	}
	for _, u := range before {
		if u.conflict(c) && u.compare(&c.rank) < 0 && (c.try || !m.waitsForOwner(u, c)) {
			return true
		}
	}
	return false
}

// waitsForOwner reports whether u conflicts with what the owner of c holds.
func (m *machine) waitsForOwner(u, c *claim) bool {
	if c.from != nil {
		return c.own.conflicts(u.mode, u.rng)
	}
	for _, t := range m.tickets {
		if t.held && t.owner == c.owner && u.rng.Overlaps(t.rng) &&
			(u.mode == locks.Write || t.mode == locks.Write) {
			return true
		}
	}
	return false
}
