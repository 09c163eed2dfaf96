package rcv

import (
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// Algorithm is "rcv" of the rules: exclusive locks by relative consensus voting. It keeps the lock
// until a member wants it; for other variants see [With].
var Algorithm = With(Options{})

// Options choose a variant.
type Options struct {
	// Eager: the lock is given back at once, as in the paper, rather than kept
	// until a member wants it. Such a machine is never idle but by a new
	// epoch: who finds out that all is over is who has the lock.
	Eager bool
	// Uniform: a request goes next to any node that it has not visited. Else
	// it prefers those whose vote is not known, which takes fewer messages.
	Uniform bool

	// remembers: nothing is ever forgotten. It is for tests with messages that
	// come twice, see Algorithm.
	remembers bool
	// route says, for tests, where the request of a node goes next.
	route func(host int, unvisited []int) int
}

// With makes a variant of the algorithm, of the same name and messages.
func With(o Options) locks.Algorithm {
	return locks.Algorithm{
		Name: "rcv",
		New: func(c locks.Config) locks.Machine {
			return exclusive.New(c, exclusive.Options{Name: "rcv", Eager: o.Eager}, func(s *exclusive.Site) exclusive.Core {
				return newCore(s, o)
			})
		},
		Decode: exclusive.Decoder("rcv", read),
	}
}

type core struct {
	site *exclusive.Site
	opt  Options
	// info is the paper's SI.
	info info
	// my is the open request, or the one by which the lock is here. A zombie
	// is a request that was withdrawn: its tuple is in the logs of others, so
	// it gets its turn, and passes it on.
	my         exclusive.Request
	in, zombie bool
	// next is the paper's Next: who has the lock after my.
	next exclusive.Request
	// asks are the requests behind my whose nodes want to be told when the
	// lock is used here.
	asks []inquiry
	// probes are the numbers of the PROBEs of this node that are under way.
	probes []uint64
	forgetting
}

// An inquiry is a question for the use of the lock before a request has it.
type inquiry struct {
	exclusive.Request
	ask uint64
}

func newCore(s *exclusive.Site, o Options) *core {
	return &core{site: s, opt: o, info: newInfo(s.N())}
}

func (c *core) self() int { return c.site.Self() }

// Request is lines 3 to 13 of the MPM algorithm; but a node whose own vote
// decides needs no message for it.
func (c *core) Request(sn, ask uint64) {
	if c.sealed != nil {
		c.deferred = &inquiry{exclusive.Request{SN: sn, Node: c.self()}, ask}
		c.site.Send(c.sealed.by, &closeMsg{verbHurry, c.sealed.id})
		return
	}
	if c.zombie {
		c.zombie = false
		if ask > 0 {
			c.Ask(ask)
		}
		return
	}
	c.my = exclusive.Request{SN: sn, Node: c.self()}
	c.info.vote(c.self(), c.my)
	c.roam(&roaming{inquiry: inquiry{c.my, ask}, unvisited: c.others()})
}

// others are all nodes but this one.
func (c *core) others() []int {
	var ns []int
	for n := range c.site.N() {
		if n != c.self() {
			ns = append(ns, n)
		}
	}
	return ns
}

// Ask finds out who goes before the open request: by what this node knows
// or, if it does not know its place, by a message that roams as the request.
func (c *core) Ask(ask uint64) {
	q := inquiry{c.my, ask}
	switch {
	case c.deferred != nil:
		c.deferred.ask = ask
	case c.info.position(c.my) > 0:
		c.question(q)
	default:
		c.probes = append(c.probes, ask)
		c.roam(&roaming{inquiry: q, unvisited: c.others(), probe: true})
	}
}

// Withdraw makes the request a zombie.
func (c *core) Withdraw() {
	if c.deferred != nil {
		c.deferred = nil
		return
	}
	c.zombie = true
}

func (c *core) Has() bool    { return c.in }
func (c *core) Wanted() bool { return c.in && !c.next.None() }

func (c *core) SN() uint64 {
	if c.deferred != nil {
		return c.deferred.SN
	}
	return c.my.SN
}

// Used tells all that asked.
func (c *core) Used() {
	c.abandon()
	for _, q := range c.asks {
		c.tell(q)
	}
	c.asks = nil
}

func (c *core) tell(q inquiry) { c.site.Send(q.Node, &held{q}) }

// Release is lines 17 to 24.
func (c *core) Release() {
	c.abandon()
	c.site.Leave()
	next := c.next
	c.info.trim(c.info.position(c.my))
	c.my, c.in, c.next, c.asks = exclusive.Request{}, false, exclusive.Request{}, nil
	if !next.None() {
		c.enter(next)
	}
}

// roam is lines 33 to 53: m is at this node, which has voted.
func (c *core) roam(m *roaming) {
	switch {
	case !c.info.order(m.Request):
		c.forward(m)
	case m.probe:
		c.question(m.inquiry)
		c.reply(m.inquiry)
	default:
		c.notify(m.inquiry)
	}
}

// forward sends m to a node that it has not visited. There is one: when all
// votes are known the order of every request that is known is decided.
func (c *core) forward(m *roaming) {
	var best []int
	for _, n := range m.unvisited {
		if c.opt.Uniform || len(c.info.rows[n].log) == 0 {
			best = append(best, n)
		}
	}
	if len(best) == 0 {
		best = m.unvisited
	}
	if len(best) == 0 {
		return // only by a message that lies about where it has been
	}
	to := c.choose(m, best)
	next := &roaming{inquiry: m.inquiry, probe: m.probe, info: c.info.clone()}
	for _, n := range m.unvisited {
		if n != to {
			next.unvisited = append(next.unvisited, n)
		}
	}
	c.site.Send(to, next)
}

// choose is one of the nodes that are equally good. The choices that the
// algorithm leaves open are hashes of what they are about: nothing is to be
// remembered for them.
func (c *core) choose(m *roaming, best []int) int {
	if c.opt.route != nil {
		return c.opt.route(m.Node, m.unvisited)
	}
	h := mix(m.SN ^ mix(uint64(m.Node)^mix(uint64(len(m.unvisited)))))
	return best[mix(c.site.Seed()^h)%uint64(len(best))]
}

// mix is splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// notify tells whoever has the lock before a request that has been ordered.
func (c *core) notify(q inquiry) {
	p := c.info.position(q.Request)
	switch {
	case p == 0: // it is over
	case p == c.info.start+1:
		c.enter(q.Request)
	default:
		if q.ask > 0 {
			c.question(q)
		}
		before := c.info.at(p - 1)
		if before.Node == c.self() {
			c.inform(before, q.Request)
			return
		}
		c.site.Send(before.Node, &inform{before: before, next: q.Request, info: c.info.clone()})
	}
}

// question asks all that go before q whether they use the lock.
func (c *core) question(q inquiry) {
	p := c.info.position(q.Request)
	for i := c.info.start + 1; i < p; i++ {
		if r := c.info.at(i); r.Node == c.self() {
			c.asked(r, q)
		} else {
			c.site.Send(r.Node, &question{before: r, inquiry: q})
		}
	}
}

// asked: q wants to know whether r, of this node, uses the lock.
func (c *core) asked(r exclusive.Request, q inquiry) {
	switch {
	case r != c.my: // it is over; who comes after it has been asked as well
	case c.in && c.site.Used():
		c.tell(q)
	default:
		for i := range c.asks {
			if a := &c.asks[i]; a.Request == q.Request {
				a.ask = max(a.ask, q.ask)
				return
			}
		}
		c.asks = append(c.asks, q)
	}
}

// enter gives the lock to r.
func (c *core) enter(r exclusive.Request) {
	if r.Node == c.self() {
		c.entered(r)
		return
	}
	c.site.Send(r.Node, &enter{Request: r, info: c.info.clone()})
}

func (c *core) entered(r exclusive.Request) {
	if c.in || r != c.my {
		return // it comes twice
	}
	c.info.trim(c.info.position(r) - 1)
	c.in, c.zombie = true, false
	c.site.Enter()
}

// inform is lines 25 to 32. That a request of this node is over is known here,
// and not guessed from what is in the list.
func (c *core) inform(before, next exclusive.Request) {
	if before != c.my {
		c.enter(next)
		return
	}
	c.next = next
}

// reply ends a probe.
func (c *core) reply(q inquiry) {
	if q.Node == c.self() {
		c.probed(q.ask)
		return
	}
	c.site.Send(q.Node, &probed{q})
}

func (c *core) probed(ask uint64) {
	c.probes = slices.DeleteFunc(c.probes, func(n uint64) bool { return n == ask })
}

// Restore begins an epoch: its order begins with who holds the lock, at every
// node.
func (c *core) Restore(holder int, sn uint64) {
	*c = *newCore(c.site, c.opt)
	if holder < 0 {
		return
	}
	h := exclusive.Request{SN: sn, Node: holder}
	c.info.list = []exclusive.Request{h}
	c.info.rows[holder].ordered = sn
	if holder == c.self() {
		c.my, c.in = h, true
	}
}

// Idle reports whether all members have agreed to forget, or never knew.
func (c *core) Idle() bool {
	return c.my.None() && len(c.probes) == 0 && c.idleForgetting() && c.info.fresh()
}
