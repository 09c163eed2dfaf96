package engine

import (
	"github.com/dmxfs/dmxfs/locks"
)

// stepper makes turns of machines, and has done what they ask for.
type stepper struct {
	*base
	ledger   *ledger
	outboxes *outboxes
	wishes   *wishes
	tickets  *tickets

	turns  []*locks.Turn // memory of turns
	handed uint64        // turns in which somebody was let in, or told something
}

// step makes one turn of en's machine and does what it asks for. It reports
// whether something that this node could do went to a peer.
// REQUIRES: mu held.
func (s *stepper) step(en *entry, f func(*locks.Turn)) (gave bool) {
	var t *locks.Turn
	if n := len(s.turns); n > 0 {
		t, s.turns = s.turns[n-1], s.turns[:n-1]
	} else {
		t = new(locks.Turn)
	}
	t.Reset(s.phase >= restoring && len(en.barrier) == 0 && s.o.Live(0))
	f(t)
	if t.Stale {
		en.stale++
	}
	if len(t.Send)+len(t.Done) > 0 {
		s.handed++
	}
	s.ledger.turn(en)
	s.outboxes.post(en, t)
	for _, d := range t.Done {
		s.tickets.decided(en, d)
	}
	s.openGate(en)
	s.wishes.tell(en)
	gave = t.Handover && len(t.Send) > 0
	s.turns = append(s.turns, t)
	return gave
}

// openGate lets in all who wait at the gate when there is no reason for it any
// more: nobody is waited for here.
func (s *stepper) openGate(en *entry) {
	if en.gate.joined == 0 || en.machine.Wanted() != 0 {
		return
	}
	for _, t := range en.gate.open() {
		s.acquire(t)
	}
}

// openGateFor lets in t only.
func (s *stepper) openGateFor(t *ticket) {
	t.entry.gate.leave(t)
	s.acquire(t)
}

// acquire hands t to the machine.
func (s *stepper) acquire(t *ticket) {
	t.asks = true
	r := t.req
	s.step(t.entry, func(turn *locks.Turn) {
		t.entry.machine.Acquire(locks.Ticket{
			ID: t.ID, Owner: r.Owner, Mode: r.Mode, Range: r.Range, Try: r.Try, Stamp: t.stamp,
		}, turn)
	})
	s.ledger.changes(t)
}
