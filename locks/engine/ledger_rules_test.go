package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A process that is killed at any write while a file gets another algorithm leaves what
// was held by the one before, beside the new one, and those who wait.
func TestKilledWhileTheRulesChange(t *testing.T) {
	for _, back := range []bool{false, true} {
		killed := 0
		for fuse, dies := 1, true; dies; fuse++ {
			synctest.Test(t, func(t *testing.T) {
				c := newKeeping(t, 2, true, nil)
				if back {
					c.rules("f")
					c.view("n0", "n1")
				}
				a, b := c.nodes["n0"], c.nodes["n1"]
				owners := []locks.OwnerID{1}
				mustGrant(t, a.start(req(locks.Posix, 1, locks.Read, part(0, 10))))
				if !back {
					mustGrant(t, a.start(req(locks.Posix, 2, locks.Read, part(0, 10))))
					owners = append(owners, 2)
				}
				a.start(req(locks.Posix, 3, locks.Write, part(0, 10)))
				a.start(req(locks.Posix, 4, locks.Write, part(0, 10)))
				other := req(locks.Posix, 5, locks.Write, part(20, 30))
				synctest.Wait()
				c.rules(map[bool]string{false: "f", true: "other"}[back])
				a.Engine.mu.Lock()
				a.ledger.fuse = fuse
				a.Engine.mu.Unlock()
				c.view("n0", "n1")
				synctest.Wait()
				a.Engine.mu.Lock()
				dies = a.ledger.dead
				a.Engine.mu.Unlock()
				if !dies {
					return
				}
				killed++
				x := c.killed("n0", "n0x")
				c.view("n0x", "n1")
				late := b.start(other)
				mustWait(t, late) // what is held is from before the change, or keeps out all
				waits := map[locks.OwnerID]*pending{5: late}
				for o := 3; o <= 4; o++ {
					waits[locks.OwnerID(o)] = x.start(req(locks.Posix, o, locks.Write, part(0, 10)))
				}
				for _, o := range owners {
					for _, p := range waits {
						mustWait(t, p)
					}
					x.Engine.mu.Lock()
					en := x.entries.all[other.Key]
					if en == nil || en.owners[o] == nil || !x.beside(en) {
						t.Errorf("owner %d has lost it, or it is not beside the new algorithm", o)
					}
					x.Engine.mu.Unlock()
					x.UnlockOwner(other.Key, o)
				}
				c.allGranted(other.Key, waits)
				c.check()
				c.ledgersAgree()
			})
			if t.Failed() {
				t.Fatalf("killed at write %d, back %v", fuse, back)
			}
		}
		if t.Logf("back %v: %d were killed", back, killed); killed < 4 {
			t.Errorf("only %d were killed", killed)
		}
	}
}

// allGranted checks that each owner is granted what it waits for, in whatever order, when
// those before it have given it up.
func (c *net) allGranted(k locks.Key, waits map[locks.OwnerID]*pending) {
	c.t.Helper()
	for range len(waits) + 1 {
		time.Sleep(5 * time.Second)
		for o, p := range waits {
			if !p.is() {
				continue
			}
			if p.err != nil {
				c.t.Errorf("owner %d: %v", o, p.err)
			}
			for _, n := range c.nodes {
				n.UnlockOwner(k, o)
			}
			delete(waits, o)
		}
	}
	if len(waits) > 0 {
		c.t.Errorf("they still wait: %v", waits)
	}
}
