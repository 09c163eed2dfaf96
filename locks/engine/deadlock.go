package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Deadlocks are found by edge chasing (Chandy, Misra and Haas). A waiting ticket
// waits for the held tickets that conflict with it: those here are known, those
// elsewhere are known to the members that have not answered. Behind a held
// ticket stands whoever took it; if that one waits, too, the probe goes on
// with what it waits for. When it comes back to where it began there is a
// cycle, if it still is one: its parts were seen one after the other. So the
// cycle is looked at once more. A ticket waits once, and is held once; what was
// there both times was there in between, and all of the cycle at one moment.
//
// A queue is no reason to wait: see tickets.overtake. The thread that
// took a lock (with fcntl, its process) is assumed to be the one that will give it
// up. Of a program that cannot be seen no thread is known, and only the owner of
// fcntl counts.
// flock(2) knows no EDEADLK, so a waiter in it is never the victim.

const (
	firstProbe = 50 * time.Millisecond
	nextProbe  = 500 * time.Millisecond
	maxProbe   = 8 * time.Second
	// maxEdges bounds a cycle, and with it a probe.
	maxEdges = 64
	// maxSeen bounds what is remembered of probes that came by.
	maxSeen = 4096
	// heldFor is how long a part of a cycle that was confirmed is no victim
	// of another one: two cycles with a part in common need one victim.
	heldFor = 500 * time.Millisecond
)

// detector looks for deadlocks, with those of the other members.
type detector struct {
	*base
	alarm    *alarm
	waiters  *waiters
	entries  *entries
	barriers blocking
	tickets  withdrawing

	lastRound uint64             // of probes that began here
	seen      map[seenProbe]bool // places that probes of all nodes have come to
	cycles    map[uint64]*cycle  // that are being confirmed here
}

// blocking tells what a ticket waits for: tickets of this node, of which most are
// enough, and members that may have some.
type blocking interface {
	blockers(t *ticket, most int) (local []locks.TicketID, remote []locks.NodeID)
}

// withdrawing ends the waiting of a victim with err.
type withdrawing interface {
	withdraw(t *ticket, err error, reason string)
}

// edge is one edge of a probe's path: at node somebody waits who holds what the
// edge before waits for.
type edge struct {
	node  int            // index in the view
	wait  locks.TicketID // waits
	hold  locks.TicketID // held by the same; it blocks the wait of the edge before
	since int64          // when wait began, wall clock of its node
	key   locks.Key      // of wait, with mode and range
	mode  locks.Mode
	rng   locks.Range
}

// probe looks for what the last of its edges waits for.
type probe struct {
	round uint64
	path  []edge
}

// seenProbe identifies a place that a probe has come to.
type seenProbe struct {
	node   int
	origin locks.TicketID
	round  uint64
	wait   locks.TicketID
}

// forget is called at the end of an epoch, and all probes with it.
func (d *detector) forget() {
	clear(d.seen)
	clear(d.cycles)
}

// start sends out a probe for t.
func (d *detector) start(t *ticket) {
	if d.phase != active || t.req.Try || !t.asks {
		return
	}
	d.lastRound++
	d.expand(t, probe{round: d.lastRound}, 0)
}

// expand adds t, which waits here and holds hold, to the probe p, and follows
// what t waits for.
func (d *detector) expand(t *ticket, p probe, hold locks.TicketID) {
	if len(p.path) >= maxEdges {
		return
	}
	p.path = append(slices.Clip(p.path), edge{
		node: d.view.Index(d.view.Self), wait: t.ID, hold: hold, since: t.req.asked.UnixNano(),
		key: t.entry.key, mode: t.req.Mode, rng: t.req.Range,
	})
	_, remote := d.barriers.blockers(t, 0)
	d.follow(p, t)
	for _, n := range remote {
		d.o.Transport.Send(d.view.Epoch, n, probeFrame(p))
	}
}

// follow goes on with what the last edge of p waits for on this node. That edge
// is t; nil if it is of another node.
func (d *detector) follow(p probe, t *ticket) {
	last := p.path[len(p.path)-1]
	en := d.entries.all[last.key]
	if en == nil {
		return
	}
	var own *locks.OwnerID
	if t != nil {
		own = &t.req.Owner
	}
	for _, w := range d.waiters.candidates(en) {
		if !w.parked {
			continue // it has come to its end since
		}
		if b := en.keeps(w, last.mode, last.rng, own); b != nil {
			d.visit(p, w, b)
		}
	}
}

// visit: the probe p has come to w, which waits here and holds b.
func (d *detector) visit(p probe, w, b *ticket) {
	self := d.view.Index(d.view.Self)
	if first := p.path[0]; first.node == self && first.wait == w.ID {
		p.path = slices.Clone(p.path)
		p.path[0].hold = b.ID
		d.found(p.path)
		return
	}
	for _, h := range p.path {
		if h.node == self && h.wait == w.ID {
			return // a cycle without the origin: its own probes find it
		}
	}
	s := seenProbe{p.path[0].node, p.path[0].wait, p.round, w.ID}
	if d.seen[s] {
		return
	}
	if len(d.seen) >= maxSeen {
		clear(d.seen)
	}
	d.seen[s] = true
	d.expand(w, p, b.ID)
}

