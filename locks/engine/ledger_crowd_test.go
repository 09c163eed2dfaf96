package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var crowds = flag.Int("engine.crowds", long.Or(2, 6), "number of random runs of TestKilledInACrowd")

// crowd are programs on three nodes that wait for the same locks, while the nodes are
// killed. A node is known by its place; who serves there changes.
type crowd struct {
	*net
	rnd   *rand.Rand
	mu    sync.Mutex
	at    [3]*node
	kills int
	// told are the modes in which programs were told that they have a file.
	told map[string]map[string]locks.Mode
}

// serving is who serves at a place, when it is not known to be dead.
func (c *crowd) serving(place int) *node {
	for {
		c.mu.Lock()
		n := c.at[place]
		c.mu.Unlock()
		if !n.isKilled() {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}

func (n *node) isKilled() bool {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	return n.ledger.dead
}

// lock returns when the program was told that it has the lock.
func (c *crowd) lock(place int, r *locks.Request) error {
	n := c.serving(place)
	p := n.start(r)
	for {
		select {
		case <-p.done:
			if !n.isKilled() {
				return p.err
			}
		case <-time.After(time.Millisecond):
			if !n.isKilled() {
				continue
			}
		}
		n = c.serving(place)
		p = n.start(r) // as the mount does it
	}
}

// once has f done by a node that is not killed meanwhile.
func (c *crowd) once(place int, f func(*node)) {
	for {
		n := c.serving(place)
		if f(n); !n.isKilled() {
			return
		}
	}
}

// program takes a lock some times.
func (c *crowd) program(place, owner int, rnd *rand.Rand) {
	who := fmt.Sprint(place, "/", owner)
	for range 12 {
		alg := everyAlgorithm[rnd.IntN(2)*rnd.IntN(len(everyAlgorithm))]
		class := locks.Classes[rnd.IntN(len(locks.Classes))]
		r := on(alg, "f", req(class, owner, locks.Mode(1+rnd.IntN(2)), locks.Whole))
		if alg != "rw" {
			r.Mode = locks.Write
		}
		if err := c.lock(place, r); err != nil {
			c.t.Errorf("%s: %v %v: %v", who, r.Key, r.Mode, err)
			return
		}
		c.has(r.Key.String(), who, r.Mode)
		time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
		c.has(r.Key.String(), who, 0)
		if class == locks.Open || rnd.IntN(3) == 0 {
			c.once(place, func(n *node) { n.UnlockHandle(r.Key, r.Handle, "closed") })
		} else {
			c.once(place, func(n *node) { n.Unlock(r.Key, r.Owner, r.Range) })
		}
		time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
	}
}

// has notes what a program has, and that nobody else has what conflicts with it.
func (c *crowd) has(key, who string, m locks.Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told[key] == nil {
		c.told[key] = map[string]locks.Mode{}
	}
	if delete(c.told[key], who); m == 0 {
		return
	}
	for other, x := range c.told[key] {
		if m == locks.Write || x == locks.Write {
			c.t.Errorf("%s: %s has it in mode %v, and %s was granted %v", key, other, x, who, m)
		}
	}
	c.told[key][who] = m
}

// kill kills a node, at its next writes or now, and has another one go on.
func (c *crowd) kill() {
	place := c.rnd.IntN(3)
	n := c.at[place]
	n.Engine.mu.Lock()
	n.ledger.fuse = 1 + c.rnd.IntN(6)
	n.Engine.mu.Unlock()
	if c.rnd.IntN(4) == 0 {
		c.view(c.at[0].id, c.at[1].id, c.at[2].id) // in the middle of which it may die
	}
	time.Sleep(time.Duration(c.rnd.IntN(40)) * time.Millisecond)
	c.kills++
	name := locks.NodeID(fmt.Sprintf("n%d.%d", place, c.kills))
	next := c.killed(n.id, name)
	var ids []locks.NodeID
	for i, x := range c.at {
		if i == place {
			ids = append(ids, name)
		} else {
			ids = append(ids, x.id)
		}
	}
	c.view(ids...)
	c.mu.Lock()
	c.at[place] = next
	c.mu.Unlock()
}

// However often daemons are killed, no two programs are told at the same time that they
// have what conflicts, each has in the end what it waits for, and nothing is left.
func TestKilledInACrowd(t *testing.T) {
	for seed := range uint64(*crowds) {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{net: newKeeping(t, 3, true, nil), rnd: rand.New(rand.NewPCG(seed, 31)), told: map[string]map[string]locks.Mode{}}
			for i := range c.at {
				c.at[i] = c.nodes[nodeID(i)]
			}
			var programs sync.WaitGroup
			done := make(chan struct{})
			for place := range c.at {
				for owner := 1; owner <= 3; owner++ {
					programs.Go(func() { c.program(place, owner, rand.New(rand.NewPCG(seed, uint64(10*place+owner)))) })
				}
			}
			go func() {
				programs.Wait()
				close(done)
			}()
			for over := false; !over; {
				select {
				case <-done:
					over = true
				case <-time.After(time.Duration(c.rnd.IntN(25)) * time.Millisecond):
					c.kill()
				}
			}
			time.Sleep(time.Minute)
			c.check()
			c.ledgersAgree()
			c.ledgersAreEmpty()
			if t.Logf("seed %d: %d were killed", seed, c.kills); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
