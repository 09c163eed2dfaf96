package locktest

import (
	"flag"
	"reflect"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// most is how many tickets there are in tests of costs; TestCosts -locktest.most
// 250000 is as many as a process may have.
var most = flag.Int("locktest.most", long.Or(2000, 8000), "how many locks there are in tests of what many of them cost")

// Few is the smaller one of two numbers of locks of which the costs are compared.
func Few() int { return *most / times }

// crowd are the machines of one key on two nodes, of which the first one has all
// the tickets. What they say is delivered at once.
type crowd struct {
	tb    testing.TB
	nodes [2]locks.Machine
	out   locks.Turn
	epoch locks.Epoch
	alg   *locks.Algorithm
}

var crowdIDs = []locks.NodeID{"n0", "n1"}

func newCrowd(tb testing.TB, alg *locks.Algorithm) *crowd {
	c := &crowd{tb: tb, alg: alg, epoch: 1}
	for i, id := range crowdIDs {
		c.nodes[i] = alg.New(locks.Config{View: c.view(id)})
	}
	return c
}

func (c *crowd) view(self locks.NodeID) *locks.View {
	return &locks.View{Epoch: c.epoch, Self: self, Members: crowdIDs}
}

// do is one turn of a node, and all that follows from it.
func (c *crowd) do(i int, f func(locks.Machine, *locks.Turn)) (done []locks.Outcome) {
	type letter struct {
		to  int
		msg locks.Message
	}
	c.out.Reset(true)
	f(c.nodes[i], &c.out)
	var letters []letter
	for {
		done = append(done, c.out.Done...)
		for _, e := range c.out.Send {
			letters = append(letters, letter{1 - i, e.Msg})
		}
		if len(letters) == 0 {
			return done
		}
		l := letters[0]
		letters = letters[1:]
		from := crowdIDs[1-l.to]
		i = l.to
		c.out.Reset(true)
		if err := c.nodes[i].Receive(from, l.msg, &c.out); err != nil {
			c.tb.Fatal(err)
		}
	}
}

func crowdRange(i int) locks.Range {
	return locks.Range{Start: 2 * uint64(i), End: 2*uint64(i) + 1}
}

// take has the first node hold n ranges, of one owner.
func (c *crowd) take(n int) {
	for i := range n {
		c.acquire(locks.Ticket{ID: locks.TicketID(i + 1), Owner: 1, Mode: locks.Write, Range: crowdRange(i)})
	}
}

func (c *crowd) acquire(t locks.Ticket) {
	c.do(0, func(m locks.Machine, out *locks.Turn) { m.Acquire(t, out) })
}

// wait has n owners wait for one that holds all.
func (c *crowd) wait(n int) {
	c.acquire(locks.Ticket{ID: locks.TicketID(n + 1), Owner: 1, Mode: locks.Write, Range: locks.Whole})
	for i := range n {
		c.acquire(locks.Ticket{ID: locks.TicketID(i + 1), Owner: locks.OwnerID(i + 2), Mode: locks.Write, Range: locks.Whole})
	}
}

// end ends the epoch of both.
func (c *crowd) end() map[locks.NodeID][]byte {
	states := map[locks.NodeID][]byte{}
	for i, id := range crowdIDs {
		if s := c.nodes[i].State(); s != nil {
			states[id] = s
		}
	}
	return states
}

// cost is one thing that is done with what many tickets there are.
type cost struct {
	method string
	what   string
	// waits: the many are those that wait, each a thread of a program; there are
	// fewer of these.
	waits bool
	// prepare is not measured; nil: nothing.
	prepare func(c *crowd, n int)
	run     func(c *crowd, n int)
}

func took(c *crowd, n int)   { c.take(n) }
func waited(c *crowd, n int) { c.wait(n) }
func gaveUp(c *crowd, n int) {
	c.take(n)
	for i := range n {
		c.do(0, func(m locks.Machine, out *locks.Turn) { m.Replace([]locks.TicketID{locks.TicketID(i + 1)}, nil, out) })
	}
}

// oneWaits is took, and one more that waits for all of it, as the last ticket.
func oneWaits(c *crowd, n int) {
	c.take(n)
	c.acquire(locks.Ticket{ID: locks.TicketID(n + 1), Owner: 2, Mode: locks.Write, Range: locks.Whole})
}

// costs are for each method of a machine what it costs when there is much.
var costs = []cost{
	{"Acquire", "many of one owner", false, nil, took},
	{"Acquire", "all over what its owner has", false, took, func(c *crowd, n int) {
		c.acquire(locks.Ticket{ID: locks.TicketID(n + 1), Owner: 1, Mode: locks.Write, Range: locks.Whole})
	}},
	{"Acquire", "many that wait", true, nil, waited},
	{"Cancel", "many that wait", true, waited, func(c *crowd, n int) {
		for i := range n {
			c.do(0, func(m locks.Machine, out *locks.Turn) { m.Cancel(locks.TicketID(i+1), out) })
		}
	}},
	{"Replace", "many, one at a time", false, took, func(c *crowd, n int) {
		for i := range n {
			c.do(0, func(m locks.Machine, out *locks.Turn) { m.Replace([]locks.TicketID{locks.TicketID(i + 1)}, nil, out) })
		}
	}},
	{"Replace", "many at once", false, took, func(c *crowd, n int) {
		ids := make([]locks.TicketID, n)
		for i := range ids {
			ids[i] = locks.TicketID(i + 1)
		}
		c.do(0, func(m locks.Machine, out *locks.Turn) { m.Replace(ids, nil, out) })
	}},
	{"Overtake", "many that wait", true, waited, func(c *crowd, n int) {
		for i := range n {
			c.do(0, func(m locks.Machine, out *locks.Turn) { m.Overtake(locks.TicketID(i+1), out) })
		}
	}},
	{"Expire", "what many left", false, gaveUp, func(c *crowd, n int) {
		for more := true; more; {
			c.do(0, func(m locks.Machine, out *locks.Turn) { m.Expire(out); more = out.More })
		}
	}},
	{"Receive", "one that wants all", false, took, func(c *crowd, n int) {
		c.do(1, func(m locks.Machine, out *locks.Turn) {
			m.Acquire(locks.Ticket{ID: 1, Owner: 1, Mode: locks.Write, Range: locks.Whole}, out)
		})
	}},
	{"Resume", "many of one owner that wait", true, func(c *crowd, n int) {
		c.acquire(locks.Ticket{ID: locks.TicketID(n + 1), Owner: 1, Mode: locks.Write, Range: locks.Whole})
		for i := range n {
			c.out.Reset(false)
			c.nodes[0].Acquire(locks.Ticket{ID: locks.TicketID(i + 1), Owner: 1, Mode: locks.Write, Range: crowdRange(i)}, &c.out)
		}
	}, func(c *crowd, n int) { c.do(0, func(m locks.Machine, out *locks.Turn) { m.Resume(out) }) }},
	{"State", "many", false, took, func(c *crowd, n int) { c.end() }},
	{"Restore", "many", false, took, func(c *crowd, n int) {
		states := c.end()
		c.epoch++
		for i, id := range crowdIDs {
			c.out.Reset(true)
			if err := c.nodes[i].Restore(c.view(id), states, &c.out); err != nil {
				c.tb.Fatal(err)
			}
		}
	}},
	{"Blockers", "many", false, oneWaits, func(c *crowd, n int) {
		for range n {
			c.nodes[0].Blockers(locks.TicketID(n+1), 16)
		}
	}},
	{"Suspects", "many", false, took, func(c *crowd, n int) {
		for i := range n {
			c.nodes[0].Suspects(locks.Write, crowdRange(i))
		}
	}},
	{"Stamp", "many that wait", true, waited, func(c *crowd, n int) {
		for i := range n {
			c.nodes[0].Stamp(locks.TicketID(i + 1))
		}
	}},
	{"Permitted", "what many left", false, gaveUp, func(c *crowd, n int) {
		for from := uint64(0); from < locks.MaxOffset; {
			_, from = c.nodes[0].Permitted(from, 100)
		}
	}},
	{"Wanted", "many", false, oneWaits, each(func(m locks.Machine) { m.Wanted() })},
	{"Idle", "what many left", false, gaveUp, each(func(m locks.Machine) { m.Idle() })},
	{"Token", "many", false, took, each(func(m locks.Machine) { m.Token() })},
	{"Check", "", false, nil, nil}, // is for tests
	{"String", "many", false, took, func(c *crowd, n int) { _ = c.nodes[0].String() }},
}

func each(f func(locks.Machine)) func(*crowd, int) {
	return func(c *crowd, n int) {
		for range n {
			f(c.nodes[0])
		}
	}
}

// Costs fails if a method of the machines of alg costs more for each ticket where
// there are many.
func Costs(t *testing.T, alg *locks.Algorithm) {
	rows := map[string]bool{}
	for _, c := range costs {
		rows[c.method] = true
	}
	for m := range reflect.TypeFor[locks.Machine]().Methods() {
		if !rows[m.Name] {
			t.Errorf("nothing says what %s costs when there is much", m.Name)
		}
	}
	for _, c := range costs {
		if c.run == nil {
			continue
		}
		t.Run(c.method+" "+c.what, func(t *testing.T) {
			n := Few()
			if long.Race || testing.Short() {
				n /= 8 // it is slow
			}
			limit := growth
			if c.waits {
				// Each ticket that enters has those behind it look again, which
				// takes some nanoseconds for each of them: 2 ms for 1000.
				n, limit = min(n, 125), 6.0
			}
			growthWithin(t, limit, n, func(n int) func() {
				w := newCrowd(t, alg)
				if c.prepare != nil {
					c.prepare(w, n)
				}
				return func() { c.run(w, n) }
			})
		})
	}
}
