package rw

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

func TestConformance(t *testing.T) { locktest.Conformance(t, Algorithm, options) }

// TestExplore looks at all runs of small worlds: each of these scripts with
// each of these disturbances, or half of them if tests do not run in full.
func TestExplore(t *testing.T) {
	long.NoRace(t)
	for i, nodes := range [][]string{
		// Two nodes: writers, readers, upgrades, tries, ranges that overlap.
		{"W A, W A o1", "W A, W A o1"},
		{"W A, R A o1", "R A, W A o1"},
		{"R A, W A", "R A, W A"},
		{"R A, W A", "W A, R A"},
		{"W AB, R B o1", "W A, W B o1"},
		{"W A, W B o1", "W AB, R A"},
		{"R AB, W A", "W B, R AB o1"},
		{"W A try, R A", "W A, W A try"},
		{"W AB try, W A o1", "R A try, W B"},
		{"W A, W AB o1, R B", "R A"},
		{"W A, R A o1, W A o2", "W A"},
		{"W A try, W A try o1, R A", "W A try"},
		// Three nodes.
		{"W A", "W A", "W A"},
		{"W A", "R A", "W A"},
		{"R A, W A", "W A", "R A"},
		{"W AB", "W A", "W B"},
		{"W A try", "W A", "R A"},
		{"W A", "R A, R A o1", "W A try"},
	} {
		for j, c := range []locktest.Config{
			{},
			{Cancels: 1, Agains: 1},
			{Overtakes: 2},
			{Expires: 1, Drops: 2},
			{Rewrites: 1, Expires: 1},
			{Suspends: 1},
			{Cancels: 1, Overtakes: 1, Expires: 1},
			{Views: []string{"n0,n1"}, Atomic: true},
			{Views: []string{"n1,n2"}, Atomic: true, Expires: 1},
			{Views: []string{"n0,n1,n2"}},
			{Views: []string{"n1,n2", "n1,n3"}, Atomic: true},
		} {
			if i%2 != j%2 && !long.Tests() {
				continue // each history and each trouble is in others
			}
			c.Nodes = nodes
			t.Run("", func(t *testing.T) { locktest.CheckConfig(t, Algorithm, options, c) })
		}
	}
}
