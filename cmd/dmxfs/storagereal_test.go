package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// The locks hand the data over on real storage, too: these tests are those of
// coherence_test.go, over two clients of servers that they start. They are
// small in CI, and of full size with -storage.full (make storage).

var storageFull = flag.Bool("storage.full", false, "the tests over real storage count as far as docs/storage.md says")

var realKinds = []clientKind{
	{name: "GlusterFS", variant: true, namesAnew: true, git: 3, losesNames: true, serve: func(t testing.TB, dir string) func(string) { return serveGluster(t, dir) }},
	{name: "GlusterFS without caches", variant: true, namesAnew: true, git: 3, losesNames: true, serve: func(t testing.TB, dir string) func(string) {
		return serveGluster(t, dir, "quick-read", "md-cache")
	}},
	{name: "MooseFS", variant: true, namesAnew: true, git: 5, serve: serveMoose},
	{name: "sshfs", namesAnew: true, git: 20, start: startSSHFS},
	{name: "sshfs with kernel_cache", variant: true, namesAnew: true, git: 20, start: func(t testing.TB, source, mountpoint string) {
		startSSHFSWith(t, source, mountpoint, ",cache=yes,kernel_cache")
	}},
}

// size is how often something is done: n times, or with -storage.full full.
func size(n, full int) int {
	if *storageFull {
		return full
	}
	return n
}

// sizeInCI is size, with fewer times where tests do not run in full, or with the race
// detector, by which five kinds of storage take a machine for many minutes.
func sizeInCI(short, n, full int) int {
	if long.Race {
		n = short
	}
	return size(long.Or(short, n), full)
}

// One cluster serves for all parts: some storage takes ten seconds to begin.
func TestOverRealStorage(t *testing.T) {
	needTool(t, "sqlite3")
	if *storageFull {
		patienceOfTests = 15 * time.Minute
	}
	if !long.Tests() && !*storageFull { // five kinds are enough for a machine
		t.Parallel()
	}
	var side parts
	defer side.Wait()
	for _, kind := range realKinds {
		side.run(t, kind.name, func(t *testing.T) {
			if !kind.runs() {
				t.Skipf("runs with %s=1, as in .ci/run, or -storage.full", long.Env)
			}
			runOverStorage(t, kind)
		})
	}
}

// parts of a test run side by side. With t.Parallel they would begin when all other
// tests have, and be what is waited for in the end.
type parts struct{ sync.WaitGroup }

func (p *parts) run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	p.Go(func() { part(t, name, f) })
}

