package engine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"dmxfs/locks"
)

// event is what differs between the steps of a request.
type event struct {
	rng      locks.Range
	wait     time.Duration
	messages int
	reason   string
	token    locks.Token
	final    bool
}

func (e *Engine) record(s Step, en *entry, req *request, ev event) {
	if s == Released && req.broken != "" {
		s, ev.reason = Lost, req.broken
	}
	var epoch locks.Epoch
	if e.view != nil {
		epoch = e.view.Epoch
	}
	var held time.Duration
	if ev.final && (s == Released || s == Lost) && !req.granted.IsZero() {
		held = time.Since(req.granted)
	}
	e.o.Recorder.Record(Event{
		Step: s, Epoch: epoch, Request: req.id, Key: en.key, Path: req.Path, Mode: req.Mode, Range: ev.rng,
		Algorithm: en.alg.Name, Program: req.Program, Token: ev.token, Wait: ev.wait, Held: held, Messages: ev.messages,
		Reason: ev.reason, Final: ev.final,
	})
}

func describe(p locks.Program) string {
	switch {
	case p.PID == 0:
		return "a program that this daemon cannot see"
	case p.Command == "":
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Command)
}

// maxNamed is how many holders are named of those that somebody waits for.
const maxNamed = 8

// waitsFor says in words why t waits.
func (e *Engine) waitsFor(t *ticket) string {
	var why []string
	if !t.asks {
		return "waits to join the open lock of this node, which another node waits for"
	}
	local, remote := e.blockers(t, maxNamed+1)
	for i, id := range local {
		if i == maxNamed {
			why = append(why, "others here")
		} else if b := t.entry.tickets[id]; b != nil {
			why = append(why, describe(b.req.Program)+" here")
		}
	}
	for _, n := range remote {
		why = append(why, "node "+string(n))
	}
	switch {
	case len(why) > 0:
		return "waits for " + strings.Join(why, ", ")
	case e.phase != active:
		return "waits for a new epoch"
	case !e.o.Live(0):
		return "waits until this node is sure again of the others"
	}
	return "waits for its turn"
}

// State of a lock in [LockInfo].
type LockState uint8

const (
	Held LockState = iota + 1
	Waits
	Cached // no program holds it, but this node could have it again at once
)

// LockInfo is one row of the table of locks.
type LockInfo struct {
	Key       locks.Key
	Path      string
	Mode      locks.Mode
	Range     locks.Range
	State     LockState
	Request   uint64
	Owner     locks.OwnerID
	Handle    locks.HandleID
	Program   locks.Program
	Since     time.Time // of the grant, or of the request if it waits
	Epoch     locks.Epoch
	Algorithm string
	Token     locks.Token
	// Blocked by these programs of this node, or some of them if they are
	// many, and these members.
	Local  []locks.Program
	Remote []locks.NodeID
}

// Locks lists what this node holds, waits for and keeps. Of many it is not all of
// one moment.
func (e *Engine) Locks() []LockInfo {
	type row struct {
		id   locks.TicketID // 0: what is kept, behind all others
		info LockInfo
	}
	found := newRows(func(a, b *row) int {
		return cmp.Or(a.info.Key.Compare(b.info.Key), cmp.Compare(a.id-1, b.id-1), cmp.Compare(a.info.Range.Start, b.info.Range.Start))
	})
	e.mu.Lock()
	for _, en := range e.entries {
		for id, t := range en.tickets {
			found.add(row{id, e.lockInfo(t)})
			if e.mu.breathe() && e.entries[en.key] != en {
				break
			}
		}
		for from := uint64(0); from < locks.MaxOffset && e.entries[en.key] == en; e.mu.breathe() {
			kept, next := en.machine.Kept(from, maxAtOnce)
			for _, r := range kept {
				i := e.baseInfo(en)
				i.Mode, i.Range, i.State, i.Since, i.Token = locks.Write, r, Cached, en.since, en.machine.Token()
				found.add(row{0, i})
			}
			from = next
		}
		e.mu.breathe()
	}
	e.mu.Unlock()
	out := make([]LockInfo, 0, found.n)
	for _, r := range found.sorted() {
		out = append(out, r.info)
	}
	return out
}

// baseInfo is what all rows of en have in common.
func (e *Engine) baseInfo(en *entry) LockInfo {
	i := LockInfo{Key: en.key, Path: en.path, Algorithm: en.alg.Name}
	if e.view != nil {
		i.Epoch = e.view.Epoch
	}
	return i
}

func (e *Engine) lockInfo(t *ticket) LockInfo {
	en := t.entry
	i := e.baseInfo(en)
	i.Path, i.Mode, i.Range, i.State = t.req.Path, t.Mode, t.Range, Held
	i.Request, i.Owner, i.Handle, i.Program, i.Since, i.Token = t.req.id, t.req.Owner, t.Handle, t.req.Program, t.req.granted, t.token
	if t.held {
		return i
	}
	i.State, i.Since = Waits, t.req.asked
	local, remote := e.blockers(t, maxConflicts)
	for _, id := range local {
		if b := en.tickets[id]; b != nil {
			i.Local = append(i.Local, b.req.Program)
		}
	}
	i.Remote = remote
	return i
}

// LongWaits lists the requests that have waited for longer than d.
func (e *Engine) LongWaits(d time.Duration) []LockInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []LockInfo
	now := time.Now()
	for t := range e.waiters {
		if now.Sub(t.req.asked) > d {
			out = append(out, LockInfo{
				Key: t.entry.key, Path: t.req.Path, Mode: t.Mode, Range: t.Range, State: Waits,
				Request: t.req.id, Owner: t.req.Owner, Program: t.req.Program, Since: t.req.asked, Algorithm: t.entry.alg.Name,
			})
		}
	}
	return out
}

// Count is how many locks are held and how many requests wait. Of many it is not
// all of one moment.
func (e *Engine) Count() (held, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range e.entries {
		held += len(en.tickets)
		e.mu.breathe()
	}
	return max(held-len(e.waiters), 0), len(e.waiters)
}
