package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"dmxfs/fusefs"
)

// wantRefused checks that a mount is refused, with these words.
func (m *testMount) wantRefused(words ...string) {
	m.c.t.Helper()
	err := m.tryMount()
	if err == nil {
		m.c.t.Fatalf("%s mounts, want it refused: %q", m.src, words)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != exitRefused {
		m.c.t.Errorf("want exit code %d", exitRefused)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			m.c.t.Errorf("%v\nwant %q in it", err, w)
		}
	}
}

// All members tell files apart by the same thing: a host that would name them
// otherwise is told which option makes it agree.
func TestFileIDsAreTheSameForAll(t *testing.T) {
	t.Run("by inode", func(t *testing.T) {
		c := newCluster(t, 1)
		c.add("--file-id=path").wantRefused("--file-id=inode", "--file-id=path on the first one")
		// A copy of the directory has all that the cluster has, but other files.
		if out, err := exec.Command("cp", "-a", c.src, c.dir+"/copy").CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		copied := c.add()
		copied.src = c.dir + "/copy"
		copied.wantRefused("other inode numbers", "--file-id=path on the first one")
		if s, err := c.mounts[0].status(); err != nil || s.FileID != "inode" || s.Members != 1 {
			t.Errorf("%+v %v", s, err)
		}
	})
	t.Run("by path", func(t *testing.T) {
		c := newCluster(t, 1, "--file-id=path")
		c.add("--file-id=inode").wantRefused("--file-id=path, or without --file-id")
		b := c.add()
		b.mount()
		if s, err := b.status(); err != nil || s.FileID != "path" {
			t.Errorf("%+v %v", s, err)
		}
		// It stays so when all are gone and one comes back that does not care.
		c.run("unmount", c.mounts[0].dir)
		c.run("unmount", b.dir)
		b.mount()
		c.mounts[0].mount()
		st := newActors(t, false, c.mounts[0], b)
		write(t, c.src+"/f", "")
		st.want("ok", "a open x f rw")
		st.want("ok", "b open x f rw")
		st.want("ok", "a flock x ex")
		st.want("EAGAIN", "b flock x ex,nb")
	})
}

func TestFileIDOf(t *testing.T) {
	stable, other := fusefs.Storage{StableInodes: true}, fusefs.Storage{}
	for _, x := range []struct {
		option string
		s      fusefs.Storage
		want   fileID
	}{
		{"auto", stable, fileID{"inode 7", true}}, {"auto", other, fileID{"path", false}},
		{"inode", stable, fileID{"inode 7", false}}, {"inode", other, fileID{"inode 7", false}},
		{"path", stable, fileID{"path", false}}, {"path", other, fileID{"path", false}},
	} {
		if got := fileIDOf(x.option, x.s, 7); got != x.want {
			t.Errorf("%s, stable inodes %v: %+v, want %+v", x.option, x.s.StableInodes, got, x.want)
		}
	}
}
