package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// Tests of the whole program: real mounts of one directory, in the role of
// hosts, and real programs on them.

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNodesFindEachOtherAndLeave(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5)
	p := c.mounts[0].peers()
	if len(p.Members) != 5 {
		t.Fatalf("%d members", len(p.Members))
	}
	seen := map[string]bool{}
	for _, m := range p.Members {
		if m.State != "live" || m.Host == "" || len(m.Addrs) == 0 || m.Incarnation == "" || seen[m.ID] {
			t.Errorf("member %+v", m)
		}
		if (m.RTTMS == nil) != (m.ID == p.Self) {
			t.Errorf("rtt of %s: %v", m.ID, m.RTTMS)
		}
		seen[m.ID] = true
	}
	// One leaves while the others work; they go on at once.
	hold := c.mounts[1].start("flock f sh -c 'echo held; sleep 100'")
	await(t, "the lock is held", func() bool { return c.mounts[1].count("f", "held") == 1 })
	c.run("unmount", c.mounts[4].dir)
	began := time.Now()
	c.awaitMembers(4)
	t.Logf("the others were in a new epoch %v after the unmount", time.Since(began))
	if out, code := c.mounts[0].sh("flock -n f true"); code != 1 {
		t.Errorf("flock -n beside a holder: %d %s", code, out)
	}
	hold.signal(unix.SIGKILL)
	if out, code := c.mounts[2].sh("flock -w 20 f true"); code != 0 {
		t.Errorf("flock after the holder was killed: %d %s", code, out)
	}
}

// Two mounts, four processes each: no increment is lost, whatever kind of
// lock, whichever file is locked, and however the files are opened.
func TestCounters(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	c.watch.Allow(long.Or(4*time.Minute, 12*time.Minute))
	runCounters(t, c, 4, times(250), false)
}

func TestTryFailsAtOnce(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.start("flock f sleep 100")
	a.held("f", 1)
	if out, code := b.sh("flock -n f true"); code != 1 || out != "" {
		t.Errorf("flock -n: %d %s", code, out)
	}
	began := time.Now()
	if out, code := b.sh("flock -w 1 f true"); code != 1 {
		t.Errorf("flock -w 1: %d %s", code, out)
	}
	if d := time.Since(began); d < 900*time.Millisecond {
		t.Errorf("flock -w 1 gave up after %v", d)
	}
	if n := b.count("f", "waiting"); n != 0 {
		t.Errorf("%d requests still wait", n)
	}
	hold.signal(unix.SIGKILL)
	if out, code := b.sh("flock -w 20 f true"); code != 0 {
		t.Errorf("flock: %d %s", code, out)
	}
}

// A hundred tries at once for a free lock: exactly one has it, in every round.
func TestOneOfManyTriesWins(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	c := newCluster(t, 2)
	for round := range long.Or(2, 5) {
		f := fmt.Sprintf("f%d", round)
		if err := unix.Mkfifo(c.src+fmt.Sprintf("/gate-%d", round), 0o600); err != nil {
			t.Fatal(err)
		}
		var ps []*proc
		for i := range 100 {
			// The winner holds it until all others have had their answer.
			ps = append(ps, c.mounts[i%2].start(fmt.Sprintf("flock -n %s sh -c 'echo won; read x < gate-%d'", f, round)))
		}
		await(t, "99 tries have failed", func() bool {
			n := 0
			for _, p := range ps {
				if p.ended() {
					n++
				}
			}
			return n >= 99
		})
		won := 0
		for _, p := range ps {
			if !p.ended() {
				won++
				p.signal(unix.SIGKILL)
			} else if _, code := p.wait(); code == 0 {
				won++
			}
		}
		if won != 1 {
			t.Errorf("round %d: %d tries won", round, won)
		}
	}
}

// A file that is open for writing on one host makes an open on another wait,
// and what is read then is what was written last.
func TestOpenWaitsForAWriterElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--yield", "never") // however long the writer takes
	a, b := c.mounts[0], c.mounts[1]
	write(t, a.path("f"), "old\n")
	if got := read(t, b.path("f")); got != "old\n" {
		t.Fatalf("b reads %q", got)
	}
	if err := unix.Mkfifo(c.src+"/go", 0o600); err != nil {
		t.Fatal(err)
	}
	w := a.start("exec 3>f; echo one >&3; read x < ../src/go; echo two >&3")
	a.held("f", 1)
	r := b.start("cat f")
	b.blocked("f", 1)
	// Another program on the writer's own host does not wait.
	if out, code := a.sh("cat f"); code != 0 || out != "one\n" {
		t.Errorf("on the host of the writer: %d %q", code, out)
	}
	if r.ended() {
		t.Fatalf("cat did not wait: %s", r.out.String())
	}
	write(t, c.src+"/go", "x\n")
	if out, code := w.wait(); code != 0 {
		t.Fatalf("writer: %d %s", code, out)
	}
	if out, code := r.wait(); code != 0 || out != "one\ntwo\n" {
		t.Errorf("cat: %d %q", code, out)
	}
	// Readers on both do not wait for one another.
	r1 := a.start("exec 3<f; read x <&3; echo $x; read y < ../src/go")
	r2 := b.start("exec 3<f; read x <&3; echo $x; read y < ../src/go")
	await(t, "two readers hold the file", func() bool { return a.count("f", "held") == 2 })
	for _, r := range []*proc{r1, r2} {
		r.signal(unix.SIGKILL)
	}
}

