package recent

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

// told is what the program comes to know of its call.
type told uint8

const (
	success told = iota + 1
	failure      // the name is there, or is not
	unknown      // EIO
	mostTold
)

// call is one of a program, whose process is killed in it again and again.
type call struct {
	*world
	p      Pending
	number int // what the name was when it was looked at
	lost   int // so often it took the name away
	result told
}

// begins looks at the name, notes that, and makes the change: or is killed before that, or before
// what came of it is noted.
func (c *call) begins() {
	c.p.LookedFrom = c.now
	c.now += c.Int64N(ms)
	c.p.Before, c.number = c.present, c.made
	c.now += c.Int64N(ms)
	c.p.LookedTo, c.p.Made = c.now, false
	c.now++
	if c.IntN(4) == 0 {
		c.steps(c.IntN(3))
	}
	if c.IntN(3) == 0 {
		return
	}
	done := c.makes(c.p.Kind)
	if done && c.p.Kind == Loses {
		c.lost++
	}
	c.now++
	switch {
	case c.IntN(3) > 0:
	case !done:
		c.result = failure
	case c.IntN(2) == 0:
		c.result = success
	default:
		c.p.Made = true // and killed before it is noted with the request
	}
}

// next is the process after one that was killed at over.
func (c *call) next(over int64) {
	p := &c.p
	p.FoundFrom, p.There = c.now, c.present
	p.Other = p.Before && p.There && c.number != c.made && c.IntN(2) == 0
	unchanged := p.Before && p.There && c.number == c.made
	mine := c.present && c.by == -2
	c.now += c.Int64N(ms)
	p.FoundTo = c.now
	if p.Made { // that is so, whatever has happened since
		c.result = success
		return
	}
	v := NotDone
	if !unchanged && (p.Kind == Loses || p.There) {
		c.steps(c.IntN(3))
		if c.IntN(4) == 0 {
			return // killed before it has asked all
		}
		v = Decide(p, c.answers())
	}
	if c.IntN(4) == 0 {
		return // or before it does anything about it
	}
	switch {
	case v == Unsure:
		c.result = unknown
	case v == Done && p.Kind == Gains && !mine:
		c.result = mostTold // it is another one's
	case v == Done:
		c.result = success
		p.Made = true
	default: // it is begun anew, and others are told that it may have been made
		s := Seen{Begin: p.LookedTo + 1, End: over, Kind: p.Kind}
		c.steps(c.IntN(2))
		c.begins()
		c.seen[0] = append(c.seen[0], s)
	}
}

// A call is begun, and its process is killed, as are those that go on for it, each at any moment:
// before it asks the other hosts, before it does what follows, and when it has made the change
// anew. Whatever the program is told in the end is true, and no name is taken away twice.
func TestDecideIsRightAfterManyKills(t *testing.T) {
	t.Parallel()
	var count [mostTold]int
	kills := 0
	for seed := range uint64(long.Pure(20_000, long.Or(20_000, 500_000))) {
		c := &call{world: newWorld(seed)}
		c.steps(c.IntN(8))
		c.p.Kind = Kind(1 + c.IntN(2))
		c.begins()
		for over := int64(0); c.result == 0; kills++ {
			c.now++
			over = c.now
			c.now++
			c.steps(c.IntN(4))
			c.now++
			c.next(over)
		}
		mine := c.present && c.by == -2
		switch {
		case c.result == mostTold, c.lost > 1,
			c.p.Kind == Loses && c.result != unknown && (c.lost > 0) != (c.result == success),
			c.p.Kind == Gains && c.result == failure && mine:
			t.Fatalf("seed %d: it is told %d, but has the name %v, and has taken it away %d times: %+v", seed, c.result, mine, c.lost, c.p)
		}
		count[c.result]++
	}
	t.Logf("%d kills: %d told of success, %d of failure, %d not known", kills, count[success], count[failure], count[unknown])
	if count[success] < 5000 || count[failure] < 2000 || count[unknown] > (count[success]+count[failure])/2 {
		t.Errorf("the cases are not what they should be: %v", count)
	}
}
