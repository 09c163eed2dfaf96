package maekawa

import (
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

func TestStories(t *testing.T) { locktest.RunFiles(t, Algorithm, options, "testdata") }

// The example of the paper, and runs in which the paper goes wrong, without
// keeping the lock.
func TestRunsOfThePaper(t *testing.T) {
	for name, quorum := range map[string]func(n, i int) []int{
		"section5": paperQuorum, "section5_node3": paperQuorum, "displaced": Plane,
		"relinquished": Plane, "inquire_first": Plane,
	} {
		t.Run(name, func(t *testing.T) {
			locktest.RunFile(t, With(Options{Eager: true, Quorum: quorum}), options, "testdata/paper/"+name+".txt")
		})
	}
}
