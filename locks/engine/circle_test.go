package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Three programs wait in a circle in which one waits for nothing but its turn: it
// goes before its turn soon, however long something else was in its way before,
// and nobody is told of a deadlock, since there is none.
func TestACircleThroughAQueueEndsSoon(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, tt := range []struct {
			name string
			held bool // another program has what the one waits for; else its node is unsure
		}{{"behind a held lock", true}, {"on a node that is unsure", false}} {
			t.Run(fmt.Sprintf("%s, nodes %d", tt.name, nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { circle(t, nodes, tt.held) })
			})
		}
	}
}

func circle(t *testing.T, nodes int, held bool) {
	c := newNet(t, nodes)
	at := func(i int) *node { return c.nodes[nodeID(i%nodes)] }
	ask := func(pid int, file string, start, end uint64) *pending {
		p := at(pid).start(byProcess(pid, locks.Posix, file, locks.Write, locks.Range{Start: start, End: end}))
		time.Sleep(50 * time.Millisecond)
		return p
	}
	drop := func(pid int, files ...string) {
		for _, f := range files {
			at(pid).UnlockOwner(locks.Key{File: f, Class: locks.Posix}, locks.OwnerID(pid))
		}
	}
	mustGrant(t, ask(1, "f", 0, 1))
	mustGrant(t, ask(3, "g", 0, 1))
	if held {
		mustGrant(t, ask(4, "f", 1, 2))
	}
	second := ask(2, "f", 0, 2) // waits for the first
	third := ask(3, "f", 1, 2)  // its turn is after the second
	first := ask(1, "g", 0, 1)  // waits for the third
	at(3).dead.Store(!held)
	time.Sleep(40 * time.Second)
	for i, p := range []*pending{first, second, third} {
		if p.is() {
			t.Fatalf("program %d does not wait: %v", i+1, p.err)
		}
	}
	if held {
		drop(4, "f")
	} else {
		at(3).dead.Store(false)
		at(3).Resume()
	}
	began := time.Now()
	mustGrant(t, third)
	drop(3, "f", "g")
	mustGrant(t, first)
	drop(1, "f", "g")
	mustGrant(t, second)
	if d := time.Since(began); d > 11*time.Second {
		t.Errorf("they stood still for %v", d)
	}
	drop(2, "f")
	c.check()
}
