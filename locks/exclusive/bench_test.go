package exclusive_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// A cluster is machines whose messages are delivered at once.
type cluster struct {
	ids      []locks.NodeID
	machines map[locks.NodeID]locks.Machine
	turn     locks.Turn
	queue    []delivery
	next     locks.TicketID
}

type delivery struct {
	from, to locks.NodeID
	msg      locks.Message
}

func newCluster(a locks.Algorithm, n int) *cluster {
	c := &cluster{machines: make(map[locks.NodeID]locks.Machine)}
	for i := range n {
		c.ids = append(c.ids, locks.NodeID(fmt.Sprintf("n%02d", i)))
	}
	for i, id := range c.ids {
		c.machines[id] = a.New(locks.Config{View: &locks.View{Epoch: 1, Self: id, Members: c.ids}, Seed: uint64(i)})
	}
	return c
}

// do is one turn at a node, and all that follows from it elsewhere.
func (c *cluster) do(id locks.NodeID, f func(locks.Machine, *locks.Turn)) {
	c.turn.Reset(true)
	f(c.machines[id], &c.turn)
	for {
		for _, e := range c.turn.Send {
			c.queue = append(c.queue, delivery{id, e.To, e.Msg})
		}
		if len(c.queue) == 0 {
			return
		}
		d := c.queue[0]
		c.queue = c.queue[1:]
		id = d.to
		c.turn.Reset(true)
		if err := c.machines[id].Receive(d.from, d.msg, &c.turn); err != nil {
			panic(err)
		}
	}
}

// once takes the lock at a node and releases it.
func (c *cluster) once(id locks.NodeID) {
	c.next++
	t := locks.Ticket{ID: c.next, Mode: locks.Write, Range: locks.Whole}
	c.do(id, func(m locks.Machine, out *locks.Turn) { m.Acquire(t, out) })
	c.do(id, func(m locks.Machine, out *locks.Turn) { m.Replace([]locks.TicketID{t.ID}, nil, out) })
}

// A lock that is kept, and one that goes from node to node; with all that the
// other members compute.
func BenchmarkLock(b *testing.B) {
	for _, a := range algorithms {
		for _, n := range []int{1, 5, 30} {
			b.Run(fmt.Sprintf("%s/nodes=%d/kept", a.Name, n), func(b *testing.B) {
				c := newCluster(a, n)
				b.ReportAllocs()
				for b.Loop() {
					c.once(c.ids[0])
				}
			})
			if n == 1 {
				continue
			}
			b.Run(fmt.Sprintf("%s/nodes=%d/in_turns", a.Name, n), func(b *testing.B) {
				c := newCluster(a, n)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c.once(c.ids[i%n])
				}
			})
		}
	}
}

// What an idle machine costs: one that has been made and not used, and one that
// keeps its lock.
func BenchmarkMemory(b *testing.B) {
	for _, a := range algorithms {
		for _, kept := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/kept=%v", a.Name, kept), func(b *testing.B) {
				var before, after runtime.MemStats
				const count = 1000
				for b.Loop() {
					runtime.GC()
					runtime.ReadMemStats(&before)
					ms := make([]*cluster, count)
					for i := range ms {
						ms[i] = newCluster(a, 5)
						if kept {
							ms[i].once("n00")
						}
					}
					runtime.GC()
					runtime.ReadMemStats(&after)
					b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count/5, "B/machine")
					runtime.KeepAlive(ms)
				}
			})
		}
	}
}
