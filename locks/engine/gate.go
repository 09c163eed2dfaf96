package engine

import (
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
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
// tickets.overtake; the gate opens in the same way for a single one, for it may
// be a child of the process that has the file open. With holders that last
// longer than this while, there would always be one again. So the while doubles
// each time that somebody goes before its turn, and holders that come later wait
// for the end of those before them.

const (
	// joinBatch is how many opens may join while another node waits.
	joinBatch = 16
	// patienceDoubles is how often the patience of a key doubles, and
	// patienceLasts for how long it remembers why.
	patienceDoubles = 5
	patienceLasts   = time.Minute
)

// gate is what of a key bounds who goes before its turn. The zero value is open.
type gate struct {
	waiting []*ticket // the opens that do not join yet
	joined  int       // those that have joined while another node waits
	// passed is how often tickets went before their turn lately, at last at passedAt.
	passed   int
	passedAt time.Time
}

// join counts one more open that would join, if none waits yet, and reports
// whether it has to wait.
func (g *gate) join() (waits bool) {
	if len(g.waiting) == 0 {
		g.joined++
	}
	return g.joined > joinBatch
}

func (g *gate) wait(t *ticket) { g.waiting = append(g.waiting, t) }

// wrote: a program of this node has got what it waited for, to write.
func (g *gate) wrote() { g.passed = 0 }

// open forgets all, and returns those that waited.
func (g *gate) open() []*ticket {
	ts := g.waiting
	g.waiting, g.joined, g.passed = nil, 0, 0
	return ts
}

// leave takes t from those that wait.
func (g *gate) leave(t *ticket) {
	g.waiting = slices.DeleteFunc(g.waiting, func(w *ticket) bool { return w == t })
}

// patience is how long a ticket waits for its turn without another reason.
func (g *gate) patience(now time.Time) time.Duration {
	if now.Sub(g.passedAt) > patienceLasts {
		g.passed = 0
	}
	return min(firstOvertake<<min(g.passed, patienceDoubles), maxOvertake)
}

// pass notes that a ticket goes before its turn. Those that do so at about the
// same time count once.
func (g *gate) pass(now time.Time) {
	if g.passed == 0 || now.Sub(g.passedAt) >= g.patience(now) {
		g.passed++
		g.passedAt = now
	}
}

// nested reports whether the process of t has another lock of the key, which it
// will not give up while it waits: then there is no sense in patience.
func (t *ticket) nested() bool {
	en, p := t.entry, processOf(&t.req.Program)
	return !t.req.Try && !en.isOpen() && p != (process{}) && en.processes[p].other(uint64(t.req.Owner))
}

// place is the stamp that a ticket which waits has in the queue, if any.
func (t *ticket) place() locks.Stamp {
	if !t.asks {
		return t.stamp
	}
	return t.entry.machine.Stamp(t.ID)
}
