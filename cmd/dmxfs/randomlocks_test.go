package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

var (
	randomSeed  = flag.Int64("locks.seed", 1, "the first seed of TestRandomLockCalls")
	randomSeeds = flag.Int("locks.seeds", long.Or(2, 3), "how many seeds TestRandomLockCalls tries")
	randomCalls = flag.Int("locks.calls", 500, "how many calls TestRandomLockCalls makes for each seed")
)

// TestRandomLockCalls makes random calls of several processes, none of which
// waits, on a local file system, on one mount and on two, as TestSemantics does
// with its cases. All must see the same.
func TestRandomLockCalls(t *testing.T) {
	t.Parallel()
	needMounts(t)
	columns := newColumns(t)
	for i := range *randomSeeds {
		compareRandomCalls(t, columns, i, *randomSeed+int64(i), *randomCalls)
	}
}

// compareRandomCalls makes calls in all columns; what they see must be what is
// seen in the first.
func compareRandomCalls(t *testing.T, columns []*column, i int, seed int64, calls int) {
	t.Helper()
	c := randomLockCase(seed, calls)
	got := make([][]string, len(columns))
	var wg sync.WaitGroup
	for j, col := range columns {
		wg.Go(func() { got[j] = col.run(t, i, c) })
	}
	wg.Wait()
	if differAt(got) >= 0 {
		// Who looks at a process that ends, and reads its /proc/PID/fdinfo, keeps a
		// file open for a moment, and its open file description lock with it. So the
		// local file system is asked twice before it is right.
		if again := columns[0].run(t, 1000+i, c); !slices.EqualFunc(again, got[0], sameSeen) {
			t.Logf("seed %d: a local file system did not see the same twice: the second time counts", seed)
			got[0] = again
		}
	}
	if s := differAt(got); s >= 0 {
		for k := max(0, s-30); k <= s; k++ {
			line := fmt.Sprintf("%-40s", c.steps[k])
			for j := range columns {
				line += fmt.Sprintf(" %-20s", got[j][k])
			}
			t.Log(line)
		}
		// What comes after may be different for that reason only.
		t.Fatalf("%s: a local file system sees %s, not what is seen through dmxfs: -locks.seed %d -locks.seeds 1 -locks.calls %d",
			c.steps[s], got[0][s], seed, calls)
	}
	refused := 0
	for _, out := range got[0] {
		if strings.HasPrefix(out, "EAGAIN") {
			refused++
		}
	}
	if refused < len(c.steps)/100 {
		t.Errorf("seed %d: only %d of %d calls met a lock of another one", seed, refused, len(c.steps))
	}
}

// differAt is the first step that a column does not see as the first column does,
// and -1 if there is none.
func differAt(got [][]string) int {
	for s := range got[0] {
		for _, other := range got[1:] {
			if !sameSeen(other[s], got[0][s]) {
				return s
			}
		}
	}
	return -1
}

func sameSeen(a, b string) bool { return seen(a) == seen(b) }

// The same with a daemon that sees none of the programs, as in a container: all of
// them have the process ID 0 there.
func TestRandomLockCallsOfProgramsThatAreNotSeen(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	local := t.TempDir()
	compareRandomCalls(t, []*column{
		{name: "local", src: local, dirs: []string{local}},
		{name: "unseen", src: c.src, dirs: []string{c.mountUnseeing()}},
	}, 0, *randomSeed, 2**randomCalls)
}

// mountUnseeing mounts the shared directory by a daemon in a PID namespace of its
// own, and returns where.
func (c *testCluster) mountUnseeing() string {
	c.t.Helper()
	needTool(c.t, "unshare")
	dir, state := filepath.Join(c.dir, "unseeing"), filepath.Join(c.dir, "state-unseeing")
	if err := os.Mkdir(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := c.cmd()
	if cmd.Path, err = exec.LookPath("unshare"); err != nil {
		c.t.Fatal(err)
	}
	cmd.Args = []string{"unshare", "--pid", "--fork", "--kill-child", self, "-f", "--state", state, "--listen", "/ip4/127.0.0.1/tcp/0", c.src, dir}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	c.t.Cleanup(func() {
		if err := c.unmount(dir); err != nil {
			c.t.Errorf("unmount: %v", err)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			c.t.Error("the daemon does not end")
			_ = cmd.Process.Kill()
			<-ended
		}
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
			c.t.Error("the mount was left behind")
		}
		if c.t.Failed() {
			c.t.Logf("%s", out.String())
		}
	})
	await(c.t, "it is mounted", func() bool {
		_, err := c.try("status", dir)
		return err == nil
	})
	return dir
}

