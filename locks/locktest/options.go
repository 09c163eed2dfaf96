package locktest

import (
	"flag"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Options say what an algorithm claims beyond the contract of locks.Machine,
// and what it bears.
type Options struct {
	// Reorders: messages between two nodes may overtake each other.
	// Duplicates: they may come twice.
	Reorders, Duplicates bool
	// Pair checks an invariant over two nodes that are in the same epoch. The
	// machines are nil where there is none. Quiet: nothing is under way
	// between them.
	Pair func(a, b Side, quiet bool) error
	// Before reports whether waiting ticket a goes before waiting ticket b
	// where they conflict. With it, a ticket that waits while nothing is under
	// way must have a ticket before it or a held one against it, rather than
	// just be connected to a held one.
	Before func(a locks.Machine, ta locks.TicketID, b locks.Machine, tb locks.TicketID) bool
	// Asks is the ticket for which a message asks, or 0. With it is checked
	// that no wait is granted before another that conflicts with it and that
	// its node had heard of when it came; unless something may pass: tries,
	// overtakes, owners with several tickets, dropped machines.
	Asks func(locks.Message) locks.TicketID
	// Spares: Turn.Stale never comes to the only node that writes.
	Spares bool
	// AsksHolders: when nothing is under way, the remote ones of
	// Machine.Blockers of a waiting write are, among others, all nodes that
	// hold something against it.
	AsksHolders bool
	// LaxTries: a try may also be denied because another ticket waits that
	// conflicts with it, or one whose end is not known everywhere.
	LaxTries bool
	// Overtakes: Machine.Overtake moves a ticket in front of all waits. Without
	// it, it does nothing.
	Overtakes bool
	// Remembers: a machine may have to be kept when there is nothing to do.
	Remembers bool
	// MaxNodes bounds a simulation; 0 is 9. Nodes is how many there always are
	// if it is not 0, and then there are no new epochs.
	MaxNodes, Nodes int
}

// Side is one of the two nodes of [Options.Pair].
type Side struct {
	ID      locks.NodeID
	Machine locks.Machine
}

var (
	flagSeeds  = flag.Int("locktest.seeds", 200, "how many random runs")
	flagSeed   = flag.Uint64("locktest.seed", 0, "run this one seed only")
	flagFrom   = flag.Uint64("locktest.from", 1, "first seed of the random runs")
	flagLong   = flag.Bool("locktest.long", false, "explore more, and plant every mutant")
	flagBlind  = flag.Bool("locktest.blind", false, "check only what users of locks can see, not what machines say of themselves")
	flagShrink = flag.Bool("locktest.shrink", true, "look for a shorter run that fails as well")
	flagNodes  = flag.Int("locktest.nodes", 0, "simulate so many nodes in each run")
	flagFor    = flag.Duration("locktest.for", 0, "stop starting new random runs after this time")
)

// stopAt is when no new runs are started.
func stopAt() time.Time {
	if *flagFor == 0 {
		return time.Time{}
	}
	return time.Now().Add(*flagFor)
}
