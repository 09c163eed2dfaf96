package member

import "fmt"

// silence is rule Drop: which members may be dropped because they are silent.
type silence struct {
	*position
	heartbeats *heartbeats
}

// members are those that rule Drop allows to drop, and whether to wait
// before it is done.
//
// The rule: y is live in no epoch. Not at this one or one before it that this
// node was in: it has promised y nothing for L + delta. Nor in one before
// this node's first: y has spoken to it at an epoch with both in; or this view
// is known for so long that y's last look, had it not shown it, is too old.
func (s *silence) members() (gone []Node, wait bool) {
	var over int64
	cut, soon := 0, false
	for _, y := range s.heartbeats.order {
		if y.heard && y.silent.ms >= s.p.Hears {
			cut++
		}
		by, ok := s.over(y)
		switch {
		case ok && by >= 0:
			gone = append(gone, y.Node)
			over = max(over, by)
		case ok && by >= -2*s.p.Heartbeat:
			soon = true
		}
	}
	if len(gone) == 0 {
		return nil, false
	}
	// The side with more members goes on: who has lost more waits longer. Of
	// several, the first in the view. Members fall silent up to a heartbeat
	// apart, so those that are nearly due are waited for.
	patience := int64(0)
	if cut > 0 {
		patience = min(s.p.WaitMax, s.p.Slope*int64(cut-1)/int64(len(s.heartbeats.order)))
	}
	patience += 50 * int64(min(s.index, 10))
	return gone, over < patience || soon && over < 2*s.p.Heartbeat
}

// over is by how much y is over the limits of rule Drop (negative: how
// much is missing); ok is false while y might be live in an epoch that this
// node was not in.
func (s *silence) over(y *peer) (by int64, ok bool) {
	lim := s.p.Tenure + s.p.Delta
	by = y.silent.ms - lim
	if y.heard {
		return by, true
	}
	known := s.known.ms - (s.p.LookTenure + s.p.lookMargin() + y.Cache)
	return min(by, known), known >= 0
}

// how is why a member is dropped by that rule.
func (s *silence) how(n Node) string {
	y := s.heartbeats.peers[n]
	if y.refuse {
		return y.refuseWhy
	}
	return fmt.Sprintf("silent for %d ms", y.silent.ms)
}
