package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// What a takeover cannot go with is said before anything is mounted.
func TestTakeoverIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	for option, want := range map[string]string{
		"--no-restart":       "nobody goes on with a mount whose daemon is not started anew",
		"--journal=required": "the next daemon could not write the journal at once",
	} {
		m := c.add("--takeover", option)
		err := m.tryMount()
		if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", option, err, want)
		}
		if _, err := os.Stat(m.state); err == nil || m.mounted() {
			t.Errorf("%s: something is left behind", option)
		}
	}
}

// That a keeper is killed alone is a problem, which tells how to get another one; and that is
// so: the daemon is upgraded, killed, and another one goes on.
func TestTakeoverWithoutItsKeeper(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	m.mayTakeOver()
	ks := m.keeperPIDs()
	if len(ks) != 1 {
		t.Fatalf("keepers %v", ks)
	}
	if err := unix.Kill(ks[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	help := "`dmxfs upgrade " + m.dir + "`"
	await(t, "status says that the keeper has ended", func() bool {
		s, err := m.status()
		return err == nil && !s.Healthy && !s.Takeover.Possible && strings.Contains(strings.Join(s.Problems, "\n"), help)
	})
	if out, err := c.try("status", m.dir); code(err) != exitcode.Sick {
		t.Errorf("status: %v\n%s", err, out)
	}
	await(t, "the log says so", func() bool { return strings.Contains(m.log(), "nobody can go on with what it holds") })
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", ks[0])); err == nil {
		t.Error("the keeper was killed, and is in the list of processes")
	}
	m.upgraded()
	if s, err := m.status(); err != nil || !s.Healthy {
		t.Errorf("after an upgrade: %+v, %v", s, err)
	}
	m.killed(unix.SIGKILL)
}

// The mount of a user who is not root is taken over as well.
func TestTakeoverOfAUsersMount(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	out, m, err := asAnotherUser(t, `
value() { "$EXE" status --json $HOME/m | sed -n 's/.*"'$1'": *\([a-z0-9]*\).*/\1/p'; }
until_is() { n=0; until [ "$(value $1)" = $2 ]; do n=$((n+1)); [ $n -lt 300 ] || fail "$1 is not $2: $("$EXE" status $HOME/m)"; sleep 0.1; done; }
echo content > $SRC/f
"$EXE" --takeover $L --state $HOME/state1 $SRC $HOME/m || fail cannot mount
exec 3<>$HOME/m/removed 4>$HOME/m/locked
echo before >&3 && rm $HOME/m/removed || fail cannot write
flock -n 4 || fail no lock
for i in 1 2 3; do
	until_is possible true
	kill -9 $(pid $HOME/m)
	[ "$(cat $HOME/m/f)" = content ] || fail the mount has failed
	until_is count $i
	echo after >&3 || fail the file is not open any more
	! flock -n $HOME/m/locked true || fail the lock is not held any more
	sleep 0.5 # it was not killed by what it has taken over
done
"$EXE" journal --event lost,fenced $HOME/m | grep -q flock && fail something was lost
exec 3>&- 4>&-
"$EXE" unmount $HOME/m || fail cannot unmount
echo all well`)
	if err != nil || !strings.HasSuffix(out, "all well\n") {
		t.Errorf("%v\n%s", err, out)
	}
	await(t, "no keeper is left", func() bool { return m.keepers() == 0 })
}

// openOf is the file that a process has open whose name has a part, as /proc tells it.
func openOf(t *testing.T, pid int, part string) (path string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(dir + f.Name()); err == nil && strings.Contains(to, part) {
			return dir + f.Name()
		}
	}
	t.Fatalf("process %d has no %s open", pid, part)
	return ""
}

