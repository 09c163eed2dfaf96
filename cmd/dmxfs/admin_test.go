package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// tryWith runs the program with something on its standard input.
func (c *testCluster) tryWith(stdin string, args ...string) (string, error) {
	cmd := c.cmd(args...)
	cmd.Stdin = strings.NewReader(stdin)
	return output(cmd)
}

func code(err error) int {
	if x, ok := errors.AsType[*exec.ExitError](err); ok {
		return x.ExitCode()
	}
	return -1
}

// noted checks that the journal of m has a record that says text.
func (m *testMount) noted(event, text string) {
	m.c.t.Helper()
	await(m.c.t, fmt.Sprintf("%s: a record %s that says %q", m.dir, event, text), func() bool {
		for _, r := range m.journal("--event", event) {
			if strings.Contains(r.Reason, text) {
				return true
			}
		}
		return false
	})
}

// A lock is broken: its holder is fenced, the next one goes on, both journals
// have it, and nobody else is concerned.
func TestBreakALock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	for _, kind := range []string{"flock", "fcntl", "ofd", "open"} {
		t.Run(kind, func(t *testing.T) {
			file := "dir " + kind
			class := map[string]string{"flock": "flock", "fcntl": "posix", "ofd": "posix", "open": "open"}[kind]
			old := a.helper("append", kind, file, "old", "0")
			await(t, "the holder has written", func() bool { return c.size(file) > 100 })
			bystander := a.helper("append", kind, file+" too", "x", "0")
			next := b.helper("append", kind, file, "new", "50")
			b.blocked(file, 1)

			if _, err := c.try("locks", "break", file, b.dir, "--yes"); code(err) != exitcode.Usage || !strings.Contains(err.Error(), "--reason") {
				t.Errorf("without a reason: %v", err)
			}
			_, err := c.tryWith("n\n", "locks", "break", file, b.dir, "--reason", "a test")
			if code(err) != exitcode.Failure || !strings.Contains(err.Error(), fmt.Sprint(old.cmd.Process.Pid)) || !strings.Contains(err.Error(), "nothing was done") {
				t.Errorf("answered with no: %v", err)
			}
			if old.ended() || next.ended() {
				t.Fatal("something has happened")
			}
			// By the other node, and by the path that programs use.
			out, err := c.tryWith("y\n", "locks", "break", b.path(file), b.dir, "--reason", "a test", "--class", class)
			if err != nil || !strings.Contains(out, fmt.Sprintf("process %d", old.cmd.Process.Pid)) {
				t.Errorf("break: %q %v", out, err)
			}
			if out, _ := old.wait(); out != "write: input/output error\n" {
				t.Errorf("the holder was told: %q", out)
			}
			if out, code := next.wait(); code != 0 {
				t.Errorf("the next one: %d %s", code, out)
			}
			checkOrder(t, withoutCutLine(read(t, c.src+"/"+file), "old", "new"), "old", "new")
			if bystander.ended() {
				t.Errorf("another program: %s", bystander.out.String())
			}
			bystander.signal(unix.SIGKILL)
			rows := a.journal("--event", "lost", "--path", file)
			if len(rows) != 1 || rows[0].PID != old.cmd.Process.Pid || !strings.Contains(rows[0].Reason, "broken by an admin on ") || !strings.Contains(rows[0].Reason, ": a test ("+host(t)) || !strings.HasSuffix(rows[0].Reason, "asked for it)") {
				t.Errorf("the holder's journal: %+v", rows)
			}
			a.noted("note", "has 1 locks broken: broken by an admin on "+host(t)+": a test")
			b.noted("note", fmt.Sprintf("an admin broke the lock of %s on %q", host(t), file))
			if log := a.log(); !strings.Contains(log, fmt.Sprintf("pid=%d", old.cmd.Process.Pid)) {
				t.Error("the holder's log does not name it")
			}
			if _, err := c.try("locks", "break", file, a.dir, "--reason", "again", "--yes"); code(err) != exitcode.Failure || !strings.Contains(err.Error(), "no program holds a lock") {
				t.Errorf("break what nobody holds: %v", err)
			}
		})
	}
}

