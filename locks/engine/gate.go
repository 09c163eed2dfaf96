package engine

import (
	"slices"
	"time"

	"dmxfs/locks"
)

// Requests that conflict are served in the order of their stamps, but for two
// cases in which somebody goes before its turn. Both are bounded here, so that
// whoever waits gets in however many come after it.
//
// Opens of one node share its lock, as its processes share their files: a new
// one joins although another node waits, which waits until all are closed. As
// long as there is always one open it would wait for ever. So a few may join,
// and then the others wait at a gate until the node has given up the lock; they
// ask for it then, behind the one that waits. A process that has the file open
// joins in any case, since it will close nothing while it waits.
//
// And a ticket that only the queue keeps waiting overtakes after a while, see
// Engine.overtake; the gate opens in the same way for a single one, for it may
// be a child of the process that has the file open. With holders that last
// longer than this while, there would always be one again. So the while doubles
// each time, and holders that come later wait for the end of those before them.

const (
	// joinBatch is how many opens may join while another node waits.
	joinBatch = 16
	// patienceDoubles is how often the patience of a key doubles, and
	// patienceLasts for how long it remembers why.
	patienceDoubles = 5
	patienceLasts   = time.Minute
)

// gated reports whether t has to wait at the gate.
func (e *Engine) gated(t *ticket) bool {
	en := t.entry
	if !en.holds() || en.handles == nil || t.req.Try || en.machine.Wanted() == 0 {
		return false
	}
	if en.opened[t.req.Owner] == 0 {
		return false // it waits in the queue
	}
	if p := processOf(&t.req.Program); p != (process{}) && en.processes[p].has(uint64(t.req.Owner)) {
		return false
	}
	if len(en.gate) == 0 {
		en.joined++
	}
	return en.joined > joinBatch
}

// openGate lets in all who wait at the gate when there is no reason for it any
// more: nobody is waited for here.
func (e *Engine) openGate(en *entry) {
	if en.joined == 0 || en.machine.Wanted() != 0 {
		return
	}
	ts := en.gate
	en.gate, en.joined, en.passed = nil, 0, 0
	for _, t := range ts {
		e.acquire(t)
	}
}

// openGateFor lets in t only.
func (e *Engine) openGateFor(t *ticket) {
	t.entry.gate = slices.DeleteFunc(t.entry.gate, func(g *ticket) bool { return g == t })
	e.acquire(t)
}

// patience is how long a ticket waits for its turn without another reason.
func (en *entry) patience(now time.Time) time.Duration {
	if now.Sub(en.passedAt) > patienceLasts {
		en.passed = 0
	}
	return min(firstOvertake<<min(en.passed, patienceDoubles), maxOvertake)
}

// pass notes that a ticket goes before its turn. Those that do so at about the
// same time count once.
func (en *entry) pass(now time.Time) {
	if en.passed == 0 || now.Sub(en.passedAt) >= en.patience(now) {
		en.passed++
		en.passedAt = now
	}
}

// nested reports whether the process of t has another lock of the key, which it
// will not give up while it waits: then there is no sense in patience.
func (en *entry) nested(t *ticket) bool {
	p := processOf(&t.req.Program)
	return !t.req.Try && en.handles == nil && p != (process{}) && en.processes[p].other(uint64(t.req.Owner))
}

// place is the stamp that a ticket which waits has in the queue, if any.
func (t *ticket) place() locks.Stamp {
	if !t.asks {
		return t.stamp
	}
	return t.entry.machine.Stamp(t.ID)
}