func runOverStorage(t *testing.T, kind clientKind) {
	// What the age of listings matters for is not tested here, and waiting for
	// it takes a minute.
	c := newClientCluster(t, kind, 2, "--listing-age=0s")
	if !*storageFull && !isUML() { // which have their own limits
		c.watch.Allow(long.Or(8*time.Minute, 12*time.Minute)) // all kinds run at once
	}
	run := func(name string, f func(t *testing.T)) {
		part(t, name, func(t *testing.T) {
			if isUML() {
				c.watch.Allow(4 * patienceOfTests) // for this part
			}
			defer c.tellWhy(t)
			f(t)
		})
	}
	// Programs take longer to begin than to count.
	procs, n := sizeInCI(1, 2, 4), sizeInCI(4, 5, 100)
	half := procs == 1 // of the variants of counters
	// In coherence_test.go they are run over sshfs, too.
	if kind.name != "sshfs" || long.Tests() || *storageFull {
		run("counters", func(t *testing.T) { runCounters(t, c, procs, n, half) })
		run("writes beside", func(t *testing.T) { runWritesBeside(t, c, sizeInCI(1, 5, 100)) })
		run("SQLite", func(t *testing.T) { runSQLite(t, c, sizeInCI(2, 3, 100)) })
	}
	run("appends", func(t *testing.T) { runAppends(t, c, procs, n) })
	run("replacements", func(t *testing.T) { runReplacements(t, c, procs, n) })
	if *storageFull {
		for _, mode := range []string{"truncate", "persist"} {
			run("SQLite "+mode, func(t *testing.T) { runSQLiteMode(t, c, 100, mode) })
		}
	}
	run("lock files", func(t *testing.T) { runLockFiles(t, c, sizeInCI(2, 3, 50), kind.losesNames) })
	run("turns", func(t *testing.T) { runTurns(t, c, size(1, 12)) })
	if kind.namesAnew {
		run("passing on", func(t *testing.T) { runPassingOn(t, c, sizeInCI(1, 3, 30)) })
	}
	if kind.namesAnew {
		run("replaced", func(t *testing.T) {
			a, b := c.mounts[0], c.mounts[1]
			if out, code := a.helper("replaced", strconv.Itoa(sizeInCI(2, 5, 100)), a.dir, b.dir).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
			// Clients keep what they know until a second is over, dmxfs for less. Each
			// begins with a file that nobody has open.
			for range sizeInCI(1, 2, 8) {
				if out, code := a.helper("replaced", strconv.Itoa(size(2, 4)), a.dir, b.dir, "700").wait(); code != 0 {
					t.Errorf("after 0.7 s of idleness: exit code %d: %s", code, out)
				}
			}
		})
		run("followed", func(t *testing.T) {
			if out, code := c.mounts[0].helper("followed", strconv.Itoa(sizeInCI(1, 10, 100)), c.mounts[0].dir, c.mounts[1].dir).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
	if long.Tests() || *storageFull {
		run("upgrades", func(t *testing.T) { runUpgrades(t, c, sizeInCI(5, 20, 100)) })
	}
	if kind.git > 0 && *storageFull {
		run("git", func(t *testing.T) { runGit(t, c, kind.git) })
	}
}

// tellWhy shows what the daemons say, if a part of a test has failed: the others
// may take long, and add to it.
func (c *testCluster) tellWhy(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, m := range c.mounts {
		t.Logf("the log of %s:\n%s", m.dir, m.log())
		t.Logf("its journal:\n%s", m.c.run("journal", "--event", "lost,fenced,late_write,note", m.dir))
	}
}

// runSQLiteMode is runSQLite for a journal mode that is not the default.
func runSQLiteMode(t *testing.T, c *testCluster, n int, mode string) {
	pragma := "pragma journal_mode=" + mode
	if out, code := c.mounts[0].sh(fmt.Sprintf("sqlite3 %s.db '%s; create table t(x)'", mode, pragma)); code != 0 || out != mode+"\n" {
		t.Fatalf("%d %q", code, out)
	}
	insert := fmt.Sprintf(`for i in $(seq %d); do sqlite3 -cmd '.timeout 60000' %s.db "%s; insert into t values($i)" >/dev/null || exit 1; done`, n, mode, pragma)
	var ps []*proc
	for _, m := range c.mounts {
		ps = append(ps, m.start(insert), m.start(insert))
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 || out != "" {
			t.Errorf("%d %s", code, out)
		}
	}
	for _, m := range c.mounts {
		out, code := m.sh(fmt.Sprintf("sqlite3 %s.db 'select count(*) from t; pragma integrity_check'", mode))
		if code != 0 || out != fmt.Sprintf("%d\nok\n", 4*n) {
			t.Errorf("on %s: %d %q", m.dir, code, out)
		}
	}
}

// runLockFiles lets programs make a file that must not exist, in each of the
// ways there are: that another one has it is EEXIST, whatever the client says.
//
// Two clients of GlusterFS that make one directory or one symbolic link at once
// may both be told so (4 and 7 of 1500 times without dmxfs): fewer of these is
// all right for it.
func runLockFiles(t *testing.T, c *testCluster, n int, losesNames bool) {
	for _, how := range []string{"open", "link", "symlink", "mkdir"} {
		part(t, how, func(t *testing.T) {
			var ps []*proc
			for i, m := range c.mounts {
				ps = append(ps, m.helper("exclusive", how, fmt.Sprint(i), fmt.Sprint(n)))
			}
			made := 0
			for _, p := range ps {
				out, code := p.wait()
				k, err := strconv.Atoi(out)
				if made += k; code != 0 || err != nil {
					t.Errorf("exit code %d: %s", code, out)
				}
			}
			if made > n || made < n && !(losesNames && (how == "symlink" || how == "mkdir")) {
				t.Errorf("%d names were made %d times", n, made)
			}
		})
	}
}

// runPassingOn lets two hosts have a lock file in turns, each of which the other
// one has just found to be there: it must be seen soon that it is gone. And what
// one puts in the place of a file, in the same second, the other one reads, and
// finds in its directory.
func runPassingOn(t *testing.T, c *testCluster, n int) {
	for _, how := range []string{"open", "link", "mkdir"} {
		part(t, how, func(t *testing.T) {
			began := time.Now()
			if out, code := c.mounts[0].helper("pass", how, strconv.Itoa(n), c.mounts[0].dir, c.mounts[1].dir).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
			// It took 20 s each, where the client keeps names.
			if took := time.Since(began); took > time.Duration(n)*10*time.Second {
				t.Errorf("%d turns took %v", n, took)
			}
		})
	}
}

// passOn lets two hosts have a lock in turns: pass open|link|mkdir N DIR1 DIR2.
func passOn(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for i := range n {
		mine, other := args[2+i%2], args[3-i%2]
		if err := lockByName(args[0], mine); err != nil {
			return fmt.Errorf("turn %d: %w", i, err)
		}
		if err := lockByName(args[0], other); err != unix.EEXIST {
			return fmt.Errorf("turn %d: the other host got the lock, too: %v", i, err)
		}
		text := fmt.Sprintf("%06d", i)
		if err := os.WriteFile(filepath.Join(mine, "passed-new-"+text), []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(mine, "passed-new-"+text), filepath.Join(mine, "passed")); err != nil {
			return err
		}
		if err := unlockByName(args[0], mine); err != nil {
			return err
		}
		for err = unix.EEXIST; err == unix.EEXIST; {
			err = lockByName(args[0], other)
		}
		if err != nil {
			return fmt.Errorf("turn %d: the other host afterwards: %w", i, err)
		}
		if b, err := os.ReadFile(filepath.Join(other, "passed")); err != nil || string(b) != text {
			return fmt.Errorf("turn %d: read %q, want %q: %v", i, b, text, err)
		}
		list, err := filepath.Glob(filepath.Join(other, "passed-*"))
		if err != nil || len(list) != 1 { // the lock itself
			return fmt.Errorf("turn %d: listed %q: %v", i, list, err)
		}
		if err := unlockByName(args[0], other); err != nil {
			return err
		}
	}
	return nil
}

// replacedOpen lets one host put another file in the place of one that the other
// host has open: who has it open goes on with the old one, who opens it then has
// the new one, size and all: replaced N DIR1 DIR2 [IDLE], with so many
// milliseconds before it is opened again.
func replacedOpen(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	name, temp := filepath.Join(args[1], "stays"), filepath.Join(args[1], "stays-new")
	put := func(text string) error {
		if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(temp, name)
	}
	text := func(i int) string {
		whole := strings.Repeat(fmt.Sprintf("%06d", i), 40+i*37%100)
		if i%3 == 2 { // begins like the one before
			whole = strings.Repeat(fmt.Sprintf("%06d", i-1), 40+(i-1)*37%100) + whole
		}
		if i%7 == 4 { // is the beginning of the one before
			whole = "0"
		}
		return whole
	}
	if err := put(text(0)); err != nil {
		return err
	}
	for i := range n {
		var fds [2]*os.File
		for k := range fds {
			if fds[k], err = os.Open(filepath.Join(args[2], "stays")); err != nil {
				return fmt.Errorf("round %d, open %d of 2: %w", i, k+1, err)
			}
			defer fds[k].Close()
			if k == 0 {
				if _, err := fds[0].ReadAt(make([]byte, 1), 0); err != nil {
					return err
				}
				if err := put(text(i + 1)); err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
				idle(args[3:])
			}
		}
		for k, what := range []string{"new", "old"} {
			f, want := fds[1-k], text(i+1-k)
			st, err := f.Stat()
			if err != nil {
				return err
			}
			b, err := io.ReadAll(f)
			if err != nil || string(b) != want || st.Size() != int64(len(want)) {
				return fmt.Errorf("round %d: the %s file has %d bytes, and %d as its size, want %d: %v", i, what, len(b), st.Size(), len(want), err)
			}
		}
		for _, f := range fds {
			f.Close()
		}
	}
	return nil
}

func lockByName(how, dir string) error {
	name := filepath.Join(dir, "passed-on")
	switch how {
	case "open":
		return retry(func() error {
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err == nil {
				unix.Close(fd)
			}
			return err
		})
	case "link":
		own := filepath.Join(dir, "own-passed-on")
		if err := os.WriteFile(own, nil, 0o600); err != nil {
			return err
		}
		defer os.Remove(own)
		return unix.Link(own, name)
	}
	return unix.Mkdir(name, 0o700)
}

func unlockByName(how, dir string) error {
	name := filepath.Join(dir, "passed-on")
	if how == "mkdir" {
		return unix.Rmdir(name)
	}
	return unix.Unlink(name)
}

// exclusive makes n names, HOW, unless they exist, and prints how many it has
// made: exclusive open|link|symlink|mkdir SELF N.
func exclusive(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	made := 0
	for i := range n {
		name := fmt.Sprintf("%s-%d", args[0], i)
		// A file each: over ext4, GlusterFS has room for 46 links of one.
		own := "own-" + args[1] + "-" + name
		if err := os.WriteFile(own, nil, 0o600); err != nil {
			return err
		}
		err := retry(func() error {
			switch args[0] {
			case "open":
				fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				if err == nil {
					unix.Close(fd)
				}
				return err
			case "link":
				return unix.Link(own, name)
			case "symlink":
				return unix.Symlink(own, name)
			}
			return unix.Mkdir(name, 0o700)
		})
		switch err {
		case nil:
			made++
		case unix.EEXIST:
		default:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Print(made)
	return nil
}

// idleTime is how many milliseconds make old what clients keep for a second.
const idleTime = "1050"

// runTurns changes files in turns, each after a second of idleness. Clients
// keep for a second, or for the rest of one, what they have looked at: the
// turn that comes then finds their caches full, and old.
func runTurns(t *testing.T, c *testCluster, n int) {
	a, b := c.mounts[0], c.mounts[1]
	var side parts
	defer side.Wait()
	for i, lock := range []string{"flock self kept", "flock self anew", "fcntl lockfile anew", "ofd self kept"} {
		side.run(t, lock, func(t *testing.T) {
			dir := fmt.Sprintf("turns-%d", i)
			if out, code := a.sh("mkdir " + dir); code != 0 {
				t.Fatal(out)
			}
			write(t, a.path(dir+"/data"), "")
			args := append(strings.Fields(lock), fmt.Sprint(n), a.path(dir), b.path(dir), idleTime)
			if out, code := a.helper("rounds", args...).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
	side.run(t, "rename", func(t *testing.T) {
		if out, code := a.helper("replace", "flock", fmt.Sprint(6*n), a.dir, b.dir, idleTime).wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}

// The doctor's verdict on real storage is what the tests above find.
func TestDoctorOverRealStorage(t *testing.T) {
	if !*storageFull {
		t.Skip("takes a minute: see make storage")
	}
	var side parts
	defer side.Wait()
	for _, kind := range realKinds {
		side.run(t, kind.name, func(t *testing.T) {
			runDoctorOverStorage(t, kind)
		})
	}
}

func runDoctorOverStorage(t *testing.T, kind clientKind) {
	c := newCluster(t, 0)
	j, found := c.examine(c.clientsOf(kind, 2)...)
	c.checks(found, "link=ok", "data under a lock=ok", "tidying up=")
	if !j.Fit {
		t.Error("not fit")
	}
	for _, f := range j.Findings {
		t.Logf("%s: %s: %s", f.Check, f.Result, f.Text)
	}
}
