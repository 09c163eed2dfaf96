package main

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// Tests of networks that fail, while the storage can be reached.

// live reports whether m is a member of a view of n, and grants.
func (m *testMount) live(n int) bool {
	s, err := m.status()
	return err == nil && s.State == "live" && s.Members == n
}

// back waits until all are in one view again, and logs how long that took.
func (c *testCluster) back(what string) {
	c.t.Helper()
	began := time.Now()
	for _, m := range c.mounts {
		m.heal()
	}
	c.awaitMembers(len(c.mounts))
	c.t.Logf("%s: all were back %v after the healing", what, time.Since(began))
}

// Two of three go on without the third, which is fenced while it is cut off.
func TestPartitionOneFromTwo(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newNetCluster(t, 3)
	lone, b, d := c.mounts[0], c.mounts[1], c.mounts[2]
	old := lone.helper("append", "flock", "f", "old", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 100 })
	hold := d.helper("hold", "flock", "g")
	d.held("g", 1)
	wait := lone.helper("take", "flock", "g")
	lone.blocked("g", 1)
	next := b.helper("append", "flock", "f", "new", "50")
	b.blocked("f", 1)

	lone.cut(b, d)
	began := time.Now()
	if out, code := next.wait(); code != 0 {
		t.Errorf("the next holder: %d %s", code, out)
	}
	t.Logf("the pair went on after %v", time.Since(began))
	if out, _ := old.wait(); out != "write: input/output error\n" {
		t.Errorf("the old holder was told: %q", out)
	}
	if out, _ := wait.wait(); out != "input/output error\n" {
		t.Errorf("who waited on the lone node was told: %q", out)
	}
	if hold.ended() {
		t.Errorf("a holder of the pair lost its lock: %s", hold.out.String())
	}
	if !b.live(2) || !d.live(2) {
		t.Error("the pair is not a cluster of two")
	}
	// While it is cut off nothing can be had there, and the reason can be seen.
	s, err := lone.status()
	if err != nil || s.State != "joining" || len(s.Problems) == 0 {
		t.Errorf("status of the lone node: %+v %v", s, err)
	}
	if out, code := lone.sh("flock -n h true"); code == 0 {
		t.Errorf("a lock on the lone node: %s", out)
	}
	c.back("1|2")
	if out, code := lone.helper("append", "flock", "f", "again", "1").wait(); code != 0 {
		t.Errorf("a new open on the lone node: %d %s", code, out)
	}
	checkOrder(t, withoutCutLine(read(t, c.src+"/f"), "old", "new"), "old", "new", "again")
	lone.lost("f", old.cmd.Process.Pid)
	hold.signal(unix.SIGKILL)
}

// Of two, exactly one goes on: the storage decides.
func TestPartitionOneFromOne(t *testing.T) {
	t.Parallel()
	c := newNetCluster(t, 2)
	var holds, waits []*proc
	for i, m := range c.mounts {
		file := string(rune('f' + i))
		holds = append(holds, m.helper("append", "flock", file, "old", "0"))
		await(t, "the holder has written", func() bool { return c.size(file) > 100 })
	}
	for i, m := range c.mounts {
		file := string(rune('f' + 1 - i))
		waits = append(waits, m.helper("append", "flock", file, "new", "50"))
		m.blocked(file, 1)
	}
	c.mounts[0].cut(c.mounts[1])
	began := time.Now()
	winner := -1
	await(t, "one goes on", func() bool {
		for i, m := range c.mounts {
			if m.live(1) {
				winner = i
			}
		}
		return winner >= 0
	})
	t.Logf("node %d went on after %v", winner, time.Since(began))
	if out, code := waits[winner].wait(); code != 0 {
		t.Errorf("who waited on the winner's side: %d %s", code, out)
	}
	if out, code := waits[1-winner].wait(); code == 0 || !strings.Contains(out, "input/output error") {
		t.Errorf("who waited on the other side: %d %s", code, out)
	}
	if out, _ := holds[1-winner].wait(); out != "write: input/output error\n" {
		t.Errorf("the holder on the other side was told: %q", out)
	}
	if holds[winner].ended() {
		t.Errorf("the holder on the winner's side: %s", holds[winner].out.String())
	}
	if c.mounts[1-winner].live(1) || c.mounts[1-winner].live(2) {
		t.Error("both sides go on")
	}
	c.back("1|1")
	holds[winner].signal(unix.SIGKILL)
	holds[winner].ends("the winner's holder")
	checkOrder(t, withoutCutLine(read(t, c.src+"/"+string(rune('f'+winner))), "old", ""), "old")
	checkOrder(t, withoutCutLine(read(t, c.src+"/"+string(rune('f'+1-winner))), "old", "new"), "old", "new")
}

