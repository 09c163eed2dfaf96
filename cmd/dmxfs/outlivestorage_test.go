package main

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// overStorage are the kinds of programs of TestProgramsOutliveTheDaemonOverRealStorage:
// counters under each kind of lock, a database, files that are replaced, and locks by name.
var overStorage = []string{"counter-flock", "counter-fcntl", "counter-ofd", "sqlite", "replace", "mkdir", "excl", "probe"}

// Two hosts have clients of their own of real storage, which keep what they have read and
// have asked for. Their daemons are killed again and again, and programs notice nothing but
// what docs/takeover.md says of such clients: EIO for names that are changed without a lock.
func TestProgramsOutliveTheDaemonOverRealStorage(t *testing.T) {
	if !*storageFull {
		t.Skip("takes minutes, most of them for listings that clients keep: see make storage")
	}
	needTool(t, "sqlite3")
	patienceOfTests = 15 * time.Minute // sqlite3 waits by trying, which others are faster at
	seed := cmp.Or(*outliveSeed, rand.Uint64())
	t.Logf("-outlive.seed=%d", seed)
	lasts := cmp.Or(*outliveTime, time.Minute)
	for _, kind := range realKinds {
		part(t, kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, withTakeover()...)
			x := newOutlive(t, rand.New(rand.NewPCG(seed, 0)), c, c.mounts[0].dir, overStorage)
			x.numbers = !strings.HasPrefix(kind.name, "sshfs")
			x.run(lasts, (*outliving).killDaemons)
		})
	}
}
