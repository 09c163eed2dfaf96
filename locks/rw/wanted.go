package rw

import "dmxfs/locks"

// Wanted is the mode of the first peer that waits for what a ticket is held on
// here.
func (m *machine) Wanted() locks.Mode {
	for _, q := range m.owed {
		held := false
		stop := func(*claim) bool {
			held = true
			return false
		}
		overlapping(m.writes, byMode, q.rng, stop)
		if q.mode == locks.Write {
			overlapping(m.reads, byMode, q.rng, stop)
		}
		if held {
			return q.mode
		}
	}
	return 0
}
