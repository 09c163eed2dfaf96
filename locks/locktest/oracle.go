package locktest

import (
	"fmt"
	"slices"

	"dmxfs/locks"
)

type status uint8

const (
	waiting status = iota
	held
	denied
	over // cancelled, released, or its node is dead
)

// A ticket as the observer sees it.
type ticket struct {
	locks.Ticket
	node   *node
	status status
	// justified: a try may be denied.
	justified bool
	// stamp is what a cancelled one had.
	stamp locks.Stamp
	// heard are the nodes that know that it waits, as bits; after are those
	// that the ticket's own node knew of when the ticket came.
	heard uint64
	after []*ticket
	// overtook is when it last moved to the front, or 0; told, when all had
	// heard of that.
	overtook, told int
}

func (t *ticket) String() string {
	return fmt.Sprintf("%s/%v", t.node.id, t.Ticket)
}

// An oracle knows what every ticket was told, and what was written.
type oracle struct {
	tickets []*ticket // live ones and cancelled ones, in the order of their coming
	data    storage
	// The largest token of a grant, by what conflicts with it: on each byte
	// for reads and for writes.
	readToken, writeToken [bytesSeen]locks.Token
	now                   int // counts overtakes
	// recent are the tickets that were not over when it was quiet last; all
	// others, everybody knows to be over.
	recent []*ticket
}

// bytesSeen is how many bytes the observer tells apart; what is beyond is the
// last one.
const bytesSeen = 8

// seen are the bytes of r as the observer tells them apart.
func seen(r locks.Range) (from, to int) {
	return int(min(r.Start, bytesSeen-1)), int(min(r.End-1, bytesSeen-1)) + 1
}

func (o *oracle) join(n *node) { n.data.renew() }

func (o *oracle) ticket(n *node, id locks.TicketID) *ticket {
	for _, t := range o.tickets {
		if t.node == n && t.ID == id {
			return t
		}
	}
	return nil
}

// conflict is what the algorithm promises to keep apart.
func (w *world) conflict(a, b *ticket) bool {
	if a.node == b.node && a.Owner == b.Owner {
		return false
	}
	return !w.alg.Shared || a.Range.Overlaps(b.Range) && (a.Mode == locks.Write || b.Mode == locks.Write)
}

