package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// wantBack waits until all mounts are in one view again, of the same cluster and
// above all epochs of before.
func (c *testCluster) wantBack(cluster string, epoch uint64) {
	c.t.Helper()
	c.awaitMembers(len(c.mounts))
	for _, m := range c.mounts {
		s, err := m.status()
		if err != nil || !s.Healthy || s.Epoch <= epoch {
			c.t.Errorf("status: %+v %v, want an epoch above %d", s, err, epoch)
		}
		if out, code := m.sh("flock f true"); code != 0 {
			c.t.Errorf("a lock: %d %s", code, out)
		}
		if got := m.cluster(); got != cluster {
			c.t.Errorf("%s is in the cluster %s, and was in %s", m.dir, got, cluster)
		}
	}
	b, _ := os.ReadFile(c.src + "/.dmxfs/cluster")
	if !strings.Contains(string(b), cluster) {
		c.t.Errorf("the cluster is %s, not %s", b, cluster)
	}
}

// restoreSoon has a host know a cluster whose listings are never old, so that it
// has not to wait for that.
func (m *testMount) restoreSoon() {
	t := m.c.t
	t.Helper()
	k, v, err := nodestate.ReadView(m.state)
	if err != nil {
		t.Fatal(err)
	}
	w := *v
	w.Timing.CacheMax = 0
	b, err := member.EncodeView(&w)
	if err == nil {
		k.View = string(b)
		b, err = json.Marshal(k)
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.state+"/view.json", string(b))
}

// cluster is the ID of the cluster of a mount.
func (m *testMount) cluster() string {
	m.c.t.Helper()
	id, err := journal.ClusterOf(m.state + "/journal")
	if err != nil || id == "" {
		m.c.t.Fatalf("%q %v", id, err)
	}
	return id
}

// .dmxfs is removed, and a daemon killed. One command on a host brings it back for
// all; of two at the same time one does it.
func TestRemovedClusterIsRestored(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	if _, err := c.try("cluster", "restore", "--yes", a.dir); code(err) != exitcode.Refused || !strings.Contains(err.Error(), "nothing to restore") {
		t.Errorf("while the cluster is there: %v", err)
	}
	hold := a.helper("hold", "flock", "f")
	a.held("f", 1)
	cluster, epoch := a.cluster(), a.peers().Epoch
	pids := []int{a.daemon(), b.daemon()}
	// The daemons write to it meanwhile.
	await(t, ".dmxfs is removed", func() bool { return os.RemoveAll(c.src+"/.dmxfs") == nil })
	a.signal(unix.SIGKILL)
	a.waiting("no cluster is here")
	hold.signal(unix.SIGKILL)

	// Another directory in its place is not taken for it.
	if err := os.Rename(c.src, c.src+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.src, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := c.try("cluster", "restore", "--yes", a.dir); code(err) != exitcode.Refused || !strings.Contains(err.Error(), "is the storage mounted?") {
		t.Errorf("in a bare directory: %v", err)
	}
	if list, err := os.ReadDir(c.src); err != nil || len(list) != 0 {
		t.Errorf("%v %v is left there", list, err)
	}
	if err := os.Remove(c.src); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.src+".real", c.src); err != nil {
		t.Fatal(err)
	}

	type result struct {
		out string
		err error
	}
	results := make(chan result, 2)
	for _, m := range c.mounts {
		m.restoreSoon()
		cmd := c.cmd("cluster", "restore", "--yes", "--json", m.dir)
		go func() {
			out, err := output(cmd)
			results <- result{out, err}
		}()
	}
	done := 0
	for range c.mounts {
		switch r := <-results; {
		case r.err == nil:
			done++
			var v restoredJSON
			if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Cluster != cluster || v.Epoch <= epoch {
				t.Errorf("%s %v", r.out, err)
			}
		case code(r.err) != exitcode.Refused:
			t.Error(r.err)
		}
	}
	if done != 1 {
		t.Errorf("%d have restored it", done)
	}
	for i, m := range c.mounts {
		m.awaitNew(pids[i])
	}
	c.wantBack(cluster, epoch)
	// Another host joins without further ado: the secret is where it was.
	d := c.add()
	d.mount()
	c.awaitMembers(3)
}

// The shared directory itself is removed, and made anew, after the secret was
// changed.
func TestRemovedSourceIsRestored(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	a.rotate(2)
	cluster, epoch, secret := a.cluster(), a.peers().Epoch, a.secret()
	pids := []int{a.daemon(), b.daemon()}
	// The daemons write to it meanwhile.
	await(t, "the shared directory is removed", func() bool { return os.RemoveAll(c.src) == nil })
	b.signal(unix.SIGKILL)
	b.waiting("is gone")
	if err := os.Mkdir(c.src, 0o755); err != nil {
		t.Fatal(err)
	}
	b.restoreSoon()
	c.run("cluster", "restore", "--yes", "--new-directory", b.dir)
	for i, m := range c.mounts {
		m.awaitNew(pids[i])
	}
	c.wantBack(cluster, epoch)
	if got := a.secret(); got != secret {
		t.Errorf("the secret is %q, and was %q", got, secret)
	}
	if out := c.grep(secret, c.src); out != "" {
		t.Errorf("the secret is on the storage, in %s", out)
	}
}
