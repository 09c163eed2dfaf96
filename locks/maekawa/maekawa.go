package maekawa

import (
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// Algorithm is "maekawa" of the rules: exclusive locks by votes of quorums. It keeps the lock
// until a member wants it; for other variants see [With].
var Algorithm = With(Options{})

// Options choose a variant.
type Options struct {
	// Eager: the lock is given back at once, as in the paper, rather than kept
	// until a member wants it.
	Eager bool
	// Quorum chooses the quorums; nil is [Quorum]. All members must have the
	// same.
	Quorum func(n, i int) []int
}

// With makes a variant of the algorithm, of the same name and messages.
func With(o Options) locks.Algorithm {
	if o.Quorum == nil {
		o.Quorum = Quorum
	}
	return locks.Algorithm{
		Name: "maekawa",
		New: func(c locks.Config) locks.Machine {
			make := func(s *exclusive.Site) exclusive.Core { return &core{site: s, opt: o} }
			return exclusive.New(c, exclusive.Options{Name: "maekawa", Eager: o.Eager}, make)
		},
		Decode: exclusive.Decoder("maekawa", read),
	}
}

// core is both roles of a node: the one that asks, and the arbiter.
type core struct {
	site *exclusive.Site
	opt  Options
	requester
	arbiter
	// mail is what one role has said to the other and is not yet handled.
	mail []locks.Message
}

// send says m to a node. What it says to itself is handled before the step is
// over, and is no message.
func (c *core) send(to int, m locks.Message) {
	if to == c.site.Self() {
		c.mail = append(c.mail, m)
		return
	}
	c.site.Send(to, m)
}

// settle handles what the roles say to each other.
func (c *core) settle() {
	for len(c.mail) > 0 {
		m := c.mail[0]
		c.mail = c.mail[1:]
		c.handle(c.site.Self(), m)
	}
	c.mail = nil
}

func (c *core) handle(from int, msg locks.Message) {
	switch msg := msg.(type) {
	case *request:
		c.onRequest(msg)
	case *release:
		c.onRelease(msg)
	case *relinquish:
		c.onRelinquish(msg)
	case *using:
		c.onUsing(msg)
	case *locked:
		c.onLocked(from, msg)
	case *failed:
		c.onFailed(from, msg)
	case *inquire:
		c.onInquire(from, msg)
	case *wanted:
		c.onWanted(from, msg)
	case *denied:
		if c.waits(msg.Request) {
			c.site.Deny(msg.ask)
		}
	}
}

// Restore begins an epoch: quorums are those of the new view, and an arbiter is
// locked for the holder if it is in the holder's quorum.
func (c *core) Restore(holder int, sn uint64) {
	*c = core{site: c.site, opt: c.opt}
	if holder < 0 {
		return
	}
	h := exclusive.Request{SN: sn, Node: holder}
	if holder == c.site.Self() {
		c.my, c.in = h, true
		c.members = c.quorum()
		for i := range c.members {
			c.members[i].grant = 1
		}
	}
	if c.arbitrates(holder) {
		c.lock, c.grant = entry{Request: h}, c.site.Tick()
	}
}

// Idle reports whether there is nothing to remember. While a request of this
// node is open its own vote is given, to it or to another. Stamps and numbers
// of grants are clocks, and so do not come again.
func (c *core) Idle() bool { return c.lock.None() }
