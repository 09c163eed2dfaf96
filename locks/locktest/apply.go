package locktest

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

func (w *world) acquire(n *node, o Op) error {
	or := &w.oracle
	if or.ticket(n, o.Ticket.ID) != nil {
		return errSkip
	}
	t := &ticket{Ticket: o.Ticket, node: n, heard: 1 << n.index}
	t.Stamp = locks.Stamp{}
	if o.As != 0 {
		old := or.ticket(n, o.As)
		if old == nil || old.stamp.IsZero() {
			return errSkip
		}
		t.Stamp, old.stamp = old.stamp, locks.Stamp{}
	}
	for _, u := range or.tickets {
		t.justified = t.justified || u.status == held && conflict(w.alg, t, u)
		if u.status == waiting && u.heard&t.heard != 0 {
			t.after = append(t.after, u)
		}
	}
	or.tickets = append(or.tickets, t)
	or.recent = append(or.recent, t)
	return w.run(n, func(m locks.Machine, out *locks.Turn) error { m.Acquire(t.Ticket, out); return nil })
}

func (w *world) cancel(n *node, id locks.TicketID) error {
	t := w.oracle.ticket(n, id)
	if t == nil || t.status != waiting {
		return errSkip
	}
	t.status = over
	return w.run(n, func(m locks.Machine, out *locks.Turn) error {
		t.stamp = m.Stamp(id)
		m.Cancel(id, out)
		return nil
	})
}

func (w *world) replace(n *node, o Op) error {
	or := &w.oracle
	if !or.replaceable(n, o) {
		return errSkip
	}
	for _, id := range o.Old {
		t := or.ticket(n, id)
		if m, r := exclusive(w.alg, t.Ticket); m == locks.Write {
			or.write(n, r)
		} else if err := or.read(n, r); err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		t.status = over
	}
	owner := or.ticket(n, o.Old[0]).Owner
	for _, p := range o.Parts {
		or.tickets = slices.DeleteFunc(or.tickets, func(t *ticket) bool { return t.node == n && t.ID == p.ID })
		or.tickets = append(or.tickets, &ticket{
			Ticket: locks.Ticket{ID: p.ID, Owner: owner, Mode: p.Mode, Range: p.Range},
			node:   n, status: held,
		})
	}
	return w.run(n, func(m locks.Machine, out *locks.Turn) error { m.Replace(o.Old, o.Parts, out); return nil })
}

func (w *world) overtake(n *node, id locks.TicketID) error {
	or := &w.oracle
	t := or.ticket(n, id)
	if t == nil || t.status != waiting {
		return errSkip
	}
	or.now++
	t.overtook = or.now
	return w.run(n, func(m locks.Machine, out *locks.Turn) error { m.Overtake(id, out); return nil })
}

// replaceable reports whether the preconditions of Machine.Replace hold.
func (or *oracle) replaceable(n *node, o Op) bool {
	var any, write, taken locks.Ranges
	var owner locks.OwnerID
	for i, id := range o.Old {
		t := or.ticket(n, id)
		if t == nil || t.status != held || i > 0 && t.Owner != owner || slices.Contains(o.Old[:i], id) {
			return false
		}
		owner = t.Owner
		any = any.Add(t.Range)
		if t.Mode == locks.Write {
			write = write.Add(t.Range)
		}
	}
	for i, p := range o.Parts {
		if slices.ContainsFunc(o.Parts[:i], func(x locks.Part) bool { return x.ID == p.ID }) ||
			!slices.Contains(o.Old, p.ID) && or.ticket(n, p.ID) != nil ||
			taken.Overlaps(p.Range) || !any.Contains(p.Range) ||
			p.Mode == locks.Write && !write.Contains(p.Range) {
			return false
		}
		taken = taken.Add(p.Range)
	}
	return len(o.Old) > 0
}
