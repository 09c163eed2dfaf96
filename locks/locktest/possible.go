package locktest

import (
	"github.com/dmxfs/dmxfs/locks"
)

// possible are the ops that can be done next.
func (x *explorer) possible(p *position) []Op {
	w := p.w
	var ops []Op
	add := func(o Op) { ops = append(ops, o) }
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		if w.member(n) && n.frozen != w.epoch {
			add(Op{Kind: opFreeze, Node: n.index})
		} else if w.restorable(n) {
			add(Op{Kind: opRestore, Node: n.index})
		}
		if n.epoch == 0 {
			continue
		}
		if n.index < len(x.script) && p.next[n.index] < len(x.script[n.index]) {
			add(Op{Kind: opAcquire, Node: n.index, Ticket: x.script[n.index][p.next[n.index]]})
		}
		if n.suspended {
			add(Op{Kind: opResume, Node: n.index})
		} else if p.left.Suspends > 0 {
			add(Op{Kind: opSuspend, Node: n.index})
		}
		if n.machine == nil {
			continue
		}
		if p.left.Expires > 0 {
			add(Op{Kind: opExpire, Node: n.index})
		}
		if p.left.Drops > 0 && !n.between() && n.machine.Idle() {
			add(Op{Kind: opDrop, Node: n.index})
		}
	}
	for _, t := range w.oracle.tickets {
		x.ticketOps(p, t, add)
	}
	x.deliveries(p, add)
	if p.view < len(x.views) {
		add(Op{Kind: opView, View: x.views[p.view]})
	}
	return ops
}

func (x *explorer) ticketOps(p *position, t *ticket, add func(Op)) {
	n, self := t.node.index, locks.Ticket{ID: t.ID}
	switch {
	case t.status == waiting:
		if p.left.Cancels > 0 {
			add(Op{Kind: opCancel, Node: n, Ticket: self})
		}
		if p.left.Overtakes > 0 && !t.Try {
			add(Op{Kind: opOvertake, Node: n, Ticket: self})
		}
	case t.status == held:
		old := []locks.TicketID{t.ID}
		add(Op{Kind: opReplace, Node: n, Old: old})
		if p.left.Rewrites == 0 {
			return
		}
		part := locks.Part{ID: t.ID, Mode: t.Mode, Range: t.Range}
		if t.Mode == locks.Write {
			r := part
			r.Mode = locks.Read
			add(Op{Kind: opReplace, Node: n, Old: old, Parts: []locks.Part{r}})
		}
		if t.Range.End-t.Range.Start > 1 {
			first, last := part, part
			first.Range.End = t.Range.Start + 1
			last.Range.Start = t.Range.End - 1
			add(Op{Kind: opReplace, Node: n, Old: old, Parts: []locks.Part{first}})
			add(Op{Kind: opReplace, Node: n, Old: old, Parts: []locks.Part{last}})
		}
	case t.status == over && !t.stamp.IsZero() && p.left.Agains > 0:
		again := t.Ticket
		again.ID += 100
		add(Op{Kind: opAcquire, Node: n, Ticket: again, As: t.ID})
	}
}

func (x *explorer) deliveries(p *position, add func(Op)) {
	for _, from := range p.w.nodes {
		for _, to := range p.w.nodes {
			for at := range p.w.links[from.index][to.index] {
				if !p.w.deliverable(from, to, at) {
					continue
				}
				o := Op{Kind: opDeliver, Node: from.index, To: to.index, At: at}
				add(o)
				if p.left.Dups > 0 {
					o.Dup = true
					add(o)
				}
			}
		}
	}
}
