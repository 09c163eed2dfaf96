package locktest

import (
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// ExploreExclusive looks at the runs of small worlds of an algorithm that does
// not share: each of these scripts with each of these disturbances, or half of them
// if tests do not run in full. Of two and
// of three nodes that ask once it is all runs.
func ExploreExclusive(t *testing.T, alg locks.Algorithm, opt Options) {
	disturbances := []Config{
		{},
		{Cancels: 1, Agains: 1},
		{Cancels: 2},
		{Expires: 2, Drops: 2},
		{Expires: 1, Cancels: 1},
		{Suspends: 1},
		{Rewrites: 1, Overtakes: 1},
		{Views: []string{"n0,n1"}, Atomic: true},
		{Views: []string{"n1,n2"}, Atomic: true, Expires: 1},
		{Views: []string{"n0,n1,n2"}},
		{Views: []string{"n1,n2", "n1,new"}, Atomic: true},
	}
	if opt.Duplicates {
		disturbances = append(disturbances, Config{Dups: 2}, Config{Dups: 1, Cancels: 1}, Config{Dups: 1, Expires: 1, Drops: 2})
	}
	for h, nodes := range [][]string{
		{"W A, W A o1", "W A, W A o1"},
		{"W A, W A, W A", "W A"},
		{"W A try, W A o1", "W A, W A try"},
		{"W A try, R A o1", "W B try, W A try"},
		{"W A", "W A", "W A"},
		{"W A, W A", "W A", "W A"},
		{"W A try", "W A", "W A try"},
		{"W A, W A o1 try", "W A try", "W A"},
		{"W A", "W A", "W A", "W A"},
		{"W A, W A", "", "W A", "W A try"},
	} {
		for k, c := range disturbances {
			if h%2 != k%2 && !long.OrPure(false, true) {
				continue // each script and each disturbance is in others
			}
			c.Nodes, c.Views = nodes, slices.Clone(c.Views)
			for i, v := range c.Views {
				c.Views[i] = strings.Replace(v, "new", string(nodeID(max(3, len(nodes)))), 1)
			}
			t.Run("", func(t *testing.T) { CheckConfig(t, alg, opt, c) })
		}
	}
	for _, c := range []Config{
		{Nodes: []string{"W A, W A", "W A"}},
		{Nodes: []string{"W A", "W A"}, Cancels: 1},
		{Nodes: []string{"W A", "W A"}, Expires: 2, Drops: 2},
		{Nodes: []string{"W A", "W A"}, Views: []string{"n0,n1"}, Atomic: true},
		{Nodes: []string{"W A try", "W A try"}, Cancels: 1},
		{Nodes: []string{"W A", "W A", "W A"}},
	} {
		t.Run("all", func(t *testing.T) {
			c.Limit = long.Pure(200, 20_000)
			if r := CheckConfig(t, alg, opt, c); !r.Complete && !testing.Short() && !long.Race {
				t.Errorf("not all runs of %v were seen", c)
			}
		})
	}
}
