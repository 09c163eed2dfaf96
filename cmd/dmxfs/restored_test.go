package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// Storage that was restored from a copy is noticed by those who know more; an
// admin's word makes them go on above it. A file among the views that is none
// stops nobody.
func TestRestoredStorage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a := c.mounts[0]
	views := filepath.Join(c.src, ".dmxfs/views")
	write(t, filepath.Join(views, member.ViewName(member.MaxEpoch)), "")
	if out, err := exec.Command("cp", "-a", views, c.dir+"/backup").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	b := c.add()
	b.mount()
	c.awaitMembers(2)
	s, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.mounts {
		c.run("unmount", m.dir)
	}
	if out, err := exec.Command("sh", "-c", "rm -r "+views+" && mv "+c.dir+"/backup "+views).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	b.wantRefused("but this node has known view", "restored from a backup", "--restored")
	b.args = []string{"--restored"}
	b.mount()
	a.mount()
	c.awaitMembers(2)
	if now, err := a.status(); err != nil || now.Epoch <= s.Epoch {
		t.Errorf("epoch %d after %d, %v", now.Epoch, s.Epoch, err)
	}
}

// A secret that was given up does not count again because the storage is older
// than what the host knows.
func TestRestoredSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a := c.mounts[0]
	file := filepath.Join(c.src, ".dmxfs/secret")
	old := read(t, file)
	a.rotate(1)
	c.run("unmount", a.dir)
	if err := os.RemoveAll(filepath.Join(c.src, ".dmxfs/secrets")); err != nil {
		t.Fatal(err)
	}
	write(t, file, old)
	a.wantRefused("generation 0 of the cluster's secret counts, and this host has 1", "--restored", "secret rotate")
	a.args = []string{"--restored"}
	a.mount()
	c.run("unmount", a.dir)
	a.args = nil
	a.mount()
	if got := a.secret() + "\n"; got != old {
		t.Errorf("the secret is %q, not %q", got, old)
	}
}
