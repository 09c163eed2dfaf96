package maekawa

import (
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// A requester is the node that wants the lock, or has it.
type requester struct {
	// my is the open request, or the one by which the lock is here.
	my exclusive.Request
	in bool
	// members is the quorum of my.
	members []member
	// wanted: an arbiter has another request that waits.
	wanted bool
}

// A member is what a node knows of one of its quorum.
type member struct {
	node int
	// grant is the number of the LOCKED that is held, or 0; relinquished is
	// the largest number of one that was given back.
	grant, relinquished uint64
	// failed: it has locked itself for another request, as far as is known.
	failed bool
	// inquired is the number of the grant that it asked back, or 0.
	inquired uint64
	// ask: it wants to be told of the lock's use, by this number; 0 if not.
	ask uint64
}

func (c *core) quorum() []member {
	q := c.opt.Quorum(c.site.N(), c.site.Self())
	ms := make([]member, len(q))
	for i, n := range q {
		ms[i].node = n
	}
	return ms
}

// member is the one of that node, or nil.
func (c *core) member(node int) *member {
	for i := range c.members {
		if c.members[i].node == node {
			return &c.members[i]
		}
	}
	return nil
}

// waits reports whether r is this node's request, and still open.
func (c *core) waits(r exclusive.Request) bool { return r == c.my && !c.in }

// Request is step (1) of section 4.
func (c *core) Request(sn, ask uint64) {
	c.my = exclusive.Request{SN: sn, Node: c.site.Self()}
	c.members = c.quorum()
	c.Ask(ask)
}

// Ask sends the request once more. An arbiter that knows it notes the question.
func (c *core) Ask(ask uint64) {
	for _, m := range c.members {
		c.send(m.node, &request{c.my, ask})
	}
	c.settle()
}

// Withdraw is a release: no arbiter needs to know the difference.
func (c *core) Withdraw() { c.over() }

// Release is step (6).
func (c *core) Release() {
	c.site.Leave()
	c.over()
}

// Expire is a release that nobody waits for.
func (c *core) Expire() {
	if c.in {
		c.Release()
	}
}

func (c *core) over() {
	r, ms := c.my, c.members
	c.requester = requester{}
	for _, m := range ms {
		c.send(m.node, &release{r})
	}
	c.settle()
}

func (c *core) Has() bool    { return c.in }
func (c *core) SN() uint64   { return c.my.SN }
func (c *core) Wanted() bool { return c.in && c.wanted }

// Used tells all arbiters that asked.
func (c *core) Used() {
	for i := range c.members {
		c.tell(&c.members[i])
	}
	c.settle()
}

func (c *core) tell(m *member) {
	if m.ask > 0 && c.site.Used() {
		c.send(m.node, &using{c.my, m.ask})
		m.ask = 0
	}
}

// onLocked counts a vote; with all of them the node enters, step (5).
func (c *core) onLocked(from int, msg *locked) {
	if msg.Request != c.my {
		// Of a request that is over. If the arbiter heard of that before it
		// heard of the request, it has to hear of it again.
		c.send(from, &release{msg.Request})
		return
	}
	m := c.member(from)
	if c.in || msg.grant <= m.relinquished || msg.grant <= m.grant {
		return
	}
	m.grant, m.failed, m.ask = msg.grant, false, max(m.ask, msg.ask)
	c.wanted = c.wanted || msg.wanted
	for i := range c.members {
		if c.members[i].grant == 0 {
			c.answer()
			return
		}
	}
	c.in = true
	c.site.Enter()
}

func (c *core) onFailed(from int, msg *failed) {
	if m := c.member(from); c.waits(msg.Request) && m.grant == 0 { // else it is older than the vote
		m.failed = true
		c.answer()
	}
}

// onInquire: while the lock is here no member has failed, and the release is
// the answer.
func (c *core) onInquire(from int, msg *inquire) {
	if msg.Request != c.my {
		return
	}
	c.wanted = true
	if m := c.member(from); msg.grant > m.relinquished {
		m.inquired = msg.grant
		c.answer()
	}
}

// answer is step (3): who knows that it does not succeed gives back what it was
// asked for, if it has got it yet. Its member has then locked itself for
// another request, which is a failure as well.
func (c *core) answer() {
	fails := false
	for i := range c.members {
		fails = fails || c.members[i].failed
	}
	if !fails {
		return
	}
	for i := range c.members {
		m := &c.members[i]
		if m.inquired == 0 || m.grant != m.inquired {
			continue
		}
		m.relinquished, m.grant, m.inquired, m.failed, m.ask = m.grant, 0, 0, true, 0
		c.send(m.node, &relinquish{c.my, m.relinquished})
	}
}

func (c *core) onWanted(from int, msg *wanted) {
	if msg.Request != c.my {
		return
	}
	c.wanted = true
	m := c.member(from)
	m.ask = max(m.ask, msg.ask)
	c.tell(m)
}
