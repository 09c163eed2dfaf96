package rcv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// A log is a promise, so a node cannot forget alone: it would vote again where
// its vote has been counted. All forget together. Who has the lock and does not
// use it asks all others, by CLOSE. One with a request under way says BUSY;
// any other is sealed from its SEALED on: it begins and handles nothing. When
// all are sealed, no request is under way anywhere, and nothing that knows of
// one: FORGET. Else REOPEN, and all is as before; so it is when a node that is
// sealed says HURRY, since it has a request to begin, before all have answered.
type forgetting struct {
	closing *closing
	sealed  *seal
	// Of who is sealed: what is to be handled, and the request to be opened,
	// afterwards.
	parked   []parked
	deferred *inquiry
}

// closing is of the node that asked.
type closing struct {
	id      uint64
	missing []int // have not answered
	sealed  []int // wait for the end
	// abandoned: someone is busy, or the lock is used or given away.
	abandoned bool
}

type seal struct {
	by int
	id uint64
}

type parked struct {
	from int
	msg  locks.Message
}

func (f *forgetting) idleForgetting() bool {
	return f.closing == nil && f.sealed == nil && f.deferred == nil
}

// Expire begins to forget. The lock stays here until all have agreed. A probe
// knows of a request as well, and can be under way longer than that.
func (c *core) Expire() {
	switch {
	case !c.in || c.closing != nil || len(c.probes) > 0 || c.opt.remembers:
	case c.site.N() == 1:
		c.forget()
	default:
		c.closing = &closing{id: c.site.Tick(), missing: c.others()}
		for _, n := range c.closing.missing {
			c.site.Send(n, &closeMsg{verbClose, c.closing.id})
		}
	}
}

// forget is for the node that asked: the lock is nobody's.
func (c *core) forget() {
	c.site.Leave()
	*c = *newCore(c.site, c.opt)
}

// abandon ends a closing without success. Each member is let go when it has
// answered, so that the end never comes before the beginning.
func (c *core) abandon() {
	if c.closing != nil {
		c.closing.abandoned = true
		c.goOn()
	}
}

// goOn does what the answers to a closing allow.
func (c *core) goOn() {
	k := c.closing
	done := len(k.missing) == 0
	verb := verbForget
	if k.abandoned {
		verb = verbReopen
	} else if !done {
		return
	}
	for _, n := range k.sealed {
		c.site.Send(n, &closeMsg{verb, k.id})
	}
	k.sealed = nil
	switch {
	case !done:
	case k.abandoned:
		c.closing = nil
	default:
		c.forget()
	}
}

func (c *core) onClose(from int, msg *closeMsg) {
	switch msg.verb {
	case verbClose:
		verb := verbBusy
		if c.my.None() && len(c.probes) == 0 {
			verb = verbSealed
			c.sealed = &seal{from, msg.id}
		}
		c.site.Send(from, &closeMsg{verb, msg.id})
	case verbSealed, verbBusy:
		k := c.closing
		k.missing = slices.DeleteFunc(k.missing, func(n int) bool { return n == from })
		if msg.verb == verbSealed {
			k.sealed = append(k.sealed, from)
		} else {
			k.abandoned = true
		}
		c.goOn()
	case verbHurry:
		if c.closing != nil && c.closing.id == msg.id { // else the end is on its way
			c.abandon()
		}
	case verbForget:
		c.info = newInfo(c.site.N())
		c.unseal()
	case verbReopen:
		c.unseal()
	}
}

// unseal goes on with what was parked, unless it seals again.
func (c *core) unseal() {
	c.sealed = nil
	for len(c.parked) > 0 && c.sealed == nil {
		p := c.parked[0]
		c.parked = c.parked[1:]
		if c.check(p.from, p.msg) == nil {
			c.handle(p.from, p.msg)
		}
	}
	if d := c.deferred; d != nil && c.sealed == nil {
		c.deferred = nil
		c.Request(d.SN, d.ask)
	}
}

func (c *core) checkClose(from int, msg *closeMsg) error {
	switch msg.verb {
	case verbSealed, verbBusy:
		if k := c.closing; k == nil || k.id != msg.id || !slices.Contains(k.missing, from) {
			return fmt.Errorf("nothing of the sort was asked")
		}
	case verbForget, verbReopen:
		if s := c.sealed; s == nil || *s != (seal{from, msg.id}) {
			return fmt.Errorf("this node is not sealed by that")
		}
	}
	return nil
}

func (f *forgetting) String() string {
	var b strings.Builder
	if k := f.closing; k != nil {
		fmt.Fprintf(&b, "; closing %v missing=%v sealed=%v", locks.Token(k.id), k.missing, k.sealed)
		if k.abandoned {
			b.WriteString(" abandoned")
		}
	}
	if s := f.sealed; s != nil {
		fmt.Fprintf(&b, "; sealed by %d %v", s.by, locks.Token(s.id))
	}
	if d := f.deferred; d != nil {
		fmt.Fprintf(&b, "; deferred %v", *d)
	}
	for _, p := range f.parked {
		fmt.Fprintf(&b, "; parked %d: %v", p.from, p.msg)
	}
	return b.String()
}
