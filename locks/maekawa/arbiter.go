package maekawa

import (
	"slices"

	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// An arbiter is the member of quorums: it has one vote.
type arbiter struct {
	// lock is the request that has the vote, or none.
	lock entry
	// grant is the number of the last LOCKED: a clock, and so never used twice.
	grant uint64
	// inquired: an INQUIRE was sent for this grant; told: its owner knows that
	// another request waits.
	inquired, told bool
	// asking is the number of the question for the lock's use that the owner
	// has not answered, or 0.
	asking uint64
	// queue is the paper's waiting queue, the first in precedence first.
	queue []entry
}

type entry struct {
	exclusive.Request
	// failed: its node has been sent a FAILED since it had the vote last.
	failed bool
	// ask: its node wants to be told of the lock's use, by this number; asked:
	// the owner has been asked on its behalf.
	ask   uint64
	asked bool
}

// arbitrates reports whether this node is in the quorum of that one.
func (c *core) arbitrates(node int) bool {
	return slices.Contains(c.opt.Quorum(c.site.N(), node), c.site.Self())
}

func (c *core) find(r exclusive.Request) (int, bool) {
	return slices.BinarySearchFunc(c.queue, r, func(e entry, r exclusive.Request) int { return e.Compare(r) })
}

// onRequest is step (2).
func (c *core) onRequest(msg *request) {
	r := msg.Request
	if c.lock.None() {
		c.vote(entry{Request: r, ask: msg.ask})
		return
	}
	if c.lock.Request == r {
		c.lock.ask = max(c.lock.ask, msg.ask)
		return
	}
	i, found := c.find(r)
	if found {
		if e := &c.queue[i]; msg.ask > e.ask {
			e.ask, e.asked = msg.ask, false
		}
		c.question()
		return
	}
	c.queue = slices.Insert(c.queue, i, entry{Request: r, ask: msg.ask})
	if i > 0 || c.lock.Precedes(r) {
		c.fail(&c.queue[i])
	} else {
		if len(c.queue) > 1 {
			c.fail(&c.queue[1]) // it is not the first any more
		}
		if !c.inquired {
			c.inquired, c.told = true, true
			c.send(c.lock.Node, &inquire{c.lock.Request, c.grant})
		}
	}
	c.question()
	if !c.told && !c.opt.Eager {
		c.told = true
		c.send(c.lock.Node, &wanted{Request: c.lock.Request})
	}
}

func (c *core) fail(e *entry) {
	if !e.failed {
		e.failed = true
		c.send(e.Node, &failed{e.Request})
	}
}

// vote gives the vote, which is free, to e.
func (c *core) vote(e entry) {
	e.failed, e.asked = false, false
	c.lock, c.grant = e, c.site.Tick()
	c.inquired, c.told, c.asking = false, len(c.queue) > 0, 0
	for i := range c.queue {
		c.queue[i].asked = false
	}
	c.send(e.Node, &locked{e.Request, c.grant, c.told, c.number()})
}

// next gives the vote to the first that waits, or to nobody.
func (c *core) next() {
	c.lock = entry{}
	if len(c.queue) > 0 {
		e := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.vote(e)
	}
}

// onRelease is step (7), and takes a request back.
func (c *core) onRelease(msg *release) {
	if i, found := c.find(msg.Request); found {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	if c.lock.Request == msg.Request {
		c.next()
	}
}

// onRelinquish is step (4).
func (c *core) onRelinquish(msg *relinquish) {
	if msg.Request != c.lock.Request || msg.grant != c.grant {
		return
	}
	e := c.lock
	e.failed = true
	i, _ := c.find(e.Request)
	c.queue = slices.Insert(c.queue, i, e)
	c.next()
}

// question asks the owner of the vote for those that want to know of the
// lock's use. There is one question at a time.
func (c *core) question() {
	if n := c.number(); n > 0 {
		c.told = true
		c.send(c.lock.Node, &wanted{c.lock.Request, n})
	}
}

// number makes the number of a question, 0 if there is none to be asked now.
func (c *core) number() uint64 {
	if c.asking > 0 {
		return 0
	}
	for i := range c.queue {
		if e := &c.queue[i]; e.ask > 0 && !e.asked {
			e.asked = true
			if c.asking == 0 {
				c.asking = c.site.Tick()
			}
		}
	}
	return c.asking
}

// onUsing passes on that the lock is used, to those for whom it was asked.
func (c *core) onUsing(msg *using) {
	if msg.Request != c.lock.Request || msg.ask != c.asking {
		return
	}
	c.asking = 0
	for i := range c.queue {
		if e := &c.queue[i]; e.asked {
			c.send(e.Node, &denied{e.Request, e.ask})
			e.ask, e.asked = 0, false
		}
	}
	c.question()
}
