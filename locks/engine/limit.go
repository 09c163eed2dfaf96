package engine

import (
	"fmt"

	"dmxfs/locks"
)

// Locks take memory, here and in the journal, and one program must not use it
// up for all. Counted are the tickets of a process: what it waits for, and the
// pieces of what it holds. A request is refused when there are too many; giving
// up is not, also where it makes two pieces of one.

// DefaultMaxLocks is how many locks a process may have.
const DefaultMaxLocks = 250_000

// usage is what one process has.
type usage struct {
	tickets int
	told    bool // the log knows that it is too much
}

// keep adds t to its entry.
func (e *Engine) keep(t *ticket) {
	t.entry.tickets[t.ID] = t
	pid := t.req.Program.PID
	u := e.usage[pid]
	if u == nil {
		u = &usage{}
		e.usage[pid] = u
	}
	u.tickets++
}

// lose takes t from its entry.
func (e *Engine) lose(t *ticket) {
	delete(t.entry.tickets, t.ID)
	t.entry.gaveUp(t)
	pid := t.req.Program.PID
	u := e.usage[pid]
	if u.tickets--; u.tickets == 0 {
		delete(e.usage, pid)
	}
}

// tooMany refuses a request of a process that has as many locks as it may.
func (e *Engine) tooMany(p *locks.Program) error {
	u := e.usage[p.PID]
	if u == nil || u.tickets < e.o.MaxLocks || p.PID == 0 {
		return nil
	}
	if !u.told {
		u.told = true
		e.o.Log.Warn("a process has as many locks as it may: further ones fail with ENOLCK", "pid", p.PID, "command", p.Command,
			"locks", u.tickets)
	}
	return fmt.Errorf("%w: %s has %d locks, as many as a process may have", locks.ErrUnavailable, describe(*p), u.tickets)
}
