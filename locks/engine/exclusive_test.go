package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// What the engine does with the exclusive algorithms is the same for all three,
// and was not written with their habits in mind: a lock that goes without a
// message, one that comes without having been asked for, keys that are
// forgotten together.

var exclusives = []string{"rcv", "maekawa", "ring"}

func forEach(t *testing.T, nodes int, f func(t *testing.T, c *net, alg string)) {
	for _, alg := range exclusives {
		t.Run(alg, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, nodes)
				f(t, c, alg)
				c.check()
			})
		})
	}
}

// on is a request for a file that alg serves.
func on(alg, file string, r *locks.Request) *locks.Request {
	r.Path = alg + "/" + file
	r.Key.File = r.Path
	return r
}

func TestExclusiveKeysAreForgotten(t *testing.T) {
	forEach(t, 3, func(t *testing.T, c *net, alg string) {
		for _, n := range c.nodes {
			for i := range 5 {
				r := on(alg, fmt.Sprint(i), req(locks.Flock, i, locks.Write, locks.Whole))
				mustGrant(t, n.start(r))
				n.Unlock(r.Key, locks.OwnerID(i), locks.Whole)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		c.isIdle()
		// What is made anew goes on with greater tokens.
		r := on(alg, "0", req(locks.Flock, 1, locks.Write, locks.Whole))
		p := c.nodes["n1"].start(r)
		mustGrant(t, p)
		for _, n := range c.nodes {
			n.mu.Lock()
			for _, ev := range n.events {
				if ev.Step == Granted && ev.Token > p.grant.Token {
					t.Errorf("token %v after %v", p.grant.Token, ev.Token)
				}
			}
			n.mu.Unlock()
		}
	})
}

// What was written is on the storage before anybody else goes on, also when the
// lock was given back to nobody meanwhile.
func TestExclusiveDataIsHandedOver(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Minute} {
		forEach(t, 3, func(t *testing.T, c *net, alg string) {
			w := on(alg, "f", req(locks.Flock, 1, locks.Write, locks.Whole))
			var storage atomic.Int64
			for round := range int64(9) {
				n := c.nodes[three[round%3]]
				var seen atomic.Int64
				seen.Store(storage.Load())
				n.mu.Lock()
				n.refresh = func(locks.Key) error { seen.Store(storage.Load()); return nil }
				n.mu.Unlock()
				mustGrant(t, n.start(w))
				if seen.Load() != round {
					t.Fatalf("round %d: %s sees %d", round, n.id, seen.Load())
				}
				n.mu.Lock()
				n.onFlush = func(locks.Key) error { // takes longer than any message
					time.Sleep(100 * time.Millisecond)
					storage.Store(max(storage.Load(), round+1))
					return nil
				}
				n.mu.Unlock()
				n.Unlock(w.Key, 1, locks.Whole)
				time.Sleep(idle)
			}
		})
	}
}

// A try knows at once: what is only kept is given, what is used is not.
func TestExclusiveTry(t *testing.T) {
	forEach(t, 5, func(t *testing.T, c *net, alg string) {
		w := on(alg, "f", req(locks.Flock, 1, locks.Write, locks.Whole))
		begin := time.Now()
		for i := range 5 {
			n := c.nodes[nodeID(i)]
			if _, err := n.try(w); err != nil {
				t.Fatalf("%s, of what is kept: %v", n.id, err)
			}
			for j := range 5 {
				if _, err := c.nodes[nodeID(j)].try(on(alg, "f", req(locks.Flock, 2, locks.Write, locks.Whole))); !errors.Is(err, locks.ErrWouldBlock) {
					t.Fatalf("n%d, of what %s uses: %v", j, n.id, err)
				}
			}
			n.Unlock(w.Key, 1, locks.Whole)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A cycle of five files on five nodes: one process is told, and the others go
// on.
func TestExclusiveDeadlock(t *testing.T) {
	forEach(t, 5, func(t *testing.T, c *net, alg string) {
		lock := func(i, file int) *pending {
			r := byProcess(100+i, locks.Posix, "", locks.Write, locks.Range{Start: 0, End: 1})
			return c.nodes[nodeID(i)].start(on(alg, fmt.Sprint(file%5), r))
		}
		for i := range 5 {
			mustGrant(t, lock(i, i))
		}
		var ps []*pending
		for i := range 5 {
			ps = append(ps, lock(i, i+1))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		for i, p := range ps {
			if p.is() != (i == 4) || i == 4 && !errors.Is(p.err, locks.ErrDeadlock) {
				t.Fatalf("process %d: ended %v, %v; want the last one to be told", i, p.is(), p.err)
			}
		}
		for i := 4; i >= 0; i-- {
			c.nodes[nodeID(i)].UnlockOwner(locks.Key{File: fmt.Sprintf("%s/%d", alg, i), Class: locks.Posix}, locks.OwnerID(100+i))
			if i > 0 {
				mustGrant(t, ps[i-1])
				c.nodes[nodeID(i-1)].UnlockOwner(locks.Key{File: fmt.Sprintf("%s/%d", alg, i), Class: locks.Posix}, locks.OwnerID(100+i-1))
			}
		}
	})
}

// An interrupted wait leaves nothing that keeps others from the lock.
func TestExclusiveInterrupted(t *testing.T) {
	forEach(t, 3, func(t *testing.T, c *net, alg string) {
		w := on(alg, "f", req(locks.Flock, 1, locks.Write, locks.Whole))
		mustGrant(t, c.nodes["n0"].start(w))
		gone, late := c.nodes["n1"].start(w), c.nodes["n2"].start(w)
		time.Sleep(time.Second)
		close(gone.cancel)
		<-gone.done
		if !errors.Is(gone.err, locks.ErrInterrupted) {
			t.Errorf("interrupted: %v", gone.err)
		}
		c.nodes["n0"].Unlock(w.Key, 1, locks.Whole)
		mustGrant(t, late)
	})
}

// The number of a file that was removed may be that of a new file at once,
// under another rule: a lock on that comes when the members have forgotten the
// old one, and is not refused.
func TestNumberOfAFileUnderAnotherRule(t *testing.T) {
	forEach(t, 3, func(t *testing.T, c *net, alg string) {
		key := locks.Key{File: "i7", Class: locks.Flock}
		ask := func(path string, owner int) *locks.Request {
			r := req(locks.Flock, owner, locks.Write, locks.Whole)
			r.Key, r.Path = key, path
			return r
		}
		for i, id := range three {
			mustGrant(t, c.nodes[id].start(ask(alg+"/old", i+1)))
			c.nodes[id].Unlock(key, locks.OwnerID(i+1), locks.Whole)
		}
		c.nodes["n1"].Engine.mu.Lock()
		_, known := c.nodes["n1"].entries.all[key]
		c.nodes["n1"].Engine.mu.Unlock()
		if !known {
			t.Fatal("nobody knows of the old file any more: the test shows nothing")
		}
		for i, id := range three {
			mustGrant(t, c.nodes[id].start(ask("new", i+1)))
			c.nodes[id].Unlock(key, locks.OwnerID(i+1), locks.Whole)
			time.Sleep(10 * time.Second) // this node forgets the old one, the others have it
		}
	})
}
