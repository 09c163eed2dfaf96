package systemtest

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
)

var flagNodes = flag.Int("system.nodes", long.Pure(10, long.Or(15, 30)), "how many nodes TestViewsOfManyNodes has")

// mostStill is for how long a view may keep nodes from granting, however many they are, where
// each has processors of its own.
const mostStill = time.Second

// Nodes that come, go and die keep many others waiting for no longer than a few.
func TestViewsOfManyNodes(t *testing.T) {
	n := *flagNodes
	w := inBubble(t, options{seed: 1, programs: 1, files: 10 * n, think: 5 * time.Second}, func(w *world) {
		for i := range n {
			w.start(fmt.Sprintf("p%d", i))
		}
		if !w.runUntil(2*time.Minute, w.settled) {
			return
		}
		for _, x := range []struct {
			what string
			do   func()
		}{
			{"a node joins", func() { w.start("more") }},
			{"it leaves", func() { w.ofPeer(w.id("more")).leave() }},
			{"another one joins", func() { w.start("again") }},
			{"it dies", func() { w.ofPeer(w.id("again")).kill() }},
		} {
			began := w.now()
			x.do()
			still, since := time.Duration(0), map[*proc]time.Duration{}
			w.runUntil(time.Minute, func() bool {
				for _, p := range w.procs[:n] {
					if at, ok := since[p]; p.granting() {
						delete(since, p)
					} else if !ok {
						since[p] = w.now()
					} else {
						still = max(still, w.now()-at)
					}
				}
				return w.now() > began+20*ms && len(since) == 0 && w.settled()
			})
			t.Logf("%d nodes, %-18s all grant in the new view after %v, and one did not for %v", n, x.what+":", w.now()-began, still)
			if still > mostStill {
				t.Errorf("%s: a node did not grant for %v", x.what, still)
			}
		}
	})
	if w.check.failed() {
		t.Error(w.final)
	}
}
