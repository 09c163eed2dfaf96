package sim

import (
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/maekawa"
	"github.com/dmxfs/dmxfs/locks/rcv"
	"github.com/dmxfs/dmxfs/locks/ring"
	"github.com/dmxfs/dmxfs/locks/rw"
	"github.com/dmxfs/dmxfs/sim/baseline"
)

// Machine is the part of [locks.Machine] that a world without failures needs.
type Machine interface {
	Acquire(t locks.Ticket, out *locks.Turn)
	Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn)
	Expire(out *locks.Turn)
	Receive(from locks.NodeID, m locks.Message, out *locks.Turn) error
}

// Algorithm is what a simulation is made for.
type Algorithm struct {
	Name string
	// About says in a few words what it is.
	About string
	// Shared: readers can be in the CS together.
	Shared bool
	// New makes a machine; keep is false if it is to give back what it has as
	// soon as a CS ends.
	New func(c locks.Config, keep bool) Machine
	// Decode is nil for a baseline, whose messages nobody needs to read.
	Decode func([]byte) (locks.Message, error)
}

// Algorithms are all that can be simulated: first the shipped ones, by the
// names that they have in rules; then the same where the papers leave another
// choice; then the baselines.
func Algorithms() []Algorithm {
	return []Algorithm{
		shipped("rw", "the default: readers and writers, permissions kept", rw.Algorithm, rw.Algorithm),
		shipped("rcv", "relative consensus voting", rcv.Algorithm, rcv.With(rcv.Options{Eager: true})),
		shipped("maekawa", "quorums of projective planes", maekawa.Algorithm, maekawa.With(maekawa.Options{Eager: true})),
		shipped("ring", "several tokens on a ring", ring.Algorithm, ring.With(ring.Options{Eager: true})),
		shipped("rcv-uniform", "rcv whose requests go to any node next, as in its paper",
			rcv.With(rcv.Options{Uniform: true}), rcv.With(rcv.Options{Uniform: true, Eager: true})),
		shipped("maekawa-grid", "maekawa with the row and column of a grid as quorum",
			maekawa.With(maekawa.Options{Quorum: maekawa.Grid}), maekawa.With(maekawa.Options{Quorum: maekawa.Grid, Eager: true})),
		compared(baseline.RicartAgrawala, "permissions of all"),
		compared(baseline.SuzukiKasami, `one token, asked of all: "Broadcast" in the papers`),
		compared(baseline.Liu, "the whole-file read/write form of Liu et al., mended"),
	}
}

// shipped is an algorithm that is used on mounts, and its form that gives back
// at once.
func shipped(name, about string, keeps, eager locks.Algorithm) Algorithm {
	return Algorithm{
		Name: name, About: about, Shared: keeps.Shared, Decode: keeps.Decode,
		New: func(c locks.Config, keep bool) Machine {
			if keep {
				return keeps.New(c)
			}
			return eager.New(c)
		},
	}
}

func compared(a baseline.Algorithm, about string) Algorithm {
	return Algorithm{
		Name: a.Name, About: about, Shared: a.Shared,
		New: func(c locks.Config, _ bool) Machine { return a.New(c.View) },
	}
}

// Find is the algorithm of that name.
func Find(name string) (Algorithm, error) {
	var names []string
	for _, a := range Algorithms() {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Algorithm{}, fmt.Errorf("unknown algorithm %q (known: %s)", name, strings.Join(names, ", "))
}
