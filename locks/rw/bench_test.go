package rw

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// A cluster is machines whose messages are delivered at once.
type cluster struct {
	machines map[locks.NodeID]*machine
	turn     locks.Turn
	queue    []delivery
	done     int
}

type delivery struct {
	from, to locks.NodeID
	msg      locks.Message
}

func newCluster(n int) *cluster {
	c := &cluster{machines: make(map[locks.NodeID]*machine)}
	var members []locks.NodeID
	for i := range n {
		members = append(members, locks.NodeID(fmt.Sprintf("n%02d", i)))
	}
	for _, id := range members {
		c.machines[id] = newMachine(locks.Config{View: &locks.View{Epoch: 1, Self: id, Members: members}})
	}
	return c
}

// do is one turn at a node, and all that follows from it elsewhere.
func (c *cluster) do(id locks.NodeID, f func(*machine, *locks.Turn)) {
	c.turn.Reset(true)
	f(c.machines[id], &c.turn)
	for {
		c.done += len(c.turn.Done)
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

func (c *cluster) acquire(n locks.NodeID, t locks.Ticket) {
	c.do(n, func(m *machine, out *locks.Turn) { m.Acquire(t, out) })
}

func (c *cluster) release(n locks.NodeID, id locks.TicketID) {
	c.do(n, func(m *machine, out *locks.Turn) { m.Replace([]locks.TicketID{id}, nil, out) })
}

func at(i int) locks.Range { return locks.Range{Start: uint64(8 * i), End: uint64(8*i + 4)} }

// hold gives n00 locks on that many ranges, each of an owner of its own.
func (c *cluster) hold(b *testing.B, held int) {
	c.acquire("n00", locks.Ticket{ID: 1, Owner: 1, Mode: locks.Write, Range: locks.Whole})
	c.release("n00", 1)
	for i := range held {
		c.acquire("n00", locks.Ticket{ID: locks.TicketID(i + 2), Owner: locks.OwnerID(i + 2), Mode: locks.Write, Range: at(i)})
	}
	if c.done != held+1 {
		b.Fatalf("%d granted, want %d", c.done, held+1)
	}
}

// BenchmarkRepeat is a lock that is taken and released where it was before:
// the hot path of a program that has a file for itself.
func BenchmarkRepeat(b *testing.B) {
	for _, n := range []int{1, 3, 30} {
		for _, held := range []int{0, 1000, 100_000} {
			for _, mode := range []locks.Mode{locks.Read, locks.Write} {
				b.Run(fmt.Sprintf("mode=%v/n=%d/held=%d", mode, n, held), func(b *testing.B) {
					c := newCluster(n)
					c.hold(b, held)
					m := c.machines["n00"]
					id := locks.TicketID(held + 2)
					r := at(held / 2)
					r.Start, r.End = r.End, r.End+4 // between two that are held
					var old [1]locks.TicketID
					b.ReportAllocs()
					for b.Loop() {
						c.turn.Reset(true)
						m.Acquire(locks.Ticket{ID: id, Owner: 1, Mode: mode, Range: r}, &c.turn)
						if len(c.turn.Done) != 1 {
							b.Fatal("not granted at once")
						}
						old[0] = id
						c.turn.Reset(true)
						m.Replace(old[:], nil, &c.turn)
						id++
					}
				})
			}
		}
	}
}

// BenchmarkNew is a machine that is made for one lock and dropped after it: a
// walk over many files.
func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 30} {
		for _, mode := range []locks.Mode{locks.Read, locks.Write} {
			b.Run(fmt.Sprintf("mode=%v/n=%d", mode, n), func(b *testing.B) {
				view := newCluster(n).machines["n00"].view
				var out locks.Turn
				b.ReportAllocs()
				for b.Loop() {
					m := newMachine(locks.Config{View: view})
					out.Reset(true)
					m.Acquire(locks.Ticket{ID: 1, Mode: mode, Range: locks.Whole}, &out)
				}
			})
		}
	}
}

// BenchmarkWaiters is one lock that many local tickets wait for; an operation
// is a release, the grant that it makes, and a new ticket at the end.
func BenchmarkWaiters(b *testing.B) {
	for _, waiting := range []int{10, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c := newCluster(3)
			next := locks.TicketID(1)
			add := func() {
				c.acquire("n00", locks.Ticket{ID: next, Owner: locks.OwnerID(next), Mode: locks.Write, Range: locks.Whole})
				next++
			}
			for range waiting + 1 {
				add()
			}
			first := locks.TicketID(1)
			b.ReportAllocs()
			for b.Loop() {
				c.release("n00", first)
				first++
				add()
			}
			if got := locks.TicketID(c.done); got != first {
				b.Fatalf("%d granted, want %d", got, first)
			}
		})
	}
}

// BenchmarkHandover is a lock that moves between two nodes of a cluster where
// both have many who wait for it; an operation is one move: a request, a reply
// and the grant.
func BenchmarkHandover(b *testing.B) {
	for _, n := range []int{2, 30} {
		for _, waiting := range []int{0, 1000} {
			b.Run(fmt.Sprintf("n=%d/waiting=%d", n, waiting), func(b *testing.B) {
				c := newCluster(n)
				nodes := []locks.NodeID{"n00", "n01"}
				next := locks.TicketID(1)
				for i := range 2 * waiting { // in turns, so that each grant moves the lock
					c.acquire(nodes[i%2], locks.Ticket{ID: next, Owner: locks.OwnerID(next), Mode: locks.Write, Range: locks.Whole})
					next++
				}
				first := locks.TicketID(1)
				b.ReportAllocs()
				for b.Loop() {
					c.acquire(nodes[next%2^1], locks.Ticket{ID: next, Owner: locks.OwnerID(next), Mode: locks.Write, Range: locks.Whole})
					next++
					c.release(nodes[first%2^1], first)
					first++
				}
			})
		}
	}
}

// BenchmarkManyRanges is a node that takes another range each time, with a
// request to every peer: 100,000 record locks one after another.
func BenchmarkManyRanges(b *testing.B) {
	for _, held := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			c := newCluster(3)
			for i := range held {
				c.acquire("n00", locks.Ticket{ID: locks.TicketID(i + 1), Owner: 1, Mode: locks.Write, Range: at(2 * i)})
			}
			id := locks.TicketID(held + 1)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				c.acquire("n00", locks.Ticket{ID: id, Owner: 1, Mode: locks.Write, Range: at(2*i + 1)})
				id++
				i = (i + 7919) % max(held, 1<<20)
			}
		})
	}
}

// BenchmarkExpire gives back the permissions for many ranges, one of which is
// held.
func BenchmarkExpire(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		b.StopTimer()
		c := newCluster(3)
		for i := range n {
			id := locks.TicketID(i + 1)
			c.acquire("n00", locks.Ticket{ID: id, Owner: 1, Mode: locks.Write, Range: at(i)})
			if i%2 == 0 {
				c.release("n00", id)
			}
		}
		b.StartTimer()
		c.do("n00", func(m *machine, out *locks.Turn) { m.Expire(out) })
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range []locks.Message{
		&request{tag: tag{7, 1}, sn: 3, n: 4, mode: locks.Write, rng: locks.Whole},
		&reply{tag: tag{7, 1}, yes: true, token: locks.TokenFloor(3) + 9},
	} {
		kind, _, _ := strings.Cut(m.String(), " ")
		b.Run("kind="+kind, func(b *testing.B) {
			bytes := m.Append(nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode(bytes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
