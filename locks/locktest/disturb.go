package locktest

import (
	"github.com/dmxfs/dmxfs/locks"
)

// disturb is, now and then, one of the disturbances of the plan.
func (s *sim) disturb() (Op, bool) {
	if s.rng.IntN(4) != 0 {
		return Op{}, false
	}
	pick := func(left *int, ops []Op) (Op, bool) {
		if *left == 0 || len(ops) == 0 {
			return Op{}, false
		}
		*left--
		return ops[s.rng.IntN(len(ops))], true
	}
	switch s.rng.IntN(8) {
	case 0:
		return pick(&s.cancels, s.waiters(opCancel))
	case 1:
		return pick(&s.overtakes, s.waiters(opOvertake))
	case 2:
		return pick(&s.expires, s.engines(opExpire, func(n *node) bool { return n.machine != nil }))
	case 3:
		return pick(&s.replaces, s.rewrites())
	case 4:
		if s.drops == 0 {
			return Op{}, false
		}
		return pick(&s.drops, s.engines(opDrop, func(n *node) bool {
			return n.machine != nil && !n.between() && n.machine.Idle()
		}))
	case 5:
		if s.rng.IntN(2) == 0 {
			s.suspends++ // a resume is free
			return pick(&s.suspends, s.engines(opResume, func(n *node) bool { return n.suspended }))
		}
		return pick(&s.suspends, s.engines(opSuspend, func(n *node) bool { return !n.suspended }))
	case 6:
		return pick(&s.epochs, s.newView())
	default:
		var ops []Op
		now, late := s.deliveries()
		for _, o := range append(now, late...) {
			o.Dup = true
			ops = append(ops, o)
		}
		return pick(&s.dups, ops)
	}
}

// engines are ops for the nodes for which ok is true.
func (s *sim) engines(kind string, ok func(*node) bool) []Op {
	var ops []Op
	for _, n := range s.w.nodes {
		if !n.dead && n.epoch > 0 && ok(n) {
			ops = append(ops, Op{Kind: kind, Node: n.index})
		}
	}
	return ops
}

// waiters are ops for the tickets that wait; after a cancel comes, perhaps,
// the same request again.
func (s *sim) waiters(kind string) []Op {
	var ops []Op
	for _, t := range s.w.oracle.tickets {
		if t.status == waiting {
			ops = append(ops, Op{Kind: kind, Node: t.node.index, Ticket: locks.Ticket{ID: t.ID}})
		}
		if kind == opCancel && !t.stamp.IsZero() && s.rng.IntN(2) == 0 {
			again := t.Ticket
			again.ID = s.id()
			ops = append(ops, Op{Kind: opAcquire, Node: t.node.index, Ticket: again, As: t.ID})
		}
	}
	return ops
}

// rewrites are replacements of what one owner holds by parts of it.
func (s *sim) rewrites() []Op {
	var ops []Op
	for _, t := range s.w.oracle.tickets {
		if t.status != held {
			continue
		}
		o := Op{Kind: opReplace, Node: t.node.index, Old: []locks.TicketID{t.ID}}
		mode := t.Mode
		if s.rng.IntN(2) == 0 {
			mode = locks.Read
		}
		for _, u := range s.w.oracle.tickets { // together with another
			if u != t && u.status == held && u.node == t.node && u.Owner == t.Owner && s.rng.IntN(2) == 0 {
				o.Old = append(o.Old, u.ID)
				if !u.Range.Overlaps(t.Range) {
					o.Parts = append(o.Parts, locks.Part{ID: s.id(), Mode: u.Mode, Range: u.Range})
				}
				break
			}
		}
		r := t.Range
		cut := r.Start + s.rng.Uint64N(r.End-r.Start)
		for _, p := range []locks.Range{{Start: r.Start, End: cut}, {Start: cut, End: r.End}} {
			if !p.Empty() && s.rng.IntN(4) != 0 {
				id := t.ID
				if p.Start != r.Start {
					id = s.id()
				}
				o.Parts = append(o.Parts, locks.Part{ID: id, Mode: mode, Range: p})
				if s.rng.IntN(3) == 0 {
					mode = locks.Read
				}
			}
		}
		ops = append(ops, o)
	}
	return ops
}

// newView is a view without some members and with some new ones.
func (s *sim) newView() []Op {
	var alive []int
	for _, n := range s.w.nodes {
		if !n.dead && s.w.member(n) {
			alive = append(alive, n.index)
		}
	}
	o := Op{Kind: opView}
	for _, i := range alive {
		if len(alive) == 1 || s.rng.IntN(4) != 0 {
			o.View = append(o.View, i)
		}
	}
	if s.rng.IntN(2) == 0 && len(s.w.nodes) < 12 {
		o.View = append(o.View, len(s.w.nodes))
		s.left = append(s.left, s.rng.IntN(3))
	}
	if len(o.View) == 0 {
		return nil
	}
	return []Op{o}
}
