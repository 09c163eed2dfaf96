package main

import (
	"os"
	"strings"
	"testing"
)

// Storage that is not mounted looks like a directory that nobody shares yet.
// Nothing is founded on it by a mount that was in a cluster before, nor by one
// with --join, and nothing is left there.
func TestNothingIsFoundedOnStorageThatIsNotMounted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	bare := c.dir + "/bare"
	if err := os.Mkdir(bare, 0o755); err != nil {
		t.Fatal(err)
	}
	isBare := func(what string, err error, words ...string) {
		t.Helper()
		if err == nil {
			t.Fatalf("%s: it mounts", what)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\nwant %q in it", what, err, w)
			}
		}
		if strings.Contains(err.Error(), "aside") {
			t.Errorf("%s: %v\nwho follows that has a cluster of its own", what, err)
		}
		if list, err := os.ReadDir(bare); err != nil || len(list) != 0 {
			t.Errorf("%s: %v %v is left in the directory", what, list, err)
		}
	}
	a := c.mounts[0]
	c.run("unmount", a.dir)
	a.src = bare
	isBare("a former member", a.tryMount(), "no cluster is here", "this mount was in one", "is the shared directory mounted?")
	b := c.add("--join")
	b.src = bare
	isBare("--join", b.tryMount(), "no cluster is here", "--join", "is the shared directory mounted?")
	b.args = []string{"-o", "join"}
	isBare("-o join", b.tryMount(), "no cluster is here", "--join", "is the shared directory mounted?")
	// It is mounted now.
	a.src, b.src = c.src, c.src
	a.mount()
	b.mount()
	c.awaitMembers(2)
	// A cluster that somebody founded where the other one's storage belongs.
	other := c.add()
	other.src = bare
	other.mount()
	if !strings.Contains(other.told, "no cluster was in "+bare) || !strings.Contains(other.told, "--join") {
		t.Errorf("who makes a cluster is told %q", other.told)
	}
	if strings.Contains(b.told, "no cluster") {
		t.Errorf("who joins one is told %q", b.told)
	}
	c.run("unmount", b.dir)
	b.src = bare
	err := b.tryMount()
	if err == nil || !strings.Contains(err.Error(), "this mount was in another one") || strings.Contains(err.Error(), "aside") {
		t.Errorf("a former member of another cluster: %v", err)
	}
}
