package locktest

import (
	"fmt"
	"math"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// answers checks what the machine of n says of who holds what.
func (or *oracle) answers(w *world, n *node) error {
	if n.machine == nil || n.between() || n.dead {
		return nil
	}
	for _, u := range or.tickets {
		if u.status != held || u.node == n || u.node.between() || u.node.epoch != n.epoch {
			continue
		}
		for _, m := range []locks.Mode{locks.Read, locks.Write} {
			against := &ticket{Ticket: locks.Ticket{Mode: m, Range: u.Range}, node: n}
			if conflict(w.alg, against, u) && !slices.Contains(n.machine.Suspects(m, u.Range), u.node.id) {
				return fmt.Errorf("%s does not suspect %v of standing against %v", n.id, u, m)
			}
		}
	}
	for _, t := range or.tickets {
		if t.status != waiting || t.node != n {
			continue
		}
		local, _ := n.machine.Blockers(t.ID, math.MaxInt)
		for _, u := range or.tickets {
			if u.node == n && u.status == held && conflict(w.alg, t, u) != slices.Contains(local, u.ID) {
				return fmt.Errorf("%v is said to wait for tickets %v here; %v", t, local, u)
			}
		}
	}
	return nil
}

// asked checks that a write has asked whoever holds something against it.
func (or *oracle) asked(w *world, t *ticket) error {
	if t.Mode != locks.Write || t.Try || !w.opt.AsksHolders {
		return nil
	}
	_, remote := t.node.machine.Blockers(t.ID, 0)
	for _, u := range or.tickets {
		if u.status == held && u.node != t.node && conflict(w.alg, t, u) && !slices.Contains(remote, u.node.id) {
			return fmt.Errorf("%v waits for %v, but is said to wait for %v only", t, u, remote)
		}
	}
	return nil
}

// idle is an error if a ticket waits without cause while nothing is under way.
func (or *oracle) idle(w *world) error {
	or.recent = slices.DeleteFunc(slices.Clone(or.tickets), func(t *ticket) bool { return t.status > held })
	for _, t := range or.tickets {
		if t.overtook > 0 && t.told < t.overtook {
			t.told = or.now
		}
	}
	for _, t := range or.tickets {
		if t.status != waiting || t.node.suspended {
			continue
		}
		if t.Try && !or.anySuspended(w) {
			return fmt.Errorf("the try %v waits with nothing under way", t)
		}
		if !or.cause(w, t) {
			return fmt.Errorf("%v waits with nothing under way and nothing against it", t)
		}
		if err := or.asked(w, t); err != nil {
			return err
		}
	}
	return nil
}

func (or *oracle) anySuspended(w *world) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.dead && n.suspended })
}

// cause reports whether t has reason to wait.
func (or *oracle) cause(w *world, t *ticket) bool {
	for _, u := range or.tickets {
		if u == t || u.status > held || !conflict(w.alg, t, u) {
			continue
		}
		if u.status == held {
			return true
		}
		if w.opt.Overtakes && !u.Try && t.overtook > 0 && (u.overtook == 0 || u.told < t.overtook) {
			continue
		}
		if w.opt.Before == nil {
			if or.connected(w, t) {
				return true
			}
		} else if w.opt.Before(u.node.machine, u.ID, t.node.machine, t.ID) &&
			(t.Try || !or.waitsFor(w, u, t)) {
			return true
		}
	}
	return false
}

// waitsFor reports whether u waits for something that the owner of t holds.
func (or *oracle) waitsFor(w *world, u, t *ticket) bool {
	return slices.ContainsFunc(or.tickets, func(x *ticket) bool {
		return x.status == held && x.node == t.node && x.Owner == t.Owner && conflict(w.alg, u, x)
	})
}

// connected reports whether conflicts lead from t to a ticket that is held, or
// to one that may not enter.
func (or *oracle) connected(w *world, t *ticket) bool {
	seen := map[*ticket]bool{t: true}
	for work := []*ticket{t}; len(work) > 0; work = work[1:] {
		for _, u := range or.tickets {
			if seen[u] || u.status > held || !conflict(w.alg, work[0], u) {
				continue
			}
			if u.status == held || u.node.suspended {
				return true
			}
			seen[u] = true
			work = append(work, u)
		}
	}
	return false
}
