package fusefs

import (
	"slices"
	"time"
)

// crowding finds out whether those who read requests leave others no place to run, as where
// there are two of both and much to read: each keeps one, also while it waits in read(2) for
// the next request, if that comes so soon that the runtime never takes it away. Messages from
// other hosts then wait for a pause. It sees that by ticks that come late while there are many
// requests. (Where there are few, ticks are late as well: the runtime sleeps for whole
// milliseconds.)
//
// It has no clock and no effect but tell.
type crowding struct {
	tell func(yes bool)

	on    bool
	late  []time.Duration // of the ticks of this window
	first uint64          // requests that had begun before it
	calm  int             // windows since with few requests
}

const (
	// crowdWindow is how many ticks are looked at together.
	crowdWindow = 64
	// crowdRequests is how many requests there are in the window of a crowd.
	crowdRequests = 2000
	// lateTick is by how much later a tick comes than others that had to wait for a
	// place to run. In half of all ticks that is a crowd; under SQLite, or a git clone,
	// it is every fifteenth.
	lateTick = 400 * time.Microsecond
	// calmWindows are so many that the work that made a crowd is over.
	calmWindows = 8
)

// tick is called at each tick, with by how much it is late, but for an error that is the
// same for all, and with the number of requests that have begun so far.
func (c *crowding) tick(late time.Duration, begun uint64) {
	if c.late = append(c.late, late); len(c.late) < crowdWindow {
		return
	}
	many := begun-c.first >= crowdRequests
	switch {
	case !c.on && many && c.isLate():
		c.set(true)
	case !c.on || many:
		c.calm = 0
	default:
		if c.calm++; c.calm == calmWindows {
			c.set(false)
		}
	}
	c.late, c.first = c.late[:0], begun
}

// isLate reports whether half of the ticks of this window came late.
func (c *crowding) isLate() bool {
	first, n := slices.Min(c.late), 0
	for _, x := range c.late {
		if x-first > lateTick {
			n++
		}
	}
	return n*2 >= len(c.late)
}

// rest is called when there are no ticks until the next request, which is the one after
// begun.
func (c *crowding) rest(begun uint64) {
	c.late, c.first = c.late[:0], begun
	if c.on {
		c.set(false)
	}
}

func (c *crowding) set(on bool) {
	c.on, c.calm = on, 0
	c.tell(on)
}
