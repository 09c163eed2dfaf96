package rcv

import (
	"fmt"
	"strings"
)

// Check verifies the invariants of the package comment that one node can see.
func (c *core) Check() error {
	for n, w := range c.info.rows {
		for i, r := range w.log {
			if r.SN <= c.info.rows[r.Node].ordered {
				return fmt.Errorf("V2: %v has a place, but is in the log of %d", r, n)
			}
			for _, o := range w.log[:i] {
				if o == r {
					return fmt.Errorf("V2: %v is twice in the log of %d", r, n)
				}
			}
		}
	}
	p := c.info.position(c.my)
	switch {
	case c.in && p != c.info.start+1:
		return fmt.Errorf("V4: the lock is here, but %v is at %d of %v", c.my, p, c.info)
	case !c.my.None() && !c.in && p == 0 && c.info.rows[c.self()].ordered >= c.my.SN:
		return fmt.Errorf("V3: %v has a place that is not in the list", c.my)
	case c.my.None() && (c.in || c.zombie || !c.next.None() || len(c.asks) > 0):
		return fmt.Errorf("something is left of a request that is over")
	case c.site.Used() && len(c.asks) > 0:
		return fmt.Errorf("V6: the lock is used, but %v has not been told", c.asks[0].Request)
	case c.sealed != nil && (!c.my.None() || len(c.probes) > 0):
		return fmt.Errorf("V7: sealed, with a request under way")
	case c.sealed == nil && (c.deferred != nil || len(c.parked) > 0):
		return fmt.Errorf("V7: something waits for the end of a seal that is over")
	case c.closing != nil && !c.closing.abandoned && (!c.in || c.site.Used()):
		return fmt.Errorf("V7: a closing goes on, but the lock is used or gone")
	}
	return nil
}

func (c *core) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "my=%v", c.my)
	if c.in {
		b.WriteString(" in")
	}
	if c.zombie {
		b.WriteString(" zombie")
	}
	if !c.next.None() {
		fmt.Fprintf(&b, " next=%v", c.next)
	}
	for _, q := range c.asks {
		fmt.Fprintf(&b, " asked %v", q)
	}
	if len(c.probes) > 0 {
		fmt.Fprintf(&b, " probes=%v", c.probes)
	}
	return fmt.Sprintf("%s; %v%v", &b, c.info, &c.forgetting)
}
