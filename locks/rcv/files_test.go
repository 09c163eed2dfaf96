package rcv

import (
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

func TestStories(t *testing.T) { locktest.RunFiles(t, Algorithm, options, "testdata") }

// The shortest runs in which the paper goes wrong, with the way that its
// requests take, and without keeping the lock.
func TestRunsThatBreakThePaper(t *testing.T) {
	opt := options
	opt.Remembers = true
	for name, ways := range map[string]map[int][]int{
		"im":             {0: {1, 2}, 1: {2, 0}},
		"host":           {0: {1, 2}, 1: {0, 2}, 2: {0, 1}},
		"ghost_deadlock": {3: {0, 2, 1}, 0: {1, 3, 2}, 2: {3, 1, 0}},
		"ghost_two":      {2: {0, 3, 1}, 1: {0, 2, 3}, 0: {3, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			route := func(host int, unvisited []int) int {
				i := slices.IndexFunc(ways[host], func(n int) bool { return slices.Contains(unvisited, n) })
				return ways[host][i]
			}
			locktest.RunFile(t, With(Options{Eager: true, route: route}), opt, "testdata/paper/"+name+".txt")
		})
	}
}
