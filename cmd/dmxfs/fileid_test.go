package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// wantRefused checks that a mount is refused, with these words.
func (m *testMount) wantRefused(words ...string) {
	m.c.t.Helper()
	err := m.tryMount()
	if err == nil {
		m.c.t.Fatalf("%s mounts, want it refused: %q", m.src, words)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != exitcode.Refused {
		m.c.t.Errorf("want exit code %d", exitcode.Refused)
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
	t.Parallel()
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

// A directory below the one that a cluster shares is not another one: on the
// same storage mount the mount is refused, and where the host cannot see that,
// the cluster above does not go into it any more.
func TestSubdirectoryOfAClusterIsNoCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a := c.mounts[0]
	if err := os.MkdirAll(c.src+"/sub/deep", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, c.src+"/sub/f", "x")
	b := c.add()
	b.src = c.src + "/sub/deep"
	b.wantRefused("is inside the shared directory "+c.src+" ", "mount "+c.src)
	if out, code := a.sh("cat sub/f; find . | sort | tr '\\n' ' '"); code != 0 || out != "x. ./sub ./sub/deep ./sub/f " {
		t.Errorf("%d %q: something was left behind", code, out)
	}
	// As a host leaves it that mounted no more than the subdirectory.
	if err := os.Mkdir(c.src+"/other", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.src+"/other/.dmxfs", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, c.src+"/other/.dmxfs/cluster", "{}")
	for _, command := range []string{"cat other/f", "ls other", "touch other/new", "ls other/.dmxfs", "flock -n other/f true"} {
		if out, code := a.sh(command + " 2>&1"); code == 0 || !strings.Contains(out, "Input/output error") {
			t.Errorf("%s: %d %q, want an I/O error", command, code, out)
		}
	}
	if s, err := a.status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "other is the shared directory of another cluster") || s.Healthy {
		t.Errorf("%+v %v", s, err)
	}
	if err := os.RemoveAll(c.src + "/other/.dmxfs"); err != nil {
		t.Fatal(err)
	}
	if out, code := a.sh("touch other/new && ls other"); code != 0 || strings.TrimSpace(out) != "new" {
		t.Errorf("%d %q", code, out)
	}
	if s, err := a.status(); len(s.Problems) != 0 {
		t.Errorf("%+v %v", s, err)
	}
	// A directory of that name that is no cluster's is one like others.
	if out, code := a.sh("mkdir sub/.dmxfs && touch sub/.dmxfs/x && ls -A sub"); code != 0 || strings.TrimSpace(out) != ".dmxfs\ndeep\nf" {
		t.Errorf("%d %q", code, out)
	}
	// The cluster's own is hidden by any spelling.
	for _, command := range []string{"ls .DMXFS", "mkdir .Dmxfs", "mv .dmXfs gone", "touch .DMXFS"} {
		if out, code := a.sh(command); code == 0 {
			t.Errorf("%s: %q", command, out)
		}
	}
}