func host(t *testing.T) string {
	t.Helper()
	h, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A member that is stopped is removed, not sooner than it can believe that it
// has its locks; one that is live joins again by itself.
func TestRemoveAPeer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.mounts[0], c.mounts[1]
	hold := b.helper("hold", "flock", "f")
	b.held("f", 1)
	wait := a.helper("take", "flock", "f")
	a.blocked("f", 1)
	id := b.peers().Self

	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{id, a.dir, "--yes"}, exitcode.Usage, "--reason"},
		{[]string{a.peers().Self, a.dir, "--reason=x", "--yes"}, exitcode.Usage, "that is this node"},
		{[]string{"nobody", a.dir, "--reason=x", "--yes"}, exitcode.Failure, "is not a member"},
		{[]string{host(t), a.dir, "--reason=x", "--yes"}, exitcode.Usage, "3 members are on host"},
		{[]string{id, a.dir, "--reason=x"}, exitcode.Failure, "nothing was done"},
	} {
		if _, err := c.try(append([]string{"peers", "remove"}, x.args...)...); code(err) != x.code || !strings.Contains(err.Error(), x.want) {
			t.Errorf("peers remove %v: %v", x.args, err)
		}
	}
	epoch := a.peers().Epoch
	began := time.Now()
	out, err := c.tryWith("y\n", "peers", "remove", id, a.dir, "--reason", "it is broken")
	if err != nil || !strings.Contains(out, "is removed") {
		t.Fatalf("%s %v", out, err)
	}
	t.Logf("removed after %v", time.Since(began))
	if d := time.Since(began); d < 4500*time.Millisecond {
		t.Errorf("removed after %v: faster than is safe", d)
	}
	if out, code := wait.wait(); code != 0 {
		t.Errorf("who waited: %d %s", code, out)
	}
	c.awaitMembers(3) // it comes back
	if e := a.peers().Epoch; e != epoch+2 {
		t.Errorf("epoch %d became %d, want two more", epoch, e)
	}
	b.lost("f", hold.cmd.Process.Pid)
	b.noted("fenced", "removed by an admin: it is broken")
	c.mounts[2].noted("leave", "removed by an admin: it is broken")
	a.noted("note", "an admin removes")
	hold.signal(unix.SIGKILL)
}

// A peer that is revoked goes, and does not come back before it is let in.
func TestRevokeAPeer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	id := b.peers().Self
	if _, err := c.try("peers", "revoke", id, a.dir, "--reason", "leaked", "--yes"); err != nil {
		t.Fatal(err)
	}
	await(t, "it has gone", func() bool { return a.live(1) && b.daemon() == 0 && !alive(b.watcher) })
	if !mountpoint.IsDead(b.dir) {
		t.Error("its mount is not dead")
	}
	p := a.peers()
	if len(p.Members) != 1 || len(p.Revoked) != 1 || p.Revoked[0] != id || len(p.Gone) != 1 || p.Gone[0].ID != id {
		t.Errorf("peers: %+v", p)
	}
	if err := b.tryMount(); code(err) != exitcode.Refused || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked peer mounts: %v", err)
	}
	if _, err := c.try("peers", "revoke", id, a.dir, "--undo", "--reason", "found it"); err != nil {
		t.Fatal(err)
	}
	a.noted("note", "an admin lets")
	b.mount()
	c.awaitMembers(2)
}

