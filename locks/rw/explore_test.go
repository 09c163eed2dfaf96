package rw

import (
	"testing"
	"time"

	"dmxfs/locks/locktest"
)

func TestExploreTmp(t *testing.T) {
	for _, c := range []locktest.Config{
		{Nodes: []string{"W A", "W A"}},
		{Nodes: []string{"W A", "W A", "W A"}},
		{Nodes: []string{"W A, R A", "W A, R A"}},
		{Nodes: []string{"W A, R A", "W A, R A"}, Expires: 1, Drops: 1},
		{Nodes: []string{"W A, R A o1", "W A, R A o1"}, Overtakes: 1, Cancels: 1},
		{Nodes: []string{"W A, W A", "W A"}, Views: []string{"n0,n1"}, Expires: 1},
		{Nodes: []string{"W A", "W A"}, Views: []string{"n0,n1,n2"}, Drops: 1, Expires: 1},
		{Nodes: []string{"W A", "R A", "W A"}, Atomic: true, Views: []string{"n0,n1"}},
		{Nodes: []string{"W A try", "W A try", "W A try"}},
		{Nodes: []string{"W A try, W A", "W A try"}, Cancels: 1, Expires: 1, Drops: 2},
	} {
		c.Limit = 200000
		start := time.Now()
		r, err := locktest.Explore(Algorithm, options, c)
		t.Logf("%v: %v %v", c, r, time.Since(start))
		if err != nil {
			t.Error(err)
		}
	}
}
