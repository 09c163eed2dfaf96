package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A daemon is stopped while its program writes under a lock. The others go on
// without it; when it wakes up, its program finds out before anything of it
// reaches the file, and the mount goes back to work by itself.
func TestStoppedDaemonIsFenced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.mounts[0], c.mounts[1]
	kinds := []string{"flock", "fcntl", "ofd", "open"} // each with a file of its name
	old, next := map[string]*proc{}, map[string]*proc{}
	for _, kind := range kinds {
		old[kind] = a.helper("append", kind, kind, "old", "0")
		await(t, "the holder has written", func() bool { return c.size(kind) > 100 })
		next[kind] = b.helper("append", kind, kind, "new", "50")
		b.blocked(kind, 1)
	}
	hold := b.helper("hold", "flock", "g")
	b.held("g", 1)
	wait := a.helper("take", "flock", "g") // on the node that is stopped
	a.blocked("g", 1)
	a.signal(unix.SIGSTOP)
	began := time.Now()
	for _, kind := range kinds {
		await(t, "the next holder has its lock", func() bool { return strings.Contains(read(t, c.src+"/"+kind), "new") })
		t.Logf("%s: the next holder wrote %v after the stop", kind, time.Since(began))
		if out, code := next[kind].wait(); code != 0 {
			t.Errorf("%s: the next holder: %d %s", kind, code, out)
		}
	}
	a.signal(unix.SIGCONT)
	began = time.Now()
	for _, kind := range kinds {
		if out, _ := old[kind].wait(); out != "write: input/output error\n" {
			t.Errorf("%s: the old holder was told: %q", kind, out)
		}
	}
	if out, _ := wait.wait(); out != "input/output error\n" {
		t.Errorf("who waited there was told: %q", out)
	}
	await(t, "it is back", func() bool {
		s, err := a.status()
		return err == nil && s.State == "live" && s.Members == 3
	})
	t.Logf("it was back %v after it went on", time.Since(began))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { afterAFence(t, a, kind, old[kind].cmd.Process.Pid) })
	}
	if n := len(a.journal("--event", "fenced")); n != 1 {
		t.Errorf("%d records of the fencing", n)
	}
	hold.signal(unix.SIGKILL)
}

// afterAFence looks at a file on whose lock process pid of a was fenced.
func afterAFence(t *testing.T, a *testMount, kind string, pid int) {
	if out, code := a.helper("append", kind, kind, "again", "1").wait(); code != 0 {
		t.Errorf("a new open on the mount: %d %s", code, out)
	}
	content := read(t, a.c.src+"/"+kind)
	for range a.journal("--event", "late_write", "--path", kind) {
		content = withoutLateLine(t, content)
	}
	checkOrder(t, withoutCutLine(content, "old", "new"), "old", "new", "again")
	rows := a.journal("--event", "lost", "--path", kind)
	if len(rows) != 1 || rows[0].PID != pid {
		t.Errorf("journal: %+v", rows)
	}
}

// withoutLateLine is content without the first line of the old holder after one of the new one,
// for a write that was reported as late: what a stop hits between the last check and the system
// call cannot be kept back.
func withoutLateLine(t *testing.T, content string) string {
	before, after, _ := strings.Cut(content, "new ")
	late := regexp.MustCompile(`(?m)^old \d+\n`).FindString(after)
	t.Logf("a write under way at the stop came late, and was reported: %q", late)
	return before + "new " + strings.Replace(after, late, "", 1)
}

// withoutCutLine is content without the last line of the holder before next, or at
// the end if that is empty, if that was cut where a page ends: Linux sends what a
// write(2) puts into a page that it does not have in its cache as a request of its own,
// and the fencing, or SIGKILL, comes between two.
func withoutCutLine(content, old, next string) string {
	i := len(content)
	if next != "" {
		i = strings.Index(content, next+" ")
	}
	if i <= 0 || i%os.Getpagesize() != 0 || content[i-1] == '\n' {
		return content
	}
	line := strings.LastIndex(content[:i], "\n") + 1
	n := strings.Count(content[:line], "\n")
	if !strings.HasPrefix(fmt.Sprintf("%s %d", old, n), content[line:i]) {
		return content
	}
	return content[:line] + content[i:]
}

// size is how much is in a file on the storage.
func (c *testCluster) size(file string) int64 {
	st, err := os.Stat(filepath.Join(c.src, file))
	if err != nil {
		return -1
	}
	return st.Size()
}

// checkOrder checks that the lines of a file begin with the tags, each group
// after the one before it, numbered without a gap.
func checkOrder(t *testing.T, content string, tags ...string) {
	t.Helper()
	i, n := 0, 0
	for k, line := range strings.Split(strings.TrimSuffix(content, "\n"), "\n") {
		if i+1 < len(tags) && strings.HasPrefix(line, tags[i+1]+" ") {
			i, n = i+1, 0
		}
		if want := fmt.Sprintf("%s %d", tags[i], n); line != want {
			t.Errorf("line %d is %q, want %q", k+1, line, want)
			return
		}
		n++
	}
	if i != len(tags)-1 {
		t.Errorf("nothing of %q in the file", tags[i+1])
	}
}

// A stop that is shorter than the tenure costs nobody anything, not even a
// connection. The tenure is longer than by default, for slow machines.
func TestShortStop(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "--tenure", "10s", "--log-level", "debug")
	a := c.mounts[0]
	p := a.helper("append", "flock", "f", "x", "0")
	await(t, "it writes", func() bool { return c.size("f") > 100 })
	epoch := a.peers().Epoch
	a.signal(unix.SIGSTOP)
	stopped := time.Now()
	await(t, "four seconds have passed", func() bool { return time.Since(stopped) > 4*time.Second })
	a.signal(unix.SIGCONT)
	n := c.size("f")
	await(t, "it writes on", func() bool { return c.size("f") > n+100 })
	if p.ended() {
		t.Errorf("the program ended: %s", p.out.String())
	}
	p.signal(unix.SIGKILL)
	p.ends("the writer")
	checkOrder(t, withoutCutLine(read(t, c.src+"/f"), "x", ""), "x")
	if e := a.peers().Epoch; e != epoch {
		t.Errorf("epoch %d became %d", epoch, e)
	}
	for _, m := range c.mounts {
		for line := range strings.Lines(m.log()) {
			if strings.Contains(line, "msg=disconnected") && strings.Contains(line, "conns=0") {
				t.Errorf("%s has lost a connection: %s", m.dir, line)
			}
		}
	}
}
