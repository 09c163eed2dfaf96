package locktest

import (
	"fmt"
	"math/rand/v2"

	"github.com/dmxfs/dmxfs/locks"
)

// A Load is a pattern of use of one key, for counting messages.
type Load struct {
	Nodes int
	// Active is how many of the nodes use the key; 0 is all.
	Active int
	// Turns: they do so in turns, else the next one is drawn.
	Turns bool
	// Saturated: each active node always wants the lock; else only one does at
	// a time, and the net is quiet in between.
	Saturated bool
	// Burst: each active node wants it once, all at once.
	Burst bool
	// Warm: each has had it before the counting begins, and the last one has
	// not given it back.
	Warm bool
	// Reads is the share of tickets that read.
	Reads float64
	// Expire: what is kept is given back after each release.
	Expire bool
	// Acquires is how many tickets are counted; of a burst, how many bursts.
	Acquires int
	Seed     uint64
}

// Messages is how many messages a ticket of that load costs on the average.
func Messages(alg locks.Algorithm, l Load) (float64, error) {
	m := &meter{Load: l, alg: alg, rng: rand.New(rand.NewPCG(l.Seed, 3))}
	if m.Active == 0 {
		m.Active = m.Nodes
	}
	m.start()
	var err error
	total, sent := 0, 0
	switch {
	case l.Burst:
		for range l.Acquires {
			m.start()
			before := m.sent()
			err = m.burst()
			if err != nil {
				break
			}
			sent += m.sent() - before
			total += m.Active
		}
	case l.Saturated:
		err = m.saturate()
		sent, total = m.sent()-m.base, l.Acquires
	default:
		before := m.sent()
		err = m.serial()
		sent, total = m.sent()-before, l.Acquires
	}
	if err != nil {
		return 0, fmt.Errorf("%+v: %w", l, err)
	}
	return float64(sent) / float64(total), nil
}

type meter struct {
	Load
	alg  locks.Algorithm
	rng  *rand.Rand
	w    *world
	id   locks.TicketID
	base int // messages of the warming up
	busy []*ticket
	can  []does // what can happen; kept for its memory
}

func (m *meter) start() {
	m.w = newWorld(m.alg, Options{}, m.Nodes)
	m.w.quick = true
	if m.Warm {
		expire := m.Expire
		for n := range m.Active {
			m.Expire = expire && n < m.Active-1
			m.once(n, false)
		}
		m.Expire = expire
	}
}

func (m *meter) sent() int {
	total := 0
	for _, n := range m.w.sent {
		total += n
	}
	return total
}

func (m *meter) must(o Op) {
	if err := m.w.apply(o); err != nil {
		panic(fmt.Sprintf("locktest: %v: %v", o, err))
	}
}

func (m *meter) acquire(n int, read bool) {
	m.id++
	mode := locks.Write
	if read {
		mode = locks.Read
	}
	m.must(Op{Kind: opAcquire, Node: n, Ticket: locks.Ticket{ID: m.id, Mode: mode, Range: locks.Range{End: 1}}})
}

func (m *meter) release(t *ticket) {
	m.must(Op{Kind: opReplace, Node: t.node.index, Old: []locks.TicketID{t.ID}})
	or := &m.w.oracle
	or.leave(t)
	if m.Expire {
		m.must(Op{Kind: opExpire, Node: t.node.index})
	}
}

// once is a ticket from its beginning to its end.
func (m *meter) once(n int, read bool) {
	m.acquire(n, read)
	if err := settle(m.w, m.w.apply); err != nil {
		panic(err)
	}
	m.release(m.w.oracle.tickets[0])
	if err := settle(m.w, m.w.apply); err != nil {
		panic(err)
	}
}

func (m *meter) serial() error {
	for i := range m.Acquires {
		n := i % m.Active
		if !m.Turns {
			n = m.rng.IntN(m.Active)
		}
		m.once(n, m.rng.Float64() < m.Reads)
	}
	return nil
}

// tickets fills busy: the ticket of each node that has one.
func (m *meter) tickets() {
	if m.busy == nil {
		m.busy = make([]*ticket, m.Nodes)
	}
	clear(m.busy)
	for _, t := range m.w.oracle.tickets {
		m.busy[t.node.index] = t
	}
}

// does is one of the things that can happen: a message comes from a node to another
// one, or the program of a node asks or, with a ticket, releases.
type does struct {
	from, to *node
	n        int
	ticket   *ticket
}

// step does one of the things that can happen, all with the same chance: a
// message comes, a holder releases, or who is in wants asks.
func (m *meter) step(wants func(n int) bool) (acted bool) {
	m.can = m.can[:0]
	m.w.arriving(func(from, to *node) { m.can = append(m.can, does{from: from, to: to}) })
	m.tickets()
	for n := range m.Active {
		if t := m.busy[n]; t == nil && wants(n) || t != nil && t.status == held {
			m.can = append(m.can, does{n: n, ticket: t})
		}
	}
	if len(m.can) == 0 {
		return false
	}
	switch d := m.can[m.rng.IntN(len(m.can))]; {
	case d.from != nil:
		m.must(Op{Kind: opDeliver, Node: d.from.index, To: d.to.index})
	case d.ticket != nil:
		m.release(d.ticket)
	default:
		m.acquire(d.n, m.rng.Float64() < m.Reads)
	}
	return true
}

// saturate counts after a tenth of the tickets.
func (m *meter) saturate() error {
	first := locks.TicketID(m.Acquires / 10)
	began := false
	for m.id < first+locks.TicketID(m.Acquires) {
		if !m.step(func(int) bool { return true }) {
			return fmt.Errorf("nothing can happen")
		}
		if !began && m.id >= first {
			began, m.base = true, m.sent()
		}
	}
	return nil
}

func (m *meter) burst() error {
	for _, n := range m.rng.Perm(m.Active) {
		m.acquire(n, false)
	}
	for m.step(func(int) bool { return false }) {
	}
	if len(m.w.oracle.tickets) > 0 {
		return fmt.Errorf("%v is not over", m.w.oracle.tickets[0])
	}
	return nil
}
