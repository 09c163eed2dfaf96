package engine

import (
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
