package baseline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// world is a state of a few nodes: the explorer below visits all that can be
// reached, message by message.
type world struct {
	alg   Algorithm
	nodes []member
	links [][]locks.Message // from*N+to
	held  []grantOf
	steps []string
}

type member struct {
	machine copier
	todo    []locks.Mode // tickets to come, in this order
	next    locks.TicketID
	modes   map[locks.TicketID]locks.Mode
	waiting []locks.TicketID
}

type grantOf struct {
	node int
	id   locks.TicketID
	mode locks.Mode
}

// copier is a machine that the explorer can copy and compare.
type copier interface {
	Machine
	clone() copier
	// state appends all that decides what it does; tickets are told by world.
	state(b []byte) []byte
}

func (w *world) n() int { return len(w.nodes) }

func (w *world) clone() *world {
	c := &world{alg: w.alg, nodes: slices.Clone(w.nodes), links: slices.Clone(w.links), held: slices.Clone(w.held), steps: slices.Clip(w.steps)}
	return c
}

// key is the same for states from which the same can happen.
func (w *world) key(fifo bool) string {
	var b []byte
	for _, n := range w.nodes {
		b = n.machine.state(b)
		for _, m := range n.todo {
			b = append(b, byte(m))
		}
		b = append(b, '|')
		for _, id := range n.waiting {
			b = append(b, byte(id))
		}
		b = append(b, '|')
	}
	for _, l := range w.links {
		texts := make([]string, len(l))
		for i, m := range l {
			texts[i] = string(m.Append(nil))
		}
		if !fifo {
			slices.Sort(texts)
		}
		for _, s := range texts {
			b = append(append(b, byte(len(s))), s...)
		}
		b = append(b, '|')
	}
	return string(b)
}

// turn is a step of node i, on a copy of its machine.
func (w *world) turn(i int, what string, f func(m Machine, out *locks.Turn)) error {
	w.steps = append(w.steps, what)
	n := &w.nodes[i]
	n.machine = n.machine.clone()
	out := &locks.Turn{MayEnter: true}
	f(n.machine, out)
	for _, e := range out.Send {
		to := slices.Index(members(w.n()), e.To)
		if to < 0 || to == i {
			return fmt.Errorf("message to %s", e.To)
		}
		l := i*w.n() + to
		w.links[l] = append(slices.Clip(w.links[l]), e.Msg)
	}
	for _, o := range out.Done {
		at := slices.Index(n.waiting, o.Ticket)
		if at < 0 {
			return fmt.Errorf("outcome for ticket %d of %d, which does not wait", o.Ticket, i)
		}
		n.waiting = slices.Delete(slices.Clone(n.waiting), at, at+1)
		mode := n.modes[o.Ticket]
		for _, g := range w.held {
			if !w.alg.Shared || mode == locks.Write || g.mode == locks.Write {
				return fmt.Errorf("%d and %d are both in", g.node, i)
			}
		}
		w.held = append(w.held, grantOf{i, o.Ticket, mode})
	}
	return nil
}

