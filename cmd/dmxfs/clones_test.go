package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/statedir"
)

// A machine is cloned while its daemon runs, and both copies go on. The other one
// is known by its mark: this one ends, says why, and is no proof that the member
// is dead.
func TestACloneOfARunningDaemon(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })
	file := c.src + "/.dmxfs/peers/" + a.identity() + ".mark"
	var inc, mark string
	await(t, "it has a mark", func() bool {
		text, err := os.ReadFile(file)
		inc, mark, _ = strings.Cut(string(text), " ")
		return err == nil && len(mark) == 33
	})
	state := &statedir.Dir{Path: a.state}
	isLife := func() bool {
		for _, x := range state.Lives() {
			if x.String() == inc {
				return true
			}
		}
		return false
	}
	if !isLife() {
		t.Fatalf("%s is not the incarnation of the daemon", inc)
	}
	other := []byte(mark)
	slices.Reverse(other[:32])
	write(t, file, inc+" "+string(other)) // as the other copy would
	await(t, "it ends", func() bool { return a.daemon() == 0 && !alive(a.watcher) })
	hold.ends("the holder, whose lock is lost")
	if log := a.log(); !strings.Contains(log, "the machine was cloned while it ran") {
		t.Error("the log does not say why")
	}
	if isLife() {
		t.Error("its end would prove that the other copy is dead")
	}
	await(t, "the other host goes on", func() bool { return b.live(1) })
	if out, code := b.sh("flock -w 30 f true"); code != 0 {
		t.Errorf("the lock does not come free: %d %s", code, out)
	}
	c.run("unmount", a.dir)
	a.mount()
	c.awaitMembers(2)
}
