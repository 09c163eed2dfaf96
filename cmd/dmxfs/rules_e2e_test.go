package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/policy"
)

// Tests of the exclusive algorithms that rules can name, with real mounts. The
// policy of the cluster is in policy_e2e_test.go.

var increments = flag.Int("rules.increments", long.Or(6, 15), "how often each process of TestExclusiveCounters adds one")

// exclusiveAlgorithms are those that rules can name, beside rw.
var exclusiveAlgorithms = policy.Algorithms[1:]

// exclusiveOptions has each exclusive algorithm serve the directory of its name.
func exclusiveOptions() []string {
	var out []string
	for _, a := range exclusiveAlgorithms {
		out = append(out, "--exclusive", a+"/**="+a)
	}
	return out
}

// newExclusiveCluster is n mounts with a directory for each algorithm.
func newExclusiveCluster(t *testing.T, n int) *testCluster {
	t.Helper()
	c := newCluster(t, 0)
	for _, dir := range append([]string{"rw"}, exclusiveAlgorithms...) {
		if err := os.Mkdir(filepath.Join(c.src, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		c.add(exclusiveOptions()...).mount()
	}
	c.awaitMembers(n)
	return c
}

// Five mounts, two processes each, add to one number under flock; then under
// nothing but the exclusive open.
func TestExclusiveCounters(t *testing.T) {
	t.Parallel()
	c := newExclusiveCluster(t, 5)
	for _, alg := range exclusiveAlgorithms {
		for _, kind := range []string{"flock", "open"} {
			t.Run(alg+" "+kind, func(t *testing.T) {
				data := filepath.Join(alg, kind)
				write(t, c.mounts[0].path(data), "0")
				var ps []*proc
				for _, m := range c.mounts {
					for range 2 {
						ps = append(ps, m.helper("add", kind, data, fmt.Sprint(*increments)))
					}
				}
				for _, p := range ps {
					if out, code := p.wait(); code != 0 {
						t.Errorf("exit code %d: %s", code, out)
					}
				}
				want := fmt.Sprint(len(ps) * *increments)
				for _, m := range c.mounts {
					if got := read(t, m.path(data)); got != want {
						t.Errorf("%s says %s, want %s", m.dir, got, want)
					}
				}
				granted := 0
				for _, r := range c.mounts[1].journal("--path", data, "--event", "granted") {
					if r.Algorithm != alg {
						t.Errorf("the journal says that %s served %s", r.Algorithm, r.Path)
					}
					granted++
				}
				if granted < 2**increments {
					t.Errorf("the journal knows of %d grants", granted)
				}
			})
		}
	}
}

// add adds one to the number in a file, again and again: add flock|open FILE TIMES.
// With flock it is opened once, and locked for reading only: that is exclusive, too.
func add(args []string) error {
	times, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	open := func() (fd int, err error) {
		err = retry(func() (err error) {
			fd, err = unix.Open(args[1], unix.O_RDWR|unix.O_CLOEXEC, 0)
			return err
		})
		return fd, err
	}
	fd := -1
	for i := range times {
		if i == 0 || args[0] == "open" {
			if fd, err = open(); err != nil {
				return fmt.Errorf("open: %w", err)
			}
		}
		if args[0] == "open" {
			err = increment(fd)
			unix.Close(fd)
		} else if err = retry(func() error { return unix.Flock(fd, unix.LOCK_SH) }); err == nil {
			if err = increment(fd); err == nil {
				err = retry(func() error { return unix.Flock(fd, unix.LOCK_UN) })
			}
		}
		if err != nil {
			return fmt.Errorf("increment %d: %w", i, err)
		}
	}
	return nil
}

// Two opens of an exclusive file never overlap: not on one mount, not on two,
// not those for reading, and not those that make the file.
func TestExclusiveOpensNeverOverlap(t *testing.T) {
	t.Parallel()
	c := newExclusiveCluster(t, 2)
	for _, alg := range exclusiveAlgorithms {
		t.Run(alg, func(t *testing.T) {
			for round := range long.Or(2, 4) {
				file := fmt.Sprintf("%s/f%d", alg, round)
				busy := filepath.Join(c.dir, fmt.Sprintf("busy-%s-%d", alg, round))
				var ps []*proc
				for i := range 6 {
					how := []string{"read", "write", "create"}[i/2]
					if round == 0 {
						how = "create" // all of them race for the first open
					}
					ps = append(ps, c.mounts[i%2].helper("open-alone", how, file, busy, "8"))
				}
				for _, p := range ps {
					if out, code := p.wait(); code != 0 {
						t.Errorf("round %d: exit code %d: %s", round, code, out)
					}
				}
			}
		})
	}
	// And others wait for as long as the first takes, if that is idle, too.
	file := exclusiveAlgorithms[0] + "/held"
	write(t, c.mounts[0].path(file), "x")
	hold := c.mounts[0].start("exec 3<" + file + "; sleep 100")
	c.mounts[0].held(file, 1)
	var waits []*proc
	for i, m := range c.mounts {
		waits = append(waits, m.start("cat "+file))
		m.blocked(file, i+1)
		if out, code := m.helper("try-open", file).wait(); code != 0 {
			t.Errorf("an open with O_NONBLOCK on mount %d: %s", i, out)
		}
	}
	// By rw an idle file is given up after ten seconds.
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); waitALittle() {
		for i, p := range waits {
			if p.ended() {
				t.Fatalf("on mount %d: it was opened twice: %s", i, p.out.String())
			}
		}
	}
	hold.signal(unix.SIGKILL)
	for _, p := range waits {
		if out, code := p.wait(); code != 0 || out != "x" {
			t.Errorf("%d %q", code, out)
		}
	}
}

// openAlone opens a file again and again, and fails if another process has it
// open: open-alone read|write|create FILE BUSY TIMES. BUSY is a file that is
// there while somebody has FILE open; it is not in a mount.
func openAlone(args []string) error {
	flags := map[string]int{"read": unix.O_RDONLY, "write": unix.O_RDWR, "create": unix.O_RDWR | unix.O_CREAT}[args[0]]
	times, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	for range times {
		fd := -1
		err := retry(func() (err error) {
			fd, err = unix.Open(args[1], flags|unix.O_CLOEXEC, 0o644)
			return err
		})
		if errors.Is(err, unix.ENOENT) {
			continue // nobody has made it yet
		}
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		b, err := os.OpenFile(args[2], os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("somebody else has it open: %w", err)
		}
		b.Close()
		<-time.After(time.Millisecond) // others have a moment to come in
		if err := os.Remove(args[2]); err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// tryOpen fails unless an open that does not wait is told to try again.
func tryOpen(file string) error {
	err := retry(func() error {
		_, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err
	})
	if !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("open says %v", err)
	}
	return nil
}

// What holds for locks by rw holds for exclusive ones.
func TestExclusiveLocks(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	c := newExclusiveCluster(t, 3)
	a, b := c.mounts[0], c.mounts[1]
	for _, alg := range exclusiveAlgorithms {
		t.Run(alg, func(t *testing.T) {
			file := alg + "/f"
			hold := a.start("flock -s " + file + " sleep 100")
			a.held(file, 1)
			for i, l := range b.locks() {
				if l.Path == file && (l.Algorithm != alg || l.Token == 0) {
					t.Errorf("lock %d: %+v", i, l)
				}
			}
			if out, code := b.sh("flock -n -s " + file + " true"); code != 1 || out != "" {
				t.Errorf("flock -n -s on another mount: %d %s", code, out)
			}
			if out, code := a.sh("flock -n -s " + file + " true"); code != 1 || out != "" {
				t.Errorf("flock -n -s on the same mount: %d %s", code, out)
			}
			for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL} {
				wait := b.helper("wait-signal", "flock", file)
				b.blocked(file, 1)
				wait.signal(sig)
				wait.ends("the wait after " + sig.String())
				if n := b.count(file, "waiting"); n != 0 {
					t.Errorf("%v: %d requests still wait", sig, n)
				}
			}
			wait := b.start("flock -w 60 " + file + " echo mine")
			b.blocked(file, 1)
			for _, w := range b.locks() {
				if w.Path == file && w.State == "waiting" && (len(w.WaitsFor) == 0 || w.WaitsFor[0].Node != a.peers().Self) {
					t.Errorf("the waiter: %+v", w)
				}
			}
			hold.signal(unix.SIGKILL)
			if out, code := wait.wait(); code != 0 || out != "mine\n" {
				t.Errorf("after the holder was killed: %d %q", code, out)
			}
			// Byte ranges are the whole file; another class is another lock.
			hold = a.helper("hold", "fcntl", file)
			a.held(file, 1)
			if out, code := b.helper("try", "ofd", file).wait(); code == 0 {
				t.Errorf("two holders: %s", out)
			}
			if out, code := b.sh("flock -n " + file + " true"); code != 0 {
				t.Errorf("flock beside fcntl: %d %s", code, out)
			}
			hold.signal(unix.SIGKILL)
			hold.ends("the holder")
		})
	}
	// A node goes while all compete.
	var files []string
	var ps []*proc
	for _, alg := range exclusiveAlgorithms {
		data := alg + "/count"
		files = append(files, data)
		write(t, a.path(data), "0")
		for _, m := range c.mounts[:2] {
			ps = append(ps, m.helper("add", "flock", data, "40"), m.helper("add", "flock", data, "40"))
		}
	}
	c.run("unmount", c.mounts[2].dir)
	c.awaitMembers(2)
	for _, p := range ps {
		if out, code := p.wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
	for _, f := range files {
		if got := read(t, b.path(f)); got != "160" {
			t.Errorf("%s says %s", f, got)
		}
	}
}
