package sim

import (
	"fmt"
	"strings"

	"dmxfs/locks"
	"dmxfs/locks/rw"
	"dmxfs/sim/baseline"
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
	New    func(locks.Config) Machine
	// Decode is nil for a baseline, whose messages nobody needs to read.
	Decode func([]byte) (locks.Message, error)
}

// Algorithms are all that can be simulated: first the shipped ones, by the
// names that they have in rules, then the baselines.
func Algorithms() []Algorithm {
	return []Algorithm{
		shipped(rw.Algorithm, "the default: readers and writers, permissions kept"),
		compared(baseline.RicartAgrawala, "permissions of all, 2(N-1) messages"),
		compared(baseline.SuzukiKasami, `"Broadcast" in the papers: one token, asked of all`),
		compared(baseline.Liu, "the whole-file read/write form of Liu et al., mended"),
	}
}

func shipped(a locks.Algorithm, about string) Algorithm {
	return Algorithm{
		Name: a.Name, About: about, Shared: a.Shared, Decode: a.Decode,
		New: func(c locks.Config) Machine { return a.New(c) },
	}
}

func compared(a baseline.Algorithm, about string) Algorithm {
	return Algorithm{
		Name: a.Name, About: about, Shared: a.Shared,
		New: func(c locks.Config) Machine { return a.New(c.View) },
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