// What scripts do to lock themselves: open for writing, then flock. It must
// not wait for the open of another.
func TestScriptsThatLockThemselves(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.start("exec 9>f; flock -n 9 || exit 1; sleep 100")
	await(t, "the script has its lock", func() bool {
		for _, l := range a.locks() {
			if l.Path == "f" && l.Class == "flock" && l.State == "held" {
				return true
			}
		}
		return false
	})
	for _, m := range c.mounts {
		if out, code := m.sh("exec 9>f; flock -n 9 || exit 7"); code != 7 {
			t.Errorf("on %s: %d %s", m.dir, code, out)
		}
	}
	wait := b.start("exec 9>f; flock 9; echo got it")
	b.blocked("f", 1)
	hold.signal(unix.SIGKILL)
	if out, code := wait.wait(); code != 0 || out != "got it\n" {
		t.Errorf("%d %q", code, out)
	}
}

func TestKillFreesTheLock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	for _, kind := range []string{"flock", "fcntl", "ofd"} {
		t.Run(kind, func(t *testing.T) {
			hold := a.helper("hold", kind, "f")
			a.held("f", 1)
			wait := b.helper("take", kind, "f")
			b.blocked("f", 1)
			hold.signal(unix.SIGKILL)
			began := time.Now()
			if out, code := wait.wait(); code != 0 {
				t.Errorf("%d %s", code, out)
			}
			t.Logf("free %v after the kill", time.Since(began))
		})
	}
	t.Run("open", func(t *testing.T) {
		hold := a.start("exec 3>g; sleep 100")
		a.held("g", 1)
		wait := b.start("cat g")
		b.blocked("g", 1)
		hold.signal(unix.SIGKILL)
		wait.ends("an open after the writer was killed")
	})
}

// A signal ends a wait at once, and the lock is not taken later.
func TestSignalsEndWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL} {
		for _, kind := range []string{"flock", "fcntl", "ofd", "open"} {
			t.Run(sig.String()+" "+kind, func(t *testing.T) {
				file := fmt.Sprintf("%s-%d", kind, sig)
				write(t, a.path(file), "")
				var hold, wait *proc
				if kind == "open" {
					hold = a.start("exec 3>" + file + "; sleep 100")
				} else {
					hold = a.helper("hold", kind, file)
				}
				a.held(file, 1)
				if kind == "open" {
					wait = b.start("exec cat " + file)
				} else {
					wait = b.helper("wait-signal", kind, file)
				}
				b.blocked(file, 1)
				wait.signal(sig)
				wait.ends("the end of the wait")
				if n := b.count(file, "waiting"); n != 0 {
					t.Errorf("%d requests still wait", n)
				}
				hold.signal(unix.SIGKILL)
				hold.ends("the end of the holder")
				await(t, "nothing is held", func() bool { return a.count(file, "held") == 0 })
				if kind == "open" {
					kind = "flock"
				}
				if out, code := a.helper("try", kind, file).wait(); code != 0 {
					t.Errorf("somebody holds the lock: %d %s", code, out)
				}
			})
		}
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	needTool(t, "sqlite3")
	runSQLite(t, newCluster(t, 2), long.Or(20, 100))
}

