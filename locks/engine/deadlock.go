package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"dmxfs/locks"
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
// A queue is no reason to wait: see Engine.overtake. The thread that
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

// startProbe sends out a probe for t.
func (e *Engine) startProbe(t *ticket) {
	if e.phase != active || t.req.Try || !t.asks {
		return
	}
	e.lastRound++
	e.expand(t, probe{round: e.lastRound}, 0)
}

// expand adds t, which waits here and holds hold, to the probe p, and follows
// what t waits for.
func (e *Engine) expand(t *ticket, p probe, hold locks.TicketID) {
	if len(p.path) >= maxEdges {
		return
	}
	p.path = append(slices.Clip(p.path), edge{
		node: e.view.Index(e.view.Self), wait: t.ID, hold: hold, since: t.req.asked.UnixNano(),
		key: t.entry.key, mode: t.req.Mode, rng: t.req.Range,
	})
	_, remote := e.blockers(t, 0)
	e.follow(p, t)
	for _, n := range remote {
		e.o.Transport.Send(e.view.Epoch, n, probeFrame(p))
	}
}

// follow goes on with what the last edge of p waits for on this node. That edge
// is t; nil if it is of another node.
func (e *Engine) follow(p probe, t *ticket) {
	last := p.path[len(p.path)-1]
	en := e.entries[last.key]
	if en == nil {
		return
	}
	var own *locks.OwnerID
	if t != nil {
		own = &t.req.Owner
	}
	for _, w := range e.candidates(en) {
		if !w.parked {
			continue // it has come to its end since
		}
		if b := en.keeps(w, last.mode, last.rng, own); b != nil {
			e.visit(p, w, b)
		}
	}
}

// visit: the probe p has come to w, which waits here and holds b.
func (e *Engine) visit(p probe, w, b *ticket) {
	self := e.view.Index(e.view.Self)
	if first := p.path[0]; first.node == self && first.wait == w.ID {
		p.path = slices.Clone(p.path)
		p.path[0].hold = b.ID
		e.found(p.path)
		return
	}
	for _, h := range p.path {
		if h.node == self && h.wait == w.ID {
			return // a cycle without the origin: its own probes find it
		}
	}
	s := seenProbe{p.path[0].node, p.path[0].wait, p.round, w.ID}
	if e.seen[s] {
		return
	}
	if len(e.seen) >= maxSeen {
		clear(e.seen)
	}
	e.seen[s] = true
	e.expand(w, p, b.ID)
}

// found: path is a cycle, or was one. All nodes that find it pick the same
// victim: of the waiters that may get EDEADLK, the one that has waited least.
func (e *Engine) found(path []edge) {
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
	if n := e.view.Members[path[0].node]; n != e.view.Self {
		e.o.Transport.Send(e.view.Epoch, n, cycleFrame(frameCycle, 0, path))
		return
	}
	e.confirm(path)
}

// cycle is one that is looked at once more.
type cycle struct {
	victim  *ticket
	path    []edge
	missing map[int]bool // nodes that have not answered
}

// confirm asks all nodes of a cycle whether their part of it is still there.
// The victim is of this node and the first.
func (e *Engine) confirm(path []edge) {
	t := e.waiter(path[0])
	if t == nil {
		return
	}
	for _, c := range e.cycles {
		if c.victim == t {
			return // one is enough
		}
	}
	self := e.view.Index(e.view.Self)
	if e.spared(t) || !e.stands(path) {
		e.again(t)
		return
	}
	c := &cycle{victim: t, path: path, missing: map[int]bool{}}
	for _, h := range path {
		if h.node != self {
			c.missing[h.node] = true
		}
	}
	id := e.id()
	e.cycles[id] = c
	for n := range e.view.Members {
		if c.missing[n] {
			e.o.Transport.Send(e.view.Epoch, e.view.Members[n], cycleFrame(frameConfirm, id, path))
		}
	}
	e.confirmed(id)
}

// confirmed ends the cycle when nobody is missing any more.
func (e *Engine) confirmed(id uint64) {
	c := e.cycles[id]
	if c == nil || len(c.missing) > 0 {
		return
	}
	delete(e.cycles, id)
	if e.spared(c.victim) || !e.stands(c.path) {
		e.again(c.victim)
		return
	}
	e.withdraw(c.victim, fmt.Errorf("%w with %d others", locks.ErrDeadlock, len(c.path)-1),
		fmt.Sprintf("it would have been a deadlock: %s", e.describeCycle(c.path)))
}

// spared reports whether t is to be no victim just now.
func (e *Engine) spared(t *ticket) bool { return time.Now().Before(t.spared) }

// again makes t look for a cycle soon, if it still waits.
func (e *Engine) again(t *ticket) {
	if _, waits := e.waiters[t]; waits {
		t.probe, t.probeStep = time.Now().Add(heldFor), 0
		e.wake()
	}
}

// stands reports whether this node's part of a cycle is still there, and will
// not be broken elsewhere: the victim is the first of path.
func (e *Engine) stands(path []edge) bool {
	self := e.view.Index(e.view.Self)
	var parts []*ticket
	for i, h := range path {
		if h.node != self {
			continue
		}
		w := e.waiter(h)
		if w == nil {
			return false
		}
		if i > 0 {
			for _, c := range e.cycles {
				if c.victim == w {
					return false // with its end this cycle ends, too
				}
			}
			parts = append(parts, w)
		}
		// What it holds blocks the edge before.
		before := path[(i+len(path)-1)%len(path)]
		en := e.entries[before.key]
		if en == nil {
			return false
		}
		b := en.tickets[h.hold]
		if b == nil || !b.held || !en.stands(b, before.mode, before.rng) || !en.owns(b) || !waitsBehind(w, b) {
			return false
		}
	}
	for _, w := range parts {
		w.spared = time.Now().Add(heldFor)
	}
	return true
}

// waiter is the ticket of this node that h is about, if it still waits.
func (e *Engine) waiter(h edge) *ticket {
	en := e.entries[h.key]
	if en == nil {
		return nil
	}
	t := en.tickets[h.wait]
	if _, waits := e.waiters[t]; !waits {
		return nil
	}
	return t
}

// receiveProbe takes a probe that has come to what is held here.
func (e *Engine) receiveProbe(p probe) { e.follow(p, nil) }

// receiveCycle takes a cycle of which this node has the victim (frameCycle),
// or a part that is to be confirmed.
func (e *Engine) receiveCycle(kind byte, from locks.NodeID, id uint64, path []edge) {
	switch kind {
	case frameCycle:
		if path[0].node == e.view.Index(e.view.Self) {
			e.confirm(path)
		}
	case frameConfirm:
		e.o.Transport.Send(e.view.Epoch, from, confirmedFrame(id, e.stands(path)))
	}
}

// receiveConfirmed takes the answer of a node to frameConfirm.
func (e *Engine) receiveConfirmed(from locks.NodeID, id uint64, ok bool) {
	c := e.cycles[id]
	if c == nil {
		return
	}
	if !ok {
		delete(e.cycles, id)
		e.again(c.victim)
		return
	}
	delete(c.missing, e.view.Index(from))
	e.confirmed(id)
}

// describeCycle names the locks of a cycle for the journal.
func (e *Engine) describeCycle(path []edge) string {
	s := ""
	for i, h := range path {
		if i > 0 {
			s += " -> "
		}
		if i == 8 {
			return s + "…"
		}
		s += fmt.Sprintf("%v %v %v on %s", h.mode, h.key, h.rng, e.view.Members[h.node])
	}
	return s
}
