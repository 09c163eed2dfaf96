package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
)

// keptName is what the lease of names is called.
const keptName = ".dmxfs/names"

// keepsNames reports whether the kernel of m's host may keep names for long.
func (m *testMount) keepsNames() bool {
	for _, l := range m.locks() {
		if l.Path == keptName && l.Mode == "W" && l.State == "held" {
			return true
		}
	}
	return false
}

// asked is how many requests the daemon of m has had of a kernel that did not know something.
func (m *testMount) asked() (n int) {
	m.c.t.Helper()
	for line := range strings.Lines(m.run1("metrics")) {
		f := strings.Fields(line)
		if !strings.HasPrefix(line, "dmxfs_fuse_request_seconds_count") || len(f) != 2 {
			continue
		}
		for _, request := range []string{`"LOOKUP"`, `"GETATTR"`, `"READDIR"`, `"READDIRPLUS"`, `"READ"`} {
			if strings.Contains(f[0], request) {
				x, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					m.c.t.Fatal(err)
				}
				n += int(x)
			}
		}
	}
	return n
}

// knows reports whether the kernel knows nearly all that a command looks at.
func (m *testMount) knows(command string) bool {
	m.c.t.Helper()
	before := m.asked()
	m.sh(command)
	return m.asked()-before < 20
}

// seenSoon is much longer than the client of GlusterFS takes to see a change, and much shorter
// than --cache-time.
const seenSoon = 7 * time.Second

// all is a command that prints what there is in the current directory.
const all = `for f in *; do stat -c '%n %F %s %a %h' "$f"; [ -f "$f" ] && cat "$f"; readlink "$f"; done; true`

