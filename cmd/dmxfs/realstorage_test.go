package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The locks hand the data over on real storage, too: these tests are those of
// coherence_test.go, over two clients of servers that they start. They are
// small in CI, and of full size with -storage.full (make storage).

var storageFull = flag.Bool("storage.full", false, "the tests over real storage count as far as docs/storage.md says")

var realKinds = []clientKind{
	{name: "GlusterFS", losesNames: true, serve: func(t testing.TB, dir string) func(string) { return serveGluster(t, dir) }},
	{name: "GlusterFS without caches", losesNames: true, serve: func(t testing.TB, dir string) func(string) {
		return serveGluster(t, dir, "quick-read", "md-cache")
	}},
	{name: "MooseFS", serve: serveMoose},
	{name: "sshfs", start: startSSHFS},
	{name: "sshfs with kernel_cache", start: func(t testing.TB, source, mountpoint string) {
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

// One cluster serves for all parts: some storage takes ten seconds to begin.
func TestOverRealStorage(t *testing.T) {
	needTool(t, "sqlite3")
	for _, kind := range realKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			runOverStorage(t, kind)
		})
	}
}

func runOverStorage(t *testing.T, kind clientKind) {
	// What the age of listings matters for is not tested here, and waiting for
	// it takes a minute.
	c := newClientCluster(t, kind, 2, "--listing-age=0s")
	t.Run("counters", func(t *testing.T) { runCounters(t, c, size(2, 4), size(5, 100)) })
	t.Run("SQLite", func(t *testing.T) { runSQLite(t, c, size(3, 100)) })
	t.Run("lock files", func(t *testing.T) { runLockFiles(t, c, size(3, 50), kind.losesNames) })
	t.Run("turns", func(t *testing.T) { runTurns(t, c, size(1, 20)) })
}

// runLockFiles lets programs make a file that must not exist, in each of the
// ways there are: that another one has it is EEXIST, whatever the client says.
//
// Two clients of GlusterFS that make one directory or one symbolic link at once
// may both be told so (4 and 7 of 1500 times without dmxfs): fewer of these is
// all right for it.
func runLockFiles(t *testing.T, c *testCluster, n int, losesNames bool) {
	for _, how := range []string{"open", "link", "symlink", "mkdir"} {
		t.Run(how, func(t *testing.T) {
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

// runTurns changes files in turns, each after a second of idleness. Clients
// keep for a second, or for the rest of one, what they have looked at: the
// turn that comes then finds their caches full, and old.
func runTurns(t *testing.T, c *testCluster, n int) {
	const idle = "1050"
	a, b := c.mounts[0], c.mounts[1]
	for i, lock := range []string{"flock self kept", "flock self anew", "fcntl lockfile anew", "ofd self kept"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			dir := fmt.Sprintf("turns-%d", i)
			if out, code := a.sh("mkdir " + dir); code != 0 {
				t.Fatal(out)
			}
			write(t, a.path(dir+"/data"), "")
			args := append(strings.Fields(lock), fmt.Sprint(n), a.path(dir), b.path(dir), idle)
			if out, code := a.helper("rounds", args...).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
	t.Run("rename", func(t *testing.T) {
		t.Parallel()
		if out, code := a.helper("replace", "flock", fmt.Sprint(6*n), a.dir, b.dir, idle).wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}

// The doctor's verdict on real storage is what the tests above find.
func TestDoctorOverRealStorage(t *testing.T) {
	if !*storageFull {
		t.Skip("takes a minute: see make storage")
	}
	for _, kind := range realKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
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
