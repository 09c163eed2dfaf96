package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"dmxfs/p2p/member"
)

// Storage that was restored from a copy is noticed by those who know more; an
// admin's word makes them go on above it. A file among the views that is none
// stops nobody.
func TestRestoredStorage(t *testing.T) {
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