// after is each state that one step leads to.
func (w *world) after(fifo, clients bool) ([]*world, error) {
	var all []*world
	step := func(i int, what string, change func(*world), f func(Machine, *locks.Turn)) error {
		c := w.clone()
		change(c)
		all = append(all, c)
		if err := c.turn(i, what, f); err != nil {
			return fmt.Errorf("%w after\n%s", err, strings.Join(c.steps, "\n"))
		}
		return nil
	}
	for i, n := range w.nodes {
		busy := len(n.waiting) > 0 || slices.ContainsFunc(w.held, func(g grantOf) bool { return g.node == i })
		if len(n.todo) == 0 || busy && !clients {
			continue
		}
		id, mode := n.next, n.todo[0]
		err := step(i, fmt.Sprintf("%d acquires %v", i, mode), func(c *world) {
			m := &c.nodes[i]
			m.todo, m.next = m.todo[1:], id+1
			m.waiting = append(slices.Clip(m.waiting), id)
		}, func(m Machine, out *locks.Turn) {
			m.Acquire(locks.Ticket{ID: id, Mode: mode, Range: locks.Whole}, out)
		})
		if err != nil {
			return nil, err
		}
	}
	for at, g := range w.held {
		err := step(g.node, fmt.Sprintf("%d releases %v", g.node, g.mode), func(c *world) {
			c.held = slices.Delete(c.held, at, at+1)
		}, func(m Machine, out *locks.Turn) { m.Replace([]locks.TicketID{g.id}, nil, out) })
		if err != nil {
			return nil, err
		}
	}
	for l, packets := range w.links {
		from, to := l/w.n(), l%w.n()
		for at, p := range packets {
			if at > 0 && fifo {
				break
			}
			var failed error
			err := step(to, fmt.Sprintf("%d>%d %v", from, to, p), func(c *world) {
				c.links[l] = slices.Delete(slices.Clone(packets), at, at+1)
			}, func(m Machine, out *locks.Turn) { failed = m.Receive(members(w.n())[from], p, out) })
			if err == nil {
				err = failed
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if len(all) == 0 && slices.ContainsFunc(w.nodes, func(n member) bool { return len(n.waiting) > 0 }) {
		return nil, fmt.Errorf("somebody waits for ever after\n%s", strings.Join(w.steps, "\n"))
	}
	return all, nil
}

func members(n int) []locks.NodeID {
	all := []locks.NodeID{"n0", "n1", "n2", "n3"}
	return all[:n]
}

// script is what each node asks for, such as "RW W R" for three nodes.
func newWorld(alg Algorithm, mutate func(copier) copier, script string) *world {
	each := strings.Fields(script)
	w := &world{alg: alg, links: make([][]locks.Message, len(each)*len(each))}
	for i, s := range each {
		m := alg.New(&locks.View{Epoch: 1, Self: members(len(each))[i], Members: members(len(each))}).(copier)
		if mutate != nil {
			m = mutate(m)
		}
		n := member{machine: m, next: 1, modes: map[locks.TicketID]locks.Mode{}}
		for at, c := range s {
			mode := map[rune]locks.Mode{'R': locks.Read, 'W': locks.Write}[c]
			n.todo = append(n.todo, mode)
			n.modes[locks.TicketID(at+1)] = mode
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

// explore visits every state, nearest first, and returns how many there are.
func explore(w *world, fifo, clients bool) (int, error) {
	seen := map[string]bool{w.key(fifo): true}
	for queue := []*world{w}; len(queue) > 0; queue = queue[1:] {
		next, err := queue[0].after(fifo, clients)
		if err != nil {
			return len(seen), err
		}
		for _, c := range next {
			if k := c.key(fifo); !seen[k] {
				seen[k] = true
				queue = append(queue, c)
			}
		}
	}
	return len(seen), nil
}

func TestExhaustive(t *testing.T) {
	long.NoRace(t)
	for _, c := range []struct {
		alg     Algorithm
		clients bool // a node asks again while it has a ticket
		scripts []string
	}{
		{RicartAgrawala, false, []string{"W", "WWW WWW", "W W W", "WW W W"}},
		{SuzukiKasami, false, []string{"W", "WWW WWW", "W W W", "WW WW W"}},
		{Liu, false, []string{"RW", "RW WR", "WW WW", "W W W", "R W W", "RW W R"}},
		{Liu, true, []string{"RWR", "RW WR", "WR RW", "RW RW", "RWR W", "RR W W", "RW W R"}},
	} {
		for _, s := range c.scripts {
			for _, fifo := range []bool{true, false} {
				states, err := explore(newWorld(c.alg, nil, s), fifo, c.clients)
				t.Logf("%s %q fifo=%v clients=%v: %d states", c.alg.Name, s, fifo, c.clients, states)
				if err != nil {
					t.Errorf("%s %q fifo=%v clients=%v: %v", c.alg.Name, s, fifo, c.clients, err)
				}
			}
		}
	}
}

// The explorer must find what is wrong with these.
func TestExplorerFinds(t *testing.T) {
	long.NoRace(t)
	for _, c := range []struct {
		name   string
		alg    Algorithm
		mutate func(copier) copier
		script string
		want   string
	}{
		{"clock raised only where a reply is deferred", RicartAgrawala, func(m copier) copier { return figureRicart{m.(*ricart)} }, "W W", "both in"},
		{"a token for each", SuzukiKasami, func(m copier) copier {
			m.(*suzuki).token = &suzukiToken{served: make([]uint64, 2)}
			return m
		}, "W W", "both in"},
		{"the token is not passed on", SuzukiKasami, func(m copier) copier { return deafSuzuki{m.(*suzuki)} }, "W W", "waits for ever"},
		{"nobody says that it reads", Liu, func(m copier) copier { return deafLiu{m.(*liu), func(x *liuMsg) { x.reads = false }} }, "RW RW", "both in"},
		{"all is concurrent", Liu, func(m copier) copier { return deafLiu{m.(*liu), func(x *liuMsg) { x.knew = stamp{} }} }, "WW W W", "waits for ever"},
		{"no word of what is over", Liu, func(m copier) copier { return deafLiu{m.(*liu), func(x *liuMsg) { x.floor = stamp{} }} }, "W W W", "waits for ever"},
		{"no word of the own write", Liu, func(m copier) copier { return deafLiu{m.(*liu), func(x *liuMsg) { x.last = stamp{} }} }, "WW WW", "both in"},
		{"no permission comes", Liu, func(m copier) copier { return deafLiu{m.(*liu), func(x *liuMsg) { x.allows = stamp{} }} }, "W W", "waits for ever"},
	} {
		found := ""
		for _, fifo := range []bool{true, false} {
			if _, err := explore(newWorld(c.alg, c.mutate, c.script), fifo, true); err != nil {
				found = err.Error()
				break
			}
		}
		if !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
}

func (m *ricart) clone() copier {
	c := *m
	c.got, c.owed = slices.Clone(m.got), slices.Clone(m.owed)
	return &c
}

func (m *ricart) state(b []byte) []byte {
	b = m.my.append(wire.Uint(b, m.high))
	b = flags(b, m.requesting, m.inCS)
	return stamps(flags(b, m.got...), m.owed)
}

func flags(b []byte, all ...bool) []byte {
	for _, f := range all {
		b = wire.Bool(b, f)
	}
	return b
}

func stamps(b []byte, all []stamp) []byte {
	for _, s := range all {
		b = s.append(b)
	}
	return b
}

func (m *suzuki) clone() copier {
	c := *m
	c.asked = slices.Clone(m.asked)
	if m.token != nil {
		c.token = &suzukiToken{slices.Clone(m.token.served), slices.Clone(m.token.queue)}
	}
	return &c
}

func (m *suzuki) state(b []byte) []byte {
	for _, n := range m.asked {
		b = wire.Uint(b, n)
	}
	b = flags(b, m.requesting, m.inCS, m.token != nil)
	if m.token != nil {
		b = m.token.Append(b)
	}
	return b
}

func (m *liu) clone() copier {
	c := *m
	c.allowed, c.ownKnew, c.rqReads = slices.Clone(m.allowed), slices.Clone(m.ownKnew), slices.Clone(m.rqReads)
	c.rq, c.seen, c.given, c.owed = slices.Clone(m.rq), slices.Clone(m.seen), slices.Clone(m.given), slices.Clone(m.owed)
	c.queue, c.reads = slices.Clone(m.queue), slices.Clone(m.reads)
	return &c
}

func (m *liu) state(b []byte) []byte {
	b = wire.Uint(wire.Uint(b, m.high), m.sub)
	b = stamps(b, []stamp{m.floor, m.last, m.own})
	b = flags(b, m.writing, m.inCS, m.ownReads)
	b = flags(flags(b, m.allowed...), m.rqReads...)
	for _, all := range [][]stamp{m.ownKnew, m.rq, m.seen, m.given, m.owed} {
		b = stamps(b, all)
	}
	b = append(b, byte(len(m.queue)))
	for _, r := range m.reads {
		b = wire.Bool(r.s.append(b), r.active)
	}
	return b
}

// figureRicart is the algorithm as in Fig. 1 of the paper of Liu et al.
type figureRicart struct{ *ricart }

func (m figureRicart) clone() copier { return figureRicart{m.ricart.clone().(*ricart)} }

func (m figureRicart) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	high := m.high
	err := m.ricart.Receive(from, msg, out)
	if len(out.Send) > 0 { // answered at once
		m.high = high
	}
	return err
}

// deafSuzuki hears no request while it is in the critical section.
type deafSuzuki struct{ *suzuki }

func (m deafSuzuki) clone() copier { return deafSuzuki{m.suzuki.clone().(*suzuki)} }

func (m deafSuzuki) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	if m.inCS {
		return nil
	}
	return m.suzuki.Receive(from, msg, out)
}

// deafLiu does not hear all that a message says.
type deafLiu struct {
	*liu
	spoil func(*liuMsg)
}

func (m deafLiu) clone() copier { return deafLiu{m.liu.clone().(*liu), m.spoil} }

func (m deafLiu) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	x := *msg.(*liuMsg)
	m.spoil(&x)
	return m.liu.Receive(from, &x, out)
}
