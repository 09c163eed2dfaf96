package locktest

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
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
func conflict(alg locks.Algorithm, a, b *ticket) bool {
	if a.node == b.node && a.Owner == b.Owner {
		return false
	}
	return !alg.Shared || a.Range.Overlaps(b.Range) && (a.Mode == locks.Write || b.Mode == locks.Write)
}

// exclusive is the range and mode in which a ticket really is held.
func exclusive(alg locks.Algorithm, t locks.Ticket) (locks.Mode, locks.Range) {
	if !alg.Shared {
		return locks.Write, locks.Whole
	}
	return t.Mode, t.Range
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
		if u.status == held && conflict(w.alg, t, u) {
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
		u.justified = u.justified || conflict(w.alg, t, u)
	}
	if err := or.token(w, t, o.Token); err != nil {
		return err
	}
	m, r := exclusive(w.alg, t.Ticket)
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
		if u.status == waiting && conflict(w.alg, t, u) {
			return u
		}
	}
	return nil
}

// crowded reports whether t conflicts with a ticket that not everybody knows to
// be over.
func (or *oracle) crowded(w *world, t *ticket) bool {
	return slices.ContainsFunc(or.recent, func(u *ticket) bool { return u != t && conflict(w.alg, t, u) })
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
	m, r := exclusive(w.alg, t.Ticket)
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
			if u != t && u.Try && u.status == waiting && conflict(w.alg, t, u) &&
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
