package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// copyOf prepares a mount whose state directory is a copy of that of another.
func (c *testCluster) copyOf(m *testMount) *testMount {
	c.t.Helper()
	x := c.add(m.args...)
	if out, err := exec.Command("cp", "-a", m.state, x.state).CombinedOutput(); err != nil {
		c.t.Fatalf("%v %s", err, out)
	}
	// On another host the mount point would be the same, so that the journal
	// were no reason to refuse it.
	if err := os.RemoveAll(x.state + "/journal"); err != nil {
		c.t.Fatal(err)
	}
	return x
}

var twinWords = []string{"the identity of this node", "the state directory was copied", "--state", "identity.key"}

// A copy of a state directory is refused while the original runs, which keeps
// its locks.
func TestCopiedStateDirectory(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for name, n := range map[string]int{"alone": 1, "of two": 2} {
		side.run(t, name, func(t *testing.T) {
			c := newCluster(t, n)
			a, other := c.mounts[0], c.mounts[n-1]
			hold := a.helper("hold", "flock", "f")
			a.held("f", 1)
			before, err := a.status()
			if err != nil {
				t.Fatal(err)
			}
			m := c.copyOf(a)
			began := time.Now()
			m.wantRefused(twinWords...)
			t.Logf("refused after %v", time.Since(began))
			if after, err := a.status(); err != nil || after.Epoch != before.Epoch || !a.live(n) {
				t.Errorf("the original: %+v %v; before: %+v", after, err, before)
			}
			if out, code := other.helper("try", "flock", "f").wait(); code == 0 {
				t.Errorf("a second holder: %s", out)
			}
			if hold.ended() {
				t.Errorf("the holder: %s", hold.out.String())
			}
			a.noted("note", "was started with the identity of this node")
			// A member that has answered it removes its answer a moment later.
			await(t, "nothing of the copy is left beside the views", func() bool {
				return !slices.ContainsFunc(dirNames(t, c.src+"/.dmxfs/views"), func(e string) bool { return len(e) != 20 })
			})
			// As it was told it becomes another node.
			if err := os.Remove(m.state + "/identity.key"); err != nil {
				t.Fatal(err)
			}
			m.mount()
			c.awaitMembers(n + 1)
		})
	}
}

// The second one is refused, whichever of them that is.
func TestCopyThatWasFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	a := c.mounts[0]
	m := c.copyOf(a)
	c.run("unmount", a.dir)
	m.mount()
	a.wantRefused(twinWords...)
	if !m.live(1) {
		t.Error("the copy does not go on")
	}
}

// An original that was stopped while a copy took its place has lost its locks.
// It does not fight for them, nor is it started anew.
func TestCopyWhileTheOriginalIsStopped(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "f", "old", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })
	m := c.copyOf(a)
	pid := a.daemon()
	a.signal(unix.SIGSTOP)
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })
	m.mount()
	await(t, "the copy and the other one are a cluster", func() bool { return m.live(2) && b.live(2) })
	if out, code := m.helper("append", "flock", "f", "new", "5").wait(); code != 0 {
		t.Errorf("the next holder: %d %s", code, out)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !a.ended([]int{pid, a.watcher}) {
		t.Error("the original goes on")
	}
	hold.ends("who held the lock")
	content := read(t, c.src+"/f")
	if strings.Contains(a.log(), "a write may have reached the storage after its lock was lost") {
		content = withoutLateLine(t, content)
	}
	checkOrder(t, withoutCutLine(content, "old", "new"), "old", "new")
	if !m.live(2) || !b.live(2) {
		t.Error("the copy and the other one do not go on")
	}
}

func dirNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