// In WAL mode processes of one host share a database, and another host has it
// only when they have closed it: until then it gets an error, and nothing that
// was committed is lost.
func TestSQLiteWAL(t *testing.T) {
	t.Parallel()
	needTool(t, "sqlite3")
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	if out, code := a.sh("sqlite3 t.db 'pragma journal_mode=wal; create table t(x)'"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	count := "sqlite3 -cmd '.timeout 60000' t.db 'select count(*) from t'"
	p := a.start(`(echo 'insert into t values(1);'; until [ -e end ]; do sleep 0.02; done; echo 'insert into t values(2);') | sqlite3 -cmd '.timeout 60000' t.db`)
	await(t, "the database is open", func() bool {
		out, _ := a.sh(count)
		return out == "1\n"
	})
	if out, code := b.sh(count); code == 0 || !strings.Contains(out, "unable to open") {
		t.Errorf("the other host meanwhile: %d %s", code, out)
	}
	write(t, a.path("end"), "")
	if out, code := p.wait(); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if out, code := b.sh(count); code != 0 || out != "2\n" {
		t.Errorf("the other host afterwards: %d %s", code, out)
	}

	n := long.Or(6, 15)
	insert := fmt.Sprintf("for i in $(seq %d); do until sqlite3 -cmd '.timeout 60000' t.db \"insert into t values($i)\" 2>>err; do k=$((k+1)); [ $k -lt 200 ] || exit 9; done; done", n)
	var ps []*proc
	for _, m := range c.mounts {
		ps = append(ps, m.start(insert), m.start(insert))
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 {
			t.Errorf("%d %s\n%s", code, out, read(t, a.path("err")))
		}
	}
	for _, m := range c.mounts {
		want := fmt.Sprintf("%d\nok\n", 2+4*n)
		await(t, "all is there", func() bool {
			out, code := m.sh(count + "; sqlite3 t.db 'pragma integrity_check'")
			return code == 0 && out == want
		})
	}
}

func TestGit(t *testing.T) {
	t.Parallel()
	needTool(t, "git")
	c := newCluster(t, 2)
	env := "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x GIT_CONFIG_GLOBAL=/dev/null; "
	if out, code := c.mounts[0].sh(env + "git init -q repo"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	commits := long.Or(5, 15)
	var ps []*proc
	for i, m := range c.mounts {
		// The other host's index.lock is met now and then; then it is tried again.
		ps = append(ps, m.start(env+fmt.Sprintf(`cd repo; for i in $(seq %d); do
			echo $i > %[2]d.$i
			until { git add %[2]d.$i && git commit -qm "%[2]d $i" -- %[2]d.$i; } 2>>../err-%[2]d; do n=$((n+1)); [ $n -lt 2000 ] || exit 9; done
		done`, commits, i)))
	}
	for i, p := range ps {
		if out, code := p.wait(); code != 0 {
			t.Errorf("%d %s\n%s", code, out, read(t, c.mounts[0].path(fmt.Sprintf("err-%d", i))))
		}
	}
	for _, m := range c.mounts {
		if out, code := m.sh(env + "cd repo && git fsck --full --strict && git log --oneline | wc -l"); code != 0 || !strings.HasSuffix(out, fmt.Sprintf("%d\n", 2*commits)) {
			t.Errorf("on %s: %d %s", m.dir, code, out)
		}
		if out, code := m.sh(env + "cd repo && git status --short"); code != 0 || out != "" {
			t.Errorf("status on %s: %d %s", m.dir, code, out)
		}
	}
}

// The shim in place: programs see the files of the directory that it covers,
// its locks are those of a node that sees the storage elsewhere, and after the
// unmount the directory is as before.
func TestInPlace(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	write(t, c.src+"/before", "content")
	bind := c.dir + "/bind"
	if err := os.Mkdir(bind, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(c.src, bind, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	// Where the root mount is shared, what is mounted at the one would be mounted at
	// the other.
	if err := unix.Mount("", bind, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(bind, 0); err != nil {
			t.Errorf("unmount the bind mount: %v", err)
		}
	})
	a, b := c.add(), c.add()
	a.dir, b.dir = c.src, bind
	for _, m := range []*testMount{a, b} {
		c.run("--state", m.state, "--listen", "/ip4/127.0.0.1/tcp/0", m.dir)
	}
	c.awaitMembers(2)
	for _, m := range c.mounts {
		if got := read(t, m.path("before")); got != "content" {
			t.Errorf("%s: %q", m.dir, got)
		}
		if _, err := os.Stat(m.path(".dmxfs")); err == nil {
			t.Errorf("%s shows .dmxfs", m.dir)
		}
	}
	hold := a.helper("hold", "flock", "before")
	a.held("before", 1)
	if out, code := b.helper("try", "flock", "before").wait(); code == 0 {
		t.Errorf("two holders: %s", out)
	}
	hold.signal(unix.SIGKILL)
	hold.ends("the holder")
	write(t, b.path("new"), "from b")
	for _, m := range c.mounts {
		c.run("unmount", m.dir)
	}
	if got := read(t, c.src+"/new"); got != "from b" {
		t.Errorf("after the unmount: %q", got)
	}
	if got := read(t, c.src+"/before"); got != "content" {
		t.Errorf("after the unmount: %q", got)
	}
}

// journal --follow prints records as they come, until it is interrupted.
// The size of a file comes with its lock, also while other programs of the host
// are granted locks on other files all the time.
func TestSizesAreHandedOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	times := long.Or(100, 300)
	var ps []*proc
	files := map[string]string{"one": "flock", "two": "fcntl", "three": "ofd", "four": "flock"}
	for name, kind := range files {
		write(t, c.mounts[0].path(name), "")
		for _, m := range c.mounts {
			ps = append(ps, m.helper("grow", kind, name, fmt.Sprint(times)))
		}
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
	for name := range files {
		if n := len(read(t, c.mounts[0].path(name))); n != 2*times {
			t.Errorf("%s has %d bytes, want %d", name, n, 2*times)
		}
	}
}
