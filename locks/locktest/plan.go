package locktest

import (
	"fmt"
	"math/rand/v2"
)

// A shape is how the scheduler chooses among what can happen.
type shape uint8

const (
	uniform       shape = iota
	newestFirst         // the channel whose first message is the newest
	slowNode            // one node's messages come last
	slowDirection       // one channel's messages come last
	longHolds           // nobody releases while anything else can happen
	fastNet             // messages come before programs do anything
	shapes
)

func (s shape) String() string {
	return [...]string{"uniform", "newest first", "slow node", "slow direction", "long holds", "fast net"}[s]
}

// A plan is what a random run is made of, all of it decided by the seed.
type plan struct {
	nodes   int
	tickets int // per node
	owners  int
	bytes   int
	reads   int // per cent
	tries   int // per cent
	shape   shape
	slow    [2]int // the slow node, or direction
	// How many of each disturbance at most.
	cancels, overtakes, expires, replaces, drops, suspends, epochs, dups int
	steps                                                                int
	// What else is checked: that nobody is passed, and that the only node
	// that writes never reads in again what it has written itself.
	fair, oneWriter bool
}

func (p plan) String() string {
	return fmt.Sprintf("%d nodes, %d tickets each, %d owners, %d bytes, %d%% reads, %d%% tries, %v", p.nodes, p.tickets, p.owners, p.bytes, p.reads, p.tries, p.shape)
}

func newPlan(rng *rand.Rand, opt Options) plan {
	most := opt.MaxNodes
	if most == 0 {
		most = 9
	}
	p := plan{
		nodes:   2 + rng.IntN(3),
		tickets: 1 + rng.IntN(6),
		owners:  1 + rng.IntN(3),
		bytes:   1 + rng.IntN(4),
		reads:   []int{0, 0, 20, 50, 90}[rng.IntN(5)],
		tries:   []int{0, 0, 20, 50, 100}[rng.IntN(5)],
		shape:   shape(rng.IntN(int(shapes))),
	}
	if rng.IntN(4) == 0 {
		p.nodes = 2 + rng.IntN(most-1)
	}
	if rng.IntN(30) == 0 {
		p.nodes = 1
	}
	p.nodes = min(p.nodes, most)
	if n := max(*flagNodes, opt.Nodes); n > 0 {
		p.nodes = n
	}
	p.slow = [2]int{rng.IntN(p.nodes), rng.IntN(p.nodes)}
	scale := rng.IntN(3) // none, some, many
	if scale > 0 {
		up := func(n int) int { return rng.IntN(n*scale + 1) }
		p.cancels, p.overtakes, p.expires, p.replaces = up(5), up(10), up(8), up(5)
		p.drops, p.suspends = up(5), up(2)
		if opt.Duplicates {
			p.dups = up(10)
		}
		if rng.IntN(3) == 0 {
			p.epochs = up(3)
		}
	}
	switch rng.IntN(16) {
	case 0, 1:
		p.fair = opt.Asks != nil
	case 2, 3:
		p.oneWriter = opt.Spares
	case 4: // overtakers meet behind long holds
		p.shape, p.tries, p.overtakes = longHolds, 0, 20
		p.bytes, p.reads = 2+rng.IntN(2), 50
	case 5: // tries of one node meet
		p.tries, p.bytes, p.owners, p.tickets = 80, 4, 3, 6
	case 6: // what is kept is given back again and again
		p.shape, p.expires, p.drops, p.bytes = fastNet, 20, 20, 1+rng.IntN(2)
	case 7: // waits are given up behind others
		p.cancels, p.tries, p.tickets, p.bytes = 20, 0, 6, 1
	}
	if p.fair { // without what may pass
		p.tries, p.cancels, p.overtakes, p.replaces, p.drops = 0, 0, 0, 0, 0
		p.owners, p.bytes = 1<<30, 1
	}
	if opt.Nodes > 0 {
		p.epochs = 0
	}
	p.steps = 3000 + 400*p.nodes*p.nodes*p.tickets
	return p
}
