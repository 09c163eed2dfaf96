package engine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

func describe(p locks.Program) string {
	switch {
	case p.PID == 0:
		return "a program that this daemon cannot see"
	case p.Command == "":
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Command)
}

// reports tell what is held here, and why what waits does.
type reports struct {
	*base
	waiters  *waiters
	entries  *entries
	barriers *barriers
}

// maxNamed is how many holders are named of those that somebody waits for.
const maxNamed = 8

// waitsFor says in words why t waits.
func (rp *reports) waitsFor(t *ticket) string {
	var why []string
	if !t.asks {
		return "waits to join the open lock of this node, which another node waits for"
	}
	local, remote := rp.barriers.blockers(t, maxNamed+1)
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
	case rp.phase != active:
		return "waits for a new epoch"
	case !rp.o.Live(0):
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

// locks is [Engine.Locks].
func (rp *reports) locks() []LockInfo {
	type row struct {
		id   locks.TicketID // 0: what is kept, behind all others
		info LockInfo
	}
	found := newRows(func(a, b *row) int {
		return cmp.Or(a.info.Key.Compare(b.info.Key), cmp.Compare(a.id-1, b.id-1), cmp.Compare(a.info.Range.Start, b.info.Range.Start))
	})
	rp.mu.Lock()
	for _, en := range rp.entries.all {
		if rp.entries.all[en.key] != en {
			break // all were lost meanwhile, with the view
		}
		for id, t := range en.tickets {
			found.add(row{id, rp.lockInfo(t)})
			if rp.mu.breathe() && rp.entries.all[en.key] != en {
				break
			}
		}
		for from := uint64(0); from < locks.MaxOffset && rp.entries.all[en.key] == en; rp.mu.breathe() {
			kept, next := en.machine.Kept(from, maxAtOnce)
			for _, r := range kept {
				i := rp.baseInfo(en)
				i.Mode, i.Range, i.State, i.Since, i.Token = locks.Write, r, Cached, en.since, en.machine.Token()
				found.add(row{0, i})
			}
			from = next
		}
		rp.mu.breathe()
	}
	rp.mu.Unlock()
	out := make([]LockInfo, 0, found.n)
	for _, r := range found.sorted() {
		out = append(out, r.info)
	}
	return out
}

// baseInfo is what all rows of en have in common.
func (rp *reports) baseInfo(en *entry) LockInfo {
	i := LockInfo{Key: en.key, Path: en.path, Algorithm: en.alg.Name}
	if rp.view != nil {
		i.Epoch = rp.view.Epoch
	}
	return i
}

func (rp *reports) lockInfo(t *ticket) LockInfo {
	en := t.entry
	i := rp.baseInfo(en)
	i.Path, i.Mode, i.Range, i.State = t.req.Path, t.Mode, t.Range, Held
	i.Request, i.Owner, i.Handle, i.Program, i.Since, i.Token = t.req.id, t.req.Owner, t.Handle, t.req.Program, t.req.granted, t.token
	if t.held {
		return i
	}
	i.State, i.Since = Waits, t.req.asked
	local, remote := rp.barriers.blockers(t, maxConflicts)
	for _, id := range local {
		if b := en.tickets[id]; b != nil {
			i.Local = append(i.Local, b.req.Program)
		}
	}
	i.Remote = remote
	return i
}

// longWaits is [Engine.LongWaits].
func (rp *reports) longWaits(d time.Duration) []LockInfo {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	var out []LockInfo
	now := time.Now()
	for t := range rp.waiters.all {
		if now.Sub(t.req.asked) > d {
			out = append(out, LockInfo{
				Key: t.entry.key, Path: t.req.Path, Mode: t.Mode, Range: t.Range, State: Waits,
				Request: t.req.id, Owner: t.req.Owner, Program: t.req.Program, Since: t.req.asked, Algorithm: t.entry.alg.Name,
			})
		}
	}
	return out
}

// count is [Engine.Count].
func (rp *reports) count() (held, waiting int) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	for _, en := range rp.entries.all {
		held += len(en.tickets)
		rp.mu.breathe()
	}
	return max(held-len(rp.waiters.all), 0), len(rp.waiters.all)
}

// holders says in words what stands in the way of req.
func (rp *reports) holders(en *entry, req *request) string {
	if len(en.owners) > maxSearched {
		return "one of many"
	}
	for t := range en.inTheWay(req.Mode, req.Range, &req.Owner) {
		return describe(t.req.Program)
	}
	return "another node"
}
