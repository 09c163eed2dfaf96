package maekawa

import (
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// Check verifies the invariants of the package comment that one node can see.
func (c *core) Check() error {
	if len(c.mail) > 0 {
		return fmt.Errorf("a turn ended with something to handle")
	}
	if c.lock.None() && len(c.queue) > 0 {
		return fmt.Errorf("M2: %v waits, but the vote is free", c.queue[0].Request)
	}
	for i, e := range c.queue {
		switch {
		case i > 0 && !c.queue[i-1].Precedes(e.Request):
			return fmt.Errorf("%v is out of order", e.Request)
		case i > 0 && !e.failed:
			return fmt.Errorf("M4: %v is not the first, but has no FAILED", e.Request)
		case c.lock.Precedes(e.Request) && !e.failed:
			return fmt.Errorf("M4: the vote went to %v, but %v has no FAILED", c.lock.Request, e.Request)
		case e.Precedes(c.lock.Request) && !c.inquired:
			return fmt.Errorf("M5: %v precedes %v, but there was no INQUIRE", e.Request, c.lock.Request)
		case e.ask > 0 && c.asking == 0:
			return fmt.Errorf("M6: %v asks, but the owner of the vote has not been asked", e.Request)
		}
	}
	for _, m := range c.members {
		switch {
		case c.in && m.grant == 0:
			return fmt.Errorf("M3: the lock is here without the vote of %d", m.node)
		case m.grant > 0 && m.failed:
			return fmt.Errorf("member %d has failed and is held", m.node)
		case c.site.Used() && m.ask > 0:
			return fmt.Errorf("M6: the lock is used, but member %d has not been told", m.node)
		}
	}
	if c.my.None() && (c.in || len(c.members) > 0) {
		return fmt.Errorf("votes without a request")
	}
	return nil
}

func (c *core) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "my=%v", c.my)
	flag := func(is bool, name string) {
		if is {
			b.WriteString(" " + name)
		}
	}
	flag(c.in, "in")
	flag(c.wanted, "wanted")
	for _, m := range c.members {
		fmt.Fprintf(&b, " %d:", m.node)
		flag(m.grant == 0, "-")
		for _, n := range []struct {
			name  string
			value uint64
		}{{"#", m.grant}, {"relinquished #", m.relinquished}, {"inquired #", m.inquired}, {"ask=", m.ask}} {
			if n.value > 0 {
				fmt.Fprintf(&b, " %s%v", n.name, locks.Token(n.value))
			}
		}
		flag(m.failed, "failed")
	}
	if c.lock.None() {
		return b.String()
	}
	fmt.Fprintf(&b, "; vote %v #%v", c.lock, locks.Token(c.grant))
	flag(c.inquired, "inquired")
	flag(c.told, "told")
	if c.asking > 0 {
		fmt.Fprintf(&b, " asking=%v", locks.Token(c.asking))
	}
	for _, e := range c.queue {
		fmt.Fprintf(&b, "; queue %v", e)
	}
	return b.String()
}

func (e entry) String() string {
	s := e.Request.String()
	if e.failed {
		s += " failed"
	}
	if e.ask > 0 {
		s += fmt.Sprintf(" ask=%d", e.ask)
	}
	if e.asked {
		s += " asked"
	}
	return s
}