// sees is what a program on m sees of the directory d, under a lock if there is one.
func (m *testMount) sees(lock string) string {
	m.c.t.Helper()
	command := "cd d; " + all
	if lock != "" {
		command = "flock " + lock + " sh -c " + quoted(command)
	}
	out, code := m.sh(command)
	if code != 0 {
		m.c.t.Fatalf("%d %s", code, out)
	}
	return out
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// The kernel keeps names over a client with caches of its own, too, if these are short; what
// another host changes is seen as soon as that client sees it, not as late as --cache-time,
// and under a lock at once.
func TestNamesAreKeptOverGlusterFS(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, realKinds[0], 2, "--cache-time=10s")
	a, b := c.mounts[0], c.mounts[1]
	if out, code := a.sh("mkdir d; touch lock; for i in $(seq 40); do echo text $i >d/f$i; done"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	keeps := func() {
		t.Helper()
		await(t, "names are kept", func() bool {
			a.sh("ls -l d")
			return a.keepsNames() && a.knows("ls -l d")
		})
	}
	for i, change := range []string{
		"echo text >new", "rm f1", "echo more >>f6", "printf T | dd of=f9 conv=notrunc", "mv f2 g2", "mv f3 f4",
		"chmod 600 f5", "truncate -s 1 f7", "ln -s f8 l8", "mkdir sub", "ln f10 h10", ": >f11", "cp f12 f13; mv f13 f12",
	} {
		if i == 4 && !long.Tests() {
			break
		}
		keeps()
		a.sees("")
		if out, code := b.sh("cd d; " + change); code != 0 {
			t.Fatalf("%s: %d %s", change, code, out)
		}
		want := b.sees("")
		awaitFor(t, seenSoon, change+" is seen", func() bool { return a.sees("") == want })
	}
	for i := range long.Or(3, 12) {
		if i%3 == 0 {
			keeps()
		}
		change := fmt.Sprintf("mv f%d g%[1]d; echo %[1]d >>f%d; echo %[1]d >n%[1]d; printf %[3]c | dd of=f40 conv=notrunc", 14+i, 27+i, 'a'+i)
		if out, code := b.sh("flock lock sh -c " + quoted("cd d; "+change)); code != 0 {
			t.Fatalf("%s: %d %s", change, code, out)
		}
		want := b.sees("")
		if seen := a.sees("lock"); seen != want {
			t.Errorf("after %q one host sees\n%s\nand the other one, under the lock,\n%s", change, want, seen)
		}
	}
}

// What was found out about a file under one name says nothing of its others: who has moved it
// under a lock is not seen with both by who takes the lock then, also if the client learns of the
// file again, by its new name, in a later second than that in which the lock came.
func TestMovedFilesHaveOneNameOverGlusterFS(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, realKinds[0], 2)
	a, b := c.mounts[0], c.mounts[1]
	if out, code := a.sh("mkdir d; touch lock; echo text >d/f"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	from, to := "d/f", "d/g"
	links := 1
	for i := range long.Or(4, 8) {
		if i == long.Or(4, 8)/2 { // the client tells one name of several
			links = 2
			if out, code := b.sh("ln " + from + " other"); code != 0 {
				t.Fatalf("%d %s", code, out)
			}
		}
		if out, code := a.sh("stat " + from); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		if out, code := b.sh(fmt.Sprintf("flock lock mv %s %s", from, to)); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		look := fmt.Sprintf("cat %s; ! stat %s", to, from)
		if i%2 == 1 {
			look = "s=$(date +%s); while [ $(date +%s) = $s ]; do sleep 0.1; done; " + look
		}
		if out, code := a.sh("flock lock sh -c " + quoted(look)); code != 0 {
			t.Errorf("after mv %s %s on the other host, of a file with %d names, under the lock: %s", from, to, links, out)
		}
		from, to = to, from
	}
}

// Who takes a lock under which another host has put another directory in the place of one works in
// the new one, also if the old one is looked at by its new name. One that has only been renamed is
// not there under its old name.
func TestReplacedDirectoriesOverGlusterFS(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, realKinds[0], 2)
	a, b := c.mounts[0], c.mounts[1]
	if out, code := a.sh("mkdir -p up/d; touch lock up/d/0"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	for i := range long.Or(4, 8) {
		if out, code := a.sh(fmt.Sprintf("stat up/d/%d", i)); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		swap := fmt.Sprintf("cd up; mv d old%d; mkdir d; touch d/%d", i, i+1)
		if out, code := b.sh("flock lock sh -c " + quoted(swap)); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		want := fmt.Sprintf("%d\n", i+1)
		for j := range 3 { // the lock comes from the other host each time
			work := fmt.Sprintf("stat -c %%n up/old%d/%d; stat -c %%n up/d/%d; touch up/d/w%d", i, i, i+1, j)
			out, code := a.sh("flock lock sh -c " + quoted(work))
			want += fmt.Sprintf("w%d\n", j)
			if names, _ := b.sh("flock lock ls up/d"); code != 0 || names != want {
				t.Fatalf("after %q under the lock on the other host, who has it works elsewhere: %s; in the new directory there is %q, want %q", swap, out, names, want)
			}
		}
	}
	from, to := "up/d", "up/e"
	for range long.Or(2, 6) {
		if out, code := a.sh("stat " + from); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		if out, code := b.sh(fmt.Sprintf("flock lock mv %s %s", from, to)); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		if out, code := a.sh("flock lock sh -c " + quoted(fmt.Sprintf("stat %s && ! stat %s", to, from))); code != 0 {
			t.Errorf("after mv %s %s on the other host, under the lock: %s", from, to, out)
		}
		from, to = to, from
	}
}

// That a directory above has another name, which nobody has looked up here, says nothing of the
// names below it, and nobody waits for that.
func TestBelowAMovedDirectoryOverGlusterFS(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, realKinds[0], 2)
	a, b := c.mounts[0], c.mounts[1]
	if out, code := a.sh("mkdir -p d/below; touch lock; for f in 1 2 3; do echo text >d/below/$f; done"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	works := a.start("cd d/below; cat 1; touch ../../ready; until [ -e ../../moved ]; do sleep 0.05; done; flock ../../lock cat 1 2 3")
	if out, code := b.sh("until [ -e ready ]; do sleep 0.05; done; flock lock mv d e; touch moved"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	awaitFor(t, 30*time.Second, "who works below it goes on", func() bool {
		select {
		case <-works.done:
			return true
		default:
			return false
		}
	})
	if out, code := works.wait(); code != 0 || out != strings.Repeat("text\n", 4) {
		t.Errorf("%d %s", code, out)
	}
}
