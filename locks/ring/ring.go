package ring

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// Algorithm is "ring" of the rules: exclusive locks by requests that travel round a
// ring. It keeps the lock until a member wants it; for other variants see [With].
var Algorithm = With(Options{})

// Options choose a variant.
type Options struct {
	// Eager: the lock is given back at once, as in the paper, rather than kept
	// until a member wants it.
	Eager bool
}

// With makes a variant of the algorithm, of the same name and messages.
func With(o Options) locks.Algorithm {
	return locks.Algorithm{
		Name: "ring",
		New: func(c locks.Config) locks.Machine {
			return exclusive.New(c, exclusive.Options{Name: "ring", Eager: o.Eager}, newCore)
		},
		Decode: exclusive.Decoder("ring", read),
	}
}

type core struct {
	site *exclusive.Site
	// high is the paper's HSeqNumSeen: the largest stamp heard of here. Stamps
	// follow it and not the clock, which each grant and each message raises:
	// then a request goes behind others that are far away on the ring, and the
	// lock takes up to twice the time from one node to the next. It begins at
	// the clock, which is never behind it.
	high uint64
	// my is the open request, or the one by which the lock is here.
	my exclusive.Request
	in bool
	// queue is the paper's Q: tokens of others, held until my is over.
	queue []exclusive.Request
	// asks are the requests behind my whose owners want to be told when the
	// lock is used here.
	asks []inquiry
}

// An inquiry is a question for the use of the lock before a request has it.
type inquiry struct {
	exclusive.Request
	ask uint64
}

func newCore(s *exclusive.Site) exclusive.Core { return &core{site: s, high: s.Clock()} }

// Request is Rule 1: a token of this node goes round. The stamp is the next
// after high, or sn where that is earlier: a request that asks again in a new
// epoch keeps what it had.
func (c *core) Request(sn, ask uint64) {
	sn = min(sn, c.high+1)
	c.high = max(c.high, sn)
	c.my = exclusive.Request{SN: sn, Node: c.site.Self()}
	if c.site.N() == 1 {
		c.enter()
		return
	}
	c.next(&token{inquiry{c.my, ask}})
}

// Ask sends a question after the token.
func (c *core) Ask(ask uint64) { c.next(&question{inquiry{c.my, ask}}) }

// next sends to the next node of the ring.
func (c *core) next(m locks.Message) { c.site.Send((c.site.Self()+1)%c.site.N(), m) }

func (c *core) enter() {
	c.in = true
	c.site.Enter()
}

// Withdraw lets pass whatever waited for the request. Its own token is dropped
// when it comes home.
func (c *core) Withdraw() { c.done() }

// Release is the second half of Rule 3.
func (c *core) Release() {
	c.site.Leave()
	c.done()
}

// Expire is a release: nobody waits here, or the lock would be gone.
func (c *core) Expire() {
	if c.in {
		c.Release()
	}
}

func (c *core) done() {
	c.my, c.in = exclusive.Request{}, false
	for _, r := range c.queue {
		c.next(&token{inquiry{Request: r}}) // what it asks went on before it
	}
	c.queue, c.asks = nil, nil
}

func (c *core) Has() bool    { return c.in }
func (c *core) SN() uint64   { return c.my.SN }
func (c *core) Wanted() bool { return c.in && len(c.queue) > 0 }

// Used tells all that asked.
func (c *core) Used() {
	for _, q := range c.asks {
		c.tell(q)
	}
	c.asks = nil
}

func (c *core) tell(q inquiry) { c.site.Send(q.Node, &held{q}) }

func (c *core) Receive(_ int, msg locks.Message) error {
	switch msg := msg.(type) {
	case *token:
		if err := c.site.CheckRequest(msg.Request); err != nil {
			return err
		}
		c.onToken(msg)
	case *question:
		if err := c.site.CheckRequest(msg.Request); err != nil {
			return err
		}
		c.see(msg.Request)
		if msg.Node != c.site.Self() && !(c.before(msg.Request) && c.asked(msg.inquiry)) {
			c.next(msg)
		}
	case *held:
		if msg.Node != c.site.Self() {
			return fmt.Errorf("for another node")
		}
		if msg.Request == c.my && !c.in {
			c.site.Deny(msg.ask)
		}
	default:
		return fmt.Errorf("a message of another algorithm")
	}
	return nil
}

// see hears of a request: by its token or by a question that overtook it. Those
// of this node that come later are behind it.
func (c *core) see(r exclusive.Request) { c.high = max(c.high, r.SN) }

// before reports whether this node's request goes before r.
func (c *core) before(r exclusive.Request) bool { return c.in || !c.my.None() && c.my.Precedes(r) }

// onToken is Rule 2, and the first half of Rule 3.
func (c *core) onToken(msg *token) {
	c.see(msg.Request)
	switch {
	case msg.Node == c.site.Self():
		if msg.Request == c.my && !c.in {
			c.enter()
		}
	case !c.before(msg.Request):
		c.next(msg)
	default:
		if i, found := slices.BinarySearchFunc(c.queue, msg.Request, exclusive.Request.Compare); !found {
			c.queue = slices.Insert(c.queue, i, msg.Request)
		}
		if msg.ask > 0 && !c.asked(msg.inquiry) {
			c.next(&question{msg.inquiry})
		}
	}
}

// asked answers a question, or notes it and reports that others may know more:
// those before this node.
func (c *core) asked(q inquiry) (answered bool) {
	if c.site.Used() {
		c.tell(q)
		return true
	}
	i, found := slices.BinarySearchFunc(c.asks, q.Request, func(p inquiry, r exclusive.Request) int { return p.Compare(r) })
	if !found {
		c.asks = slices.Insert(c.asks, i, q)
	}
	c.asks[i].ask = max(c.asks[i].ask, q.ask)
	return false
}

// Restore begins an epoch. Tokens of the one before are gone, also those that
// were held here: their owners send them again.
func (c *core) Restore(holder int, sn uint64) {
	*c = core{site: c.site, high: c.site.Clock()}
	if holder == c.site.Self() {
		c.my, c.in = exclusive.Request{SN: sn, Node: holder}, true
	}
}

// Idle reports whether there is nothing to remember.
func (c *core) Idle() bool { return c.my.None() && len(c.queue) == 0 }

// Check verifies the invariants of the package comment that one node can see.
func (c *core) Check() error {
	for i, r := range c.queue {
		switch {
		case i > 0 && !c.queue[i-1].Precedes(r):
			return fmt.Errorf("the token %v is out of order", r)
		case r.Node == c.site.Self():
			return fmt.Errorf("R1: it holds its own token %v", r)
		case !c.before(r):
			return fmt.Errorf("R2: it holds %v, which goes before its own %v", r, c.my)
		}
	}
	switch {
	case c.my.None() && len(c.queue)+len(c.asks) > 0:
		return fmt.Errorf("R2: it holds tokens or questions without a request")
	case c.site.Used() && len(c.asks) > 0:
		return fmt.Errorf("R3: the lock is used, but %v has not been told", c.asks[0].Request)
	}
	return nil
}

func (c *core) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "high=%v my=%v", locks.Token(c.high), c.my)
	if c.in {
		b.WriteString(" in")
	}
	for _, r := range c.queue {
		fmt.Fprintf(&b, " queue %v", r)
	}
	for _, q := range c.asks {
		fmt.Fprintf(&b, " asked %v", q)
	}
	return b.String()
}