// seen is what must be the same everywhere. Which of several locks that are in
// the way F_GETLK tells is left open by fcntl(2).
func seen(outcome string) string {
	if strings.HasPrefix(outcome, "r ") || strings.HasPrefix(outcome, "w ") {
		return "a lock"
	}
	return outcome
}

// randomLockCase is a story of so many calls. It knows which descriptors are
// open, and nothing of locks. SEEK_END is not in it, nor F_TEST of lockf(3),
// which goes by the process of an open file description lock: docs/semantics.md
// says what is different there.
func randomLockCase(seed int64, calls int) *semCase {
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	// A seed in two is about the ends of what can be locked.
	bound := func() string { return fmt.Sprint(r.IntN(40)) }
	length := func() string { return pick("0", "1", "2", "5", "10", "20", "-3") }
	if seed%2 == 0 {
		bound = func() string { return pick("0", "1", "5", "10", "50", "99", "100", "-1", "max", "9223372036854775802") }
		length = func() string { return pick("0", "0", "1", "5", "10", "100", "-1", "-10", "max", "min") }
	}
	open := map[string]map[string]bool{} // of each actor
	for _, a := range []string{"a", "b", "c", "d"} {
		open[a] = map[string]bool{}
	}
	spawned := 0
	c := &semCase{file: "random", name: fmt.Sprint("seed ", seed)}
	for len(c.steps) < calls {
		a := slices.Sorted(maps.Keys(open))[r.IntN(len(open))]
		fds := slices.Sorted(maps.Keys(open[a]))
		say := func(words ...string) {
			c.steps = append(c.steps, semStep{line: len(c.steps) + 1, actor: a, words: words})
		}
		fd := "x" + fmt.Sprint(r.IntN(4))
		kind := r.IntN(100)
		switch {
		case kind < 10 || len(fds) == 0: // open, or close first
			if open[a][fd] {
				say("close", fd)
				delete(open[a], fd)
				continue
			}
			open[a][fd] = true
			if old := pick(append(fds, "new")...); old != "new" {
				say("dup", fd, old)
				continue
			}
			say("open", fd, pick("f", "f", "g"), pick("r,creat", "w,creat", "rw,creat", "rw,creat", "rw,creat"))
		case kind < 13:
			fd = pick(fds...)
			say("close", fd)
			delete(open[a], fd)
		case kind < 48:
			cmd := pick("set", "set", "set", "ofdset")
			say("lk", pick(fds...), cmd, pick("r", "w", "u"), bound(), length(), pick("set", "set", "cur"))
		case kind < 60:
			say("lk", pick(fds...), pick("get", "get", "ofdget"), pick("r", "w"), bound(), length())
		case kind < 65:
			say("lockf", pick(fds...), pick("tlock", "ulock"), length())
		case kind < 85:
			say("flock", pick(fds...), pick("sh,nb", "ex,nb", "un"))
		case kind < 90:
			say("seek", pick(fds...), fmt.Sprint(r.IntN(40)), "set")
		case kind < 96:
			say("pwrite", pick(fds...), fmt.Sprint(r.IntN(100)), "text")
		case kind < 98 && spawned < 3: // fork and exec, with the descriptors
			child := string(rune('e' + spawned))
			spawned++
			say(append([]string{"spawn", child}, fds...)...)
			open[child] = maps.Clone(open[a])
		case kind == 99 && len(open) > 3:
			say(pick("kill", "exit"))
			delete(open, a)
		}
	}
	return c
}