// exclusive is the range and mode in which a ticket really is held.
func (w *world) exclusive(t locks.Ticket) (locks.Mode, locks.Range) {
	if !w.alg.Shared {
		return locks.Write, locks.Whole
	}
	return t.Mode, t.Range
}

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
		t.justified = t.justified || u.status == held && w.conflict(t, u)
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
		if m, r := w.exclusive(t.Ticket); m == locks.Write {
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

// done takes an outcome to the books.
func (or *oracle) done(w *world, n *node, o locks.Outcome, mayEnter bool) error {
	t := or.ticket(n, o.Ticket)
	if t == nil || t.status != waiting {
		return fmt.Errorf("%s: outcome %v of a ticket that does not wait", n.id, o)
	}
	if !o.Granted {
		if !t.Try || !t.justified && !(w.opt.LaxTries && or.crowded(w, t)) {
			return fmt.Errorf("%v was denied without cause", t)
		}
		t.status = denied
		or.leave(t)
		return nil
	}
	if !mayEnter {
		return fmt.Errorf("%v was granted although %s may not enter", t, n.id)
	}
	for _, u := range or.tickets {
		if u.status == held && w.conflict(t, u) {
			return fmt.Errorf("%v was granted beside %v", t, u)
		}
	}
	if w.fair {
		if u := or.passed(w, t); u != nil {
			return fmt.Errorf("%v was granted before %v, which %s had heard of", t, u, n.id)
		}
	}
	t.status = held
	for _, u := range or.tickets {
		u.justified = u.justified || w.conflict(t, u)
	}
	if err := or.token(w, t, o.Token); err != nil {
		return err
	}
	m, r := w.exclusive(t.Ticket)
	n.data.refresh(&or.data)
	if err := or.read(n, r); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	if m == locks.Write {
		or.write(n, r)
	}
	return nil
}

// passed is a ticket that t should have waited for.
func (or *oracle) passed(w *world, t *ticket) *ticket {
	for _, u := range t.after {
		if u.status == waiting && w.conflict(t, u) {
			return u
		}
	}
	return nil
}

// crowded reports whether t conflicts with a ticket that not everybody knows to
// be over.
func (or *oracle) crowded(w *world, t *ticket) bool {
	return slices.ContainsFunc(or.recent, func(u *ticket) bool { return u != t && w.conflict(t, u) })
}

// leave forgets a ticket that nothing refers to any more.
func (or *oracle) leave(t *ticket) {
	or.tickets = slices.DeleteFunc(or.tickets, func(u *ticket) bool { return u == t })
}

// token checks the fencing token of a grant.
func (or *oracle) token(w *world, t *ticket, token locks.Token) error {
	n := t.node
	if token <= n.last || token <= locks.TokenFloor(n.epoch) || token > locks.TokenFloor(n.epoch+1) {
		return fmt.Errorf("%v has token %v after %v in epoch %d", t, token, n.last, n.epoch)
	}
	n.last = token
	m, r := w.exclusive(t.Ticket)
	from, to := seen(r)
	for i := from; i < to; i++ {
		if least := or.writeToken[i]; token <= least {
			return fmt.Errorf("%v has token %v, but %v wrote before", t, token, least)
		}
		if least := or.readToken[i]; m == locks.Write && token <= least {
			return fmt.Errorf("%v has token %v, but %v read before", t, token, least)
		}
		if m == locks.Write {
			or.writeToken[i] = token
		} else {
			or.readToken[i] = max(or.readToken[i], token)
		}
	}
	return nil
}

// justify notes for each waiting try whether an earlier one is under way that
// conflicts with it.
func (or *oracle) justify(w *world) {
	for _, t := range or.tickets {
		if !t.Try || t.status != waiting || t.justified {
			continue
		}
		for _, u := range or.tickets {
			if u != t && u.Try && u.status == waiting && w.conflict(t, u) &&
				u.node.machine.Stamp(u.ID).Compare(t.node.machine.Stamp(t.ID)) < 0 {
				t.justified = true
				break
			}
		}
	}
}

// unhear is for a node that leaves an epoch: what it had heard of is asked
// again, and perhaps too late.
func (or *oracle) unhear(n *node) {
	for _, t := range or.tickets {
		if t.node != n {
			t.heard &^= 1 << n.index
		} else {
			t.after = slices.DeleteFunc(t.after, func(u *ticket) bool { return u.node != n })
		}
	}
}

// die voids the tickets of a node.
func (or *oracle) die(n *node) {
	or.tickets = slices.DeleteFunc(or.tickets, func(t *ticket) bool { return t.node == n })
	or.data.lose(n)
}

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
			if w.conflict(against, u) && !slices.Contains(n.machine.Suspects(m, u.Range), u.node.id) {
				return fmt.Errorf("%s does not suspect %v of standing against %v", n.id, u, m)
			}
		}
	}
	for _, t := range or.tickets {
		if t.status != waiting || t.node != n {
			continue
		}
		local, _ := n.machine.Blockers(t.ID)
		for _, u := range or.tickets {
			if u.node == n && u.status == held && w.conflict(t, u) != slices.Contains(local, u.ID) {
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
	_, remote := t.node.machine.Blockers(t.ID)
	for _, u := range or.tickets {
		if u.status == held && u.node != t.node && w.conflict(t, u) && !slices.Contains(remote, u.node.id) {
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
		if u == t || u.status > held || !w.conflict(t, u) {
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
		return x.status == held && x.node == t.node && x.Owner == t.Owner && w.conflict(u, x)
	})
}

// connected reports whether conflicts lead from t to a ticket that is held, or
// to one that may not enter.
func (or *oracle) connected(w *world, t *ticket) bool {
	seen := map[*ticket]bool{t: true}
	for work := []*ticket{t}; len(work) > 0; work = work[1:] {
		for _, u := range or.tickets {
			if seen[u] || u.status > held || !w.conflict(work[0], u) {
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