// flip inverts one bit of the first byte from off on that is not zero.
func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	n, _ := f.ReadAt(b, off)
	for i, x := range b[:n] {
		if x != 0 {
			if _, err := f.WriteAt([]byte{x ^ 0x10}, off+int64(i)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s has nothing", path)
}

// What a daemon has left is damaged. Nobody goes on with it: the mount is made anew, the log
// says why, and another host gets the lock when its holder cannot write any more.
func TestTakeoverOfDamage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--takeover")
	a, b := c.mounts[0], c.mounts[1]
	for i, x := range []struct {
		memory string
		off    int64
		want   string
	}{
		{"memfd:dmxfs-mount", 4096, "of its mount: generation 1: table 0: the tables in memory are damaged"},
		{"memfd:dmxfs-locks", 4096, "of its locks: generation 1: table 0: the tables in memory are damaged"},
		{"memfd:dmxfs-claims", 0, "who has claimed its place: the tables in memory"},
		{"memfd:dmxfs-requests", 0, "the memory of requests does not begin as it should"},
	} {
		name := fmt.Sprint("f", i)
		a.livesOn()
		hold := a.helper("append", "flock", name, "x", "0")
		await(t, "the holder has written", func() bool { return c.size(name) > 20 })
		next := b.helper("append", "flock", name, "y", "3")
		b.blocked(name, 1)
		a.mayTakeOver()
		stop := a.cutsOff()
		old, kept := a.daemon(), a.keeperPIDs()
		if len(kept) != 1 {
			t.Fatalf("keepers: %v", kept)
		}
		_ = unix.Kill(a.watcher, unix.SIGSTOP)
		await(t, "the watcher stands still", func() bool { return standsStill(a.watcher) })
		_ = unix.Kill(old, unix.SIGKILL)
		await(t, "the daemon is dead", func() bool { return !alive(old) })
		flip(t, openOf(t, kept[0], x.memory), x.off)
		_ = unix.Kill(a.watcher, unix.SIGCONT)
		a.awaitNew(old)
		hold.ends("the holder, whose mount is gone, ends")
		next.ends("who waited has the lock")
		stop()
		if x := a.takeover(); x.Count != 0 || x.Generation != 1 {
			t.Errorf("%s: somebody has gone on: %+v", name, x)
		}
		if log := a.log(); !strings.Contains(log, x.want) {
			t.Errorf("%s: the log does not say %q:\n%s", x.memory, x.want, log)
		}
		lines := strings.Split(read(t, c.src+"/"+name), "\n")
		for j := range lines[1:] {
			if strings.HasPrefix(lines[j], "y") && strings.HasPrefix(lines[j+1], "x") {
				t.Fatalf("%s: both had the lock: %q", name, lines[j:j+2])
			}
		}
		if out, code := a.sh("flock -n " + name + " true"); code != 0 {
			t.Errorf("%s: a lock after that: %d %s", name, code, out)
		}
		c.awaitMembers(2)
		await(t, "there is one keeper", func() bool { return a.keepers() == 1 })
	}
}

// A takeover begins so late that the others have dropped the host: files stay open, and the
// locks alone are lost.
func TestTakeoverThatIsTooLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--takeover", "--fast")
	a, b := c.mounts[0], c.mounts[1]
	st := newActors(t, false, a, a) // b on the same host has no lock
	st.want("ok", "a.t open f f rw,creat")
	st.want("ok", "a.t write f held")
	st.want("ok", "a.t flock f ex")
	st.want("ok", "b.t open gone gone rw,creat")
	st.want("ok", "b.t write gone unlinked")
	st.want("ok", "b.t unlink gone")
	b.blockedTry(t, "f")
	a.mayTakeOver()
	defer a.cutsOff()()
	old := a.daemon()
	_ = unix.Kill(a.watcher, unix.SIGSTOP)
	await(t, "the watcher stands still", func() bool { return standsStill(a.watcher) })
	_ = unix.Kill(old, unix.SIGKILL)
	await(t, "the other host has dropped this one", func() bool { s, err := b.status(); return err == nil && s.Members == 1 && s.State == "live" })
	if out, code := b.sh("flock -n f true && echo theirs >>f"); code != 0 {
		t.Errorf("the lock, of the host that goes on: %d %s", code, out)
	}
	_ = unix.Kill(a.watcher, unix.SIGCONT)
	a.awaitNew(old)
	c.awaitMembers(2)
	if x := a.takeover(); x.Count != 1 {
		t.Errorf("nobody has gone on: %+v", x)
	}
	st.want("EIO", "a.t write f more")
	st.want("EIO", "a.t pread f 0 4")
	st.want(`"unlinked"`, "b.t pread gone 0 8")
	st.want("ok", "b.t write gone more")
	st.want("ok", "a.t close f")
	st.want("ok", "a.t open f f rw,append")
	st.want("ok", "a.t flock f ex,nb")
	st.want("ok", "a.t write f anew")
	if got := read(t, c.src+"/f"); got != "heldtheirs\nanew" {
		t.Errorf("the file has %q", got)
	}
	await(t, "the journal tells of it", func() bool {
		r := a.journal("--event", "taken_over")
		return len(r) == 1 && strings.Contains(r[0].Reason, "the locks of this host are lost")
	})
	if r := a.journal("--event", "lost"); len(r) == 0 {
		t.Error("the journal does not tell which lock is lost")
	}
	a.mayTakeOver()
	await(t, "there is one keeper", func() bool { return a.keepers() == 1 })
}

// blockedTry checks that somebody else has a lock.
func (m *testMount) blockedTry(t *testing.T, name string) {
	t.Helper()
	if out, code := m.sh("flock -n " + name + " true"); code != 1 {
		t.Errorf("flock -n %s beside the holder: %d %s", name, code, out)
	}
}
