package engine

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var killSeeds = flag.Int("engine.kills", long.OrPure(20, 50), "number of random runs of TestKilledLikeOneHost, of each kind")

// Whatever a process was doing when it was killed, the locks are those that one host
// would have: all that was granted, and nothing else, when what it was doing is done
// again.
func TestKilledLikeOneHost(t *testing.T) {
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	for kind, run := range map[string]func(*testing.T, uint64, bool) int{"locks": likeLinux, "rules": changesLikeOneHost} {
		first, last := uint64(1), uint64(*killSeeds)
		if *seed != 0 {
			first, last = *seed, *seed
		}
		kills := 0
		for s := first; s <= last; s++ {
			if maxAtOnce = 512; kind == "locks" {
				maxAtOnce = inParts(s)
			} // else who has very many pieces is asked to wait for a barrier
			synctest.Test(t, func(t *testing.T) { kills += run(t, s, true) })
			if t.Failed() {
				t.Fatalf("%s: to run this again: go test ./locks/engine -run %s -engine.seed %d", kind, t.Name(), s)
			}
		}
		if t.Logf("%s: %d were killed", kind, kills); kills < int(last-first) {
			t.Errorf("%s: only %d were killed", kind, kills)
		}
	}
}

// arm has one of the nodes die at one of its next writes.
func (r *randomRun) arm() {
	if !r.mayKill || r.rnd.IntN(2) > 0 {
		return
	}
	n := r.nodes[r.ids[r.rnd.IntN(len(r.ids))]]
	n.Engine.mu.Lock()
	n.ledger.fuse = 1 + r.rnd.IntN(4)
	n.Engine.mu.Unlock()
}

// bury has others take the places of those that have died, and takes care that nobody
// else dies. It reports whether there was one.
func (r *randomRun) bury() (any bool) {
	synctest.Wait()
	for i, id := range r.ids {
		n := r.nodes[id]
		n.Engine.mu.Lock()
		dead := n.ledger.dead
		n.ledger.fuse = 0
		n.Engine.mu.Unlock()
		if !dead {
			continue
		}
		any = true
		r.kills++
		r.ids[i] = locks.NodeID(fmt.Sprintf("%s.%d", id[:2], r.kills))
		r.say("%s is killed, and %s goes on", id, r.ids[i])
		r.killed(id, r.ids[i])
		r.view(r.ids...)
	}
	return any
}

// again is c on the process that has taken the place of its node; nil if none has.
func (r *randomRun) again(c oneCall) *oneCall {
	for _, id := range r.ids {
		if id[:2] == c.id[:2] && id != c.id {
			c.node = r.nodes[id]
			return &c
		}
	}
	return nil
}

// do has f done on the node of a call, and if that dies by its successor.
func (r *randomRun) do(c oneCall, f func(*node)) {
	f(c.node)
	if r.mayKill && r.bury() {
		if x := r.again(c); x != nil {
			f(x.node)
		}
	}
}

// call is try, by the successor if the node dies.
func (r *randomRun) call(c oneCall, q *locks.Request) error {
	if !r.mayKill {
		_, err := c.try(q)
		return err
	}
	x := *q
	x.Try = true
	p := c.start(&x)
	for {
		ended := p.is()
		if r.bury() {
			if y := r.again(c); y != nil {
				return r.call(*y, q)
			}
			continue
		}
		if ended {
			return p.err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// ledgersAreEmpty checks that nothing is left in the ledgers, where nothing is held.
func (c *net) ledgersAreEmpty() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.ledger == nil {
			continue
		}
		for _, table := range []int{tableKeys, tableTickets, tableWords, tableTold, tablePlaces} {
			for i, w := range n.ledger.All(table) {
				c.t.Errorf("%s: record %d of table %d is left: %v", n.id, i, table, w)
			}
		}
	}
}

// isLike checks that the nodes hold what the model says.
func (r *randomRun) isLike(class locks.Class, l *linux) {
	r.t.Helper()
	var is linux
	for _, n := range r.nodes {
		n.Engine.mu.Lock()
		for _, en := range n.entries.all {
			for _, t := range en.tickets {
				if t.held && en.key.Class == class {
					is.set(fmt.Sprintf("%s/%d", n.id[:2], t.req.Owner), t.Mode, t.Range, 0)
				}
			}
		}
		n.Engine.mu.Unlock()
	}
	for i := range l.bytes {
		for who, x := range l.bytes[i] {
			if is.bytes[i][who].mode != x.mode {
				r.t.Errorf("%v: %s has byte %d in mode %v, want %v", class, who, i, is.bytes[i][who].mode, x.mode)
			}
		}
		if len(is.bytes[i]) != len(l.bytes[i]) {
			r.t.Errorf("%v: byte %d: %v hold it, want %v", class, i, is.bytes[i], l.bytes[i])
		}
	}
}