// A single pair of three loses its connection: one of the two has to go, in
// one new epoch, and comes back in another when the pair is healed.
func TestPartitionOfAPair(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for _, both := range []bool{true, false} {
		name := "both ways"
		if !both {
			name = "one way"
		}
		side.run(t, name, func(t *testing.T) {
			c := newNetCluster(t, 3)
			a, b, d := c.mounts[0], c.mounts[1], c.mounts[2]
			epoch := a.peers().Epoch
			a.deaf(both, b)
			began := time.Now()
			await(t, "two go on", func() bool { return d.live(2) && (a.live(2) || b.live(2)) })
			t.Logf("two went on after %v", time.Since(began))
			// The one that was dropped asks again and again, and is not let
			// in: it would be dropped again.
			out := a
			if a.live(2) {
				out = b
			}
			await(t, "the one that is out has tried to come back", func() bool {
				s, err := out.status()
				return err == nil && len(s.Problems) > 0 && strings.Contains(s.Problems[0], "waiting for the welcome of the other members")
			})
			settled := time.Now()
			await(t, "five seconds have passed", func() bool { return time.Since(settled) > 5*time.Second })
			if e := d.peers().Epoch; e != epoch+1 {
				t.Errorf("epoch %d became %d, want one more", epoch, e)
			}
			c.back("a pair of three, " + name)
			if e := d.peers().Epoch; e != epoch+2 {
				t.Errorf("epoch %d became %d after the healing, want two more", epoch, e)
			}
		})
	}
}

// A newcomer that reaches the storage, but no member, is not let in, and does
// not disturb anybody. It says who answered.
func TestNewcomerThatReachesNobody(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newNetCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	epoch := a.peers().Epoch
	n := c.addHost()
	n.cut(a, b)
	began := time.Now()
	err := n.tryMount()
	if err == nil {
		t.Fatal("it has mounted")
	}
	t.Logf("refused after %v: %v", time.Since(began), err)
	for _, want := range []string{"exit status 1", "none of them can be reached over the network", a.addr + "/tcp/"} {
		if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), strings.ReplaceAll(want, a.addr, b.addr)) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if e := a.peers().Epoch; e != epoch {
		t.Errorf("epoch %d became %d", epoch, e)
	}
	n.heal()
	n.mount()
	c.awaitMembers(3)
}

// A host that reaches one member and not the other is told which one, where, and what to do.
// That takes the half minute for which it waits for the others' welcomes.
func TestNewcomerThatReachesSome(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newNetCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	n := c.addHost()
	n.cut(b)
	err := n.tryMount()
	if err == nil {
		t.Fatal("it has mounted")
	}
	for _, want := range []string{"exit status 1", "some members can be reached, but not all: no welcome from ", b.addr + "/tcp/", "look for a firewall"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), a.addr+"/tcp/") {
		t.Errorf("the error names a member that can be reached: %v", err)
	}
	if out, code := a.sh("flock -n f true"); code != 0 {
		t.Errorf("a lock of a member: %d %s", code, out)
	}
}