// What status and peers say of a node that stands still, from it and from the
// others, and after it was expelled.
func TestHealth(t *testing.T) {
	t.Parallel()
	c := newNetCluster(t, 3)
	a, b, d := c.mounts[0], c.mounts[1], c.mounts[2]
	if out, err := c.try("status", a.dir); err != nil || strings.Contains(out, "problem") {
		t.Errorf("status of a node that is well: %v\n%s", err, out)
	}
	a.cut(b, d)
	await(t, "it is suspended", func() bool {
		out, err := c.try("status", a.dir)
		if code(err) == exitcode.Sick && strings.Contains(out, "suspended") && strings.Contains(out, "no promise from") {
			return true
		}
		return len(b.peers().Gone) > 0 // on a slow machine that is over already
	})
	await(t, "the others see that it is silent", func() bool {
		for _, m := range b.peers().Members {
			if m.ID == id(t, a) {
				return m.State == "silent" || m.State == "being dropped"
			}
		}
		return len(b.peers().Gone) > 0 // on a slow machine that is over already
	})
	await(t, "the others have expelled it", func() bool {
		p := b.peers()
		return len(p.Members) == 2 && len(p.Gone) == 1 && p.Gone[0].ID == id(t, a) && p.Gone[0].State == "expelled" &&
			strings.Contains(p.Gone[0].Why, "silent for")
	})
	if out, err := c.try("status", a.dir); code(err) != exitcode.Sick || !strings.Contains(out, "problem") {
		t.Errorf("status of an expelled node: %v\n%s", err, out)
	}
	if out := c.run("peers", b.dir); !strings.Contains(out, "expelled") {
		t.Errorf("peers:\n%s", out)
	}
	c.back("a node that was expelled")
	if p := b.peers(); len(p.Gone) != 0 {
		t.Errorf("after it is back: %+v", p.Gone)
	}
	if out, err := c.try("status", a.dir); err != nil {
		t.Errorf("status after it is back: %v\n%s", err, out)
	}
}

// id is the peer ID of a mount, which is in its state directory.
func id(t *testing.T, m *testMount) string {
	t.Helper()
	s, err := m.status()
	if err != nil {
		t.Fatal(err)
	}
	return s.Self
}

// The fence command has to succeed before a member is dropped, and is told
// whom it is about. A dead daemon that was restarted needs none.
func TestFenceCommand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	script := `echo "$DMXFS_PEER $DMXFS_HOST $DMXFS_ADDRS $DMXFS_BOOT_ID $DMXFS_MOUNT $DMXFS_SOURCE" >> ` + c.dir + `/fenced; echo broken power switch; test -e ` + c.dir + `/allowed`
	for range 2 {
		c.add("--takeover=false", "--fence-command", script).mount()
	}
	c.awaitMembers(2)
	a, b := c.mounts[0], c.mounts[1]
	hold := b.helper("hold", "flock", "f")
	b.held("f", 1)
	wait := a.helper("take", "flock", "f")
	a.blocked("f", 1)
	self := id(t, b)

	old := b.daemon()
	b.signal(unix.SIGKILL)
	b.awaitNew(old)
	if out, code := wait.wait(); code != 0 {
		t.Errorf("after a restart: %d %s", code, out)
	}
	if _, err := os.Stat(c.dir + "/fenced"); err == nil {
		t.Errorf("a dead daemon was fenced: %s", read(t, c.dir+"/fenced"))
	}
	hold.signal(unix.SIGKILL)
	c.awaitMembers(2)

	hold = b.helper("hold", "flock", "g")
	b.held("g", 1)
	wait = a.helper("take", "flock", "g")
	a.blocked("g", 1)
	b.signal(unix.SIGSTOP)
	a.noted("note", "cannot be fenced, so its locks stay: the fence command failed: exit status 1; what it said is in ")
	if said := read(t, filepath.Join(a.state, "fence.out")); said != "broken power switch\n" {
		t.Errorf("the fence command said %q", said)
	}
	if wait.ended() {
		t.Fatalf("the lock came free without a fence: %s", wait.out.String())
	}
	if n := len(a.peers().Members); n != 2 {
		t.Errorf("%d members", n)
	}
	write(t, c.dir+"/allowed", "")
	if out, code := wait.wait(); code != 0 {
		t.Errorf("after the fence: %d %s", code, out)
	}
	line, _, _ := strings.Cut(read(t, c.dir+"/fenced"), "\n")
	boot := strings.TrimSpace(read(t, "/proc/sys/kernel/random/boot_id"))
	for _, want := range []string{self + " " + host(t) + " /ip4/127.0.0.1/tcp/", " " + boot + " " + a.dir + " " + c.src} {
		if !strings.Contains(line, want) {
			t.Errorf("the fence command was told %q, without %q", line, want)
		}
	}
	b.signal(unix.SIGCONT)
	c.awaitMembers(2)
	hold.signal(unix.SIGKILL)
}