// found: path is a cycle, or was one. All nodes that find it pick the same
// victim: of the waiters that may get EDEADLK, the one that has waited least.
func (d *detector) found(path []edge) {
	victim := -1
	for i, h := range path {
		if h.key.Class == locks.Flock {
			continue
		}
		if victim < 0 || cmp.Or(cmp.Compare(h.since, path[victim].since), cmp.Compare(h.node, path[victim].node),
			cmp.Compare(h.wait, path[victim].wait)) > 0 {
			victim = i
		}
	}
	if victim < 0 {
		return
	}
	// The victim's node is the first of the cycle from now on.
	path = append(slices.Clone(path[victim:]), path[:victim]...)
	if n := d.view.Members[path[0].node]; n != d.view.Self {
		d.o.Transport.Send(d.view.Epoch, n, cycleFrame(frameCycle, 0, path))
		return
	}
	d.confirm(path)
}

// cycle is one that is looked at once more.
type cycle struct {
	victim  *ticket
	path    []edge
	missing map[int]bool // nodes that have not answered
}

// confirm asks all nodes of a cycle whether their part of it is still there.
// The victim is of this node and the first.
func (d *detector) confirm(path []edge) {
	t := d.waiter(path[0])
	if t == nil {
		return
	}
	for _, c := range d.cycles {
		if c.victim == t {
			return // one is enough
		}
	}
	self := d.view.Index(d.view.Self)
	if d.spared(t) || !d.stands(path) {
		d.again(t)
		return
	}
	c := &cycle{victim: t, path: path, missing: map[int]bool{}}
	for _, h := range path {
		if h.node != self {
			c.missing[h.node] = true
		}
	}
	id := d.id()
	d.cycles[id] = c
	for n := range d.view.Members {
		if c.missing[n] {
			d.o.Transport.Send(d.view.Epoch, d.view.Members[n], cycleFrame(frameConfirm, id, path))
		}
	}
	d.confirmed(id)
}

// confirmed ends the cycle when nobody is missing any more.
func (d *detector) confirmed(id uint64) {
	c := d.cycles[id]
	if c == nil || len(c.missing) > 0 {
		return
	}
	delete(d.cycles, id)
	if d.spared(c.victim) || !d.stands(c.path) {
		d.again(c.victim)
		return
	}
	d.tickets.withdraw(c.victim, fmt.Errorf("%w with %d others", locks.ErrDeadlock, len(c.path)-1),
		fmt.Sprintf("it would have been a deadlock: %s", d.describe(c.path)))
}

// spared reports whether t is to be no victim just now.
func (d *detector) spared(t *ticket) bool { return time.Now().Before(t.spared) }

// again makes t look for a cycle soon, if it still waits.
func (d *detector) again(t *ticket) {
	if d.waiters.has(t) {
		w := t.own()
		w.probe, w.probeStep = time.Now().Add(heldFor), 0
		d.alarm.wake()
	}
}

// stands reports whether this node's part of a cycle is still there, and will
// not be broken elsewhere: the victim is the first of path.
func (d *detector) stands(path []edge) bool {
	self := d.view.Index(d.view.Self)
	var parts []*ticket
	for i, h := range path {
		if h.node != self {
			continue
		}
		w := d.waiter(h)
		if w == nil {
			return false
		}
		if i > 0 {
			for _, c := range d.cycles {
				if c.victim == w {
					return false // with its end this cycle ends, too
				}
			}
			parts = append(parts, w)
		}
		// What it holds blocks the edge before.
		before := path[(i+len(path)-1)%len(path)]
		en := d.entries.all[before.key]
		if en == nil {
			return false
		}
		b := en.tickets[h.hold]
		if b == nil || !b.held || !en.stands(b, before.mode, before.rng) || !en.owns(b) || !waitsBehind(w, b) {
			return false
		}
	}
	for _, w := range parts {
		w.own().spared = time.Now().Add(heldFor)
	}
	return true
}

// waiter is the ticket of this node that h is about, if it still waits.
func (d *detector) waiter(h edge) *ticket {
	en := d.entries.all[h.key]
	if en == nil {
		return nil
	}
	t := en.tickets[h.wait]
	if !d.waiters.has(t) {
		return nil
	}
	return t
}

// receiveProbe takes a probe that has come to what is held here.
func (d *detector) receiveProbe(p probe) { d.follow(p, nil) }

// receiveCycle takes a cycle of which this node has the victim (frameCycle),
// or a part that is to be confirmed.
func (d *detector) receiveCycle(kind byte, from locks.NodeID, id uint64, path []edge) {
	switch kind {
	case frameCycle:
		if path[0].node == d.view.Index(d.view.Self) {
			d.confirm(path)
		}
	case frameConfirm:
		d.o.Transport.Send(d.view.Epoch, from, confirmedFrame(id, d.stands(path)))
	}
}

// receiveConfirmed takes the answer of a node to frameConfirm.
func (d *detector) receiveConfirmed(from locks.NodeID, id uint64, ok bool) {
	c := d.cycles[id]
	if c == nil {
		return
	}
	if !ok {
		delete(d.cycles, id)
		d.again(c.victim)
		return
	}
	delete(c.missing, d.view.Index(from))
	d.confirmed(id)
}

// describe names the locks of a cycle for the journal.
func (d *detector) describe(path []edge) string {
	s := ""
	for i, h := range path {
		if i > 0 {
			s += " -> "
		}
		if i == 8 {
			return s + "…"
		}
		s += fmt.Sprintf("%v %v %v on %s", h.mode, h.key, h.rng, d.view.Members[h.node])
	}
	return s
}
