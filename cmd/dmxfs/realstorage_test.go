package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

// The locks hand the data over on real storage, too: these tests are those of
// coherence_test.go, over two clients of servers that they start. They are
// small in CI, and of full size with -storage.full (make storage).

var storageFull = flag.Bool("storage.full", false, "the tests over real storage count as far as docs/storage.md says")

var realKinds = []clientKind{
	{name: "GlusterFS without caches", serve: func(t testing.TB, dir string) func(string) {
		return serveGluster(t, dir, "quick-read", "md-cache")
	}},
	{name: "MooseFS", serve: serveMoose},
	{name: "sshfs", start: startSSHFS},
	{name: "sshfs with kernel_cache", start: func(t testing.TB, source, mountpoint string) {
		startSSHFSWith(t, source, mountpoint, ",cache=yes,kernel_cache")
	}},
}

// size is how often something is done: n times, or with -storage.full full.
func size(n, full int) int {
	if *storageFull {
		return full
	}
	return n
}

// One cluster serves for all parts: some storage takes ten seconds to begin.
func TestOverRealStorage(t *testing.T) {
	needTool(t, "sqlite3")
	for _, kind := range realKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			// What the age of listings matters for is not tested here, and
			// waiting for it takes a minute.
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			t.Run("counters", func(t *testing.T) { runCounters(t, c, size(2, 4), size(5, 100)) })
			t.Run("SQLite", func(t *testing.T) { runSQLite(t, c, size(3, 100)) })
			t.Run("turns", func(t *testing.T) { runTurns(t, c, size(1, 20)) })
		})
	}
}

// runTurns changes files in turns, each after a second of idleness. Clients
// keep for a second, or for the rest of one, what they have looked at: the
// turn that comes then finds their caches full, and old.
func runTurns(t *testing.T, c *testCluster, n int) {
	const idle = "1050"
	a, b := c.mounts[0], c.mounts[1]
	for i, lock := range []string{"flock self kept", "flock self anew", "fcntl lockfile anew", "ofd self kept"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			dir := fmt.Sprintf("turns-%d", i)
			if out, code := a.sh("mkdir " + dir); code != 0 {
				t.Fatal(out)
			}
			write(t, a.path(dir+"/data"), "")
			args := append(strings.Fields(lock), fmt.Sprint(n), a.path(dir), b.path(dir), idle)
			if out, code := a.helper("rounds", args...).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
	t.Run("rename", func(t *testing.T) {
		t.Parallel()
		if out, code := a.helper("replace", "flock", fmt.Sprint(6*n), a.dir, b.dir, idle).wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}
