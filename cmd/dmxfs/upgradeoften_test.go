package main

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
)

var upgradeTimes = flag.Int("upgrade.times", 0, "how often TestUpgradesWithTakeover upgrades each of two hosts; 0: a few times")

// Programs of many kinds run on two hosts that are mounted with --takeover and upgraded
// again and again. They notice nothing. An upgrade to a program that does not start changes
// nothing: the same process serves, with the same keeper, of the same generation.
func TestUpgradesWithTakeover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	needTool(t, "sqlite3", "git")
	seed := cmp.Or(*outliveSeed, rand.Uint64())
	t.Logf("-outlive.seed=%d", seed)
	c := newCluster(t, 2, withTakeover()...)
	times := cmp.Or(*upgradeTimes, long.Or(2, 3))
	dies := successorFile(t, diesAtStart)
	kinds := []string{"counter-flock", "counter-fcntl", "counter-ofd", "queue", "content", "shared", "replace", "append", "mkdir", "sqlite", "git", "probe"}
	var calls, locks []time.Duration
	x := newOutlive(t, rand.New(rand.NewPCG(seed, 0)), c, c.src, kinds)
	x.run(time.Duration(times)*15*time.Second, func(x *outliving, _ time.Duration) {
		for i := range times {
			for _, m := range c.mounts {
				before, keepers := m.mayTakeOver(), m.keeperPIDs()
				if i%5 == 1 {
					if out, err := c.try("upgrade", "--program", dies, m.dir); err == nil {
						t.Errorf("an upgrade to a program that dies: %s", out)
					}
					if x := m.takeover(); x != before || !slices.Equal(m.keeperPIDs(), keepers) {
						t.Errorf("after that: %+v, keepers %v; before: %+v, %v", x, m.keeperPIDs(), before, keepers)
					}
				}
				u := m.upgraded()
				calls = append(calls, time.Duration(u.PauseMS)*time.Millisecond)
				locks = append(locks, time.Duration(u.LocksMS)*time.Millisecond)
				if after := m.mayTakeOver(); after.Count != before.Count {
					t.Errorf("after upgrade %d: %+v, before: %+v", i, after, before)
				}
			}
			if !x.unharmed() {
				return
			}
			x.awaitSteps("after an upgrade")
		}
	})
	t.Logf("no call was answered: %s", quantiles(calls))
	t.Logf("no lock was granted: %s", quantiles(locks))
	for _, m := range c.mounts {
		if n := strings.Count(m.log(), "upgraded from"); n != times {
			t.Errorf("%d upgrades of %s are logged, of %d", n, m.dir, times)
		}
	}
}
