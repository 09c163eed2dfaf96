package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// Test suites of others, run on mounts.

// ownLock is in the place of a test that is wrong: see posixExceptions.
func ownLock(t *testing.T, dir string) {
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	for range 2 {
		f, err := os.Create(filepath.Join(dir, "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = retry(func() error { return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lk) })
		if err != nil {
			t.Errorf("a process was kept out by its own lock: %v", err)
		}
	}
}

// posixExceptions are the tests of go-fuse's suite that are not taken as they
// are, and why.
var posixExceptions = map[string]struct {
	why     string
	instead func(*testing.T, string)
}{
	"FcntlFlockLocksFile": {"it wants a process to be kept out by its own POSIX lock, which no Linux file system does", ownLock},
}

func TestPosixSuite(t *testing.T) {
	// Not beside other tests: one case counts this process's descriptors.
	c := newCluster(t, 2)
	for i, m := range c.mounts[:long.Or(1, 2)] {
		for name, fn := range posixtest.All {
			t.Run(fmt.Sprintf("%d/%s", i, name), func(t *testing.T) {
				if x, ok := posixExceptions[name]; ok {
					t.Logf("another test in its place: %s", x.why)
					fn = x.instead
				}
				dir := m.path(fmt.Sprintf("%s-%d", name, i))
				if err := os.Mkdir(dir, 0o777); err != nil {
					t.Fatal(err)
				}
				fn(t, dir)
			})
		}
	}
}

// stress-ng checks nothing between hosts, but that no call fails and no lock
// is left behind.
func TestStressNG(t *testing.T) {
	t.Parallel()
	needTool(t, "stress-ng")
	c := newCluster(t, 2)
	for _, stressor := range []string{"flock", "lockf", "lockofd", "locka"} {
		t.Run(stressor, func(t *testing.T) {
			var ps []*proc
			for _, m := range c.mounts {
				ps = append(ps, m.start(fmt.Sprintf("stress-ng --temp-path . --%s 3 --%s-ops %d --timeout 60 --verify 2>&1", stressor, stressor, long.Or(600, 3000))))
			}
			for i, p := range ps {
				out, code := p.wait()
				if code != 0 || !strings.Contains(out, "successful run completed") {
					t.Errorf("mount %d: exit code %d:\n%s", i, code, out)
				}
			}
			await(t, "nothing is held any more", func() bool {
				for _, l := range c.mounts[0].locks() {
					if l.State != "cached" {
						return false
					}
				}
				return true
			})
		})
	}
}

// ping_pong (of ctdb) hands range locks round between its processes. With -r
// and -w each adds one to the bytes that it has locked and looks by how much
// they have grown since it had them last: by the number of processes, if and
// only if locks and data are handed over together.
func TestPingPong(t *testing.T) {
	t.Parallel()
	needTool(t, "ping_pong")
	c := newCluster(t, 2)
	increment := regexp.MustCompile(`data increment = (\d+)`)
	rate := regexp.MustCompile(`(\d+) locks/sec`)
	// They run for seconds by the clock, however many there are.
	var side parts
	defer side.Wait()
	for i, opt := range long.Or([]string{"-rwm", "-c"}, []string{"", "-rw", "-rwm", "-c"}) {
		side.run(t, "ping_pong"+opt, func(t *testing.T) {
			out := func(j int) string { return filepath.Join(c.dir, fmt.Sprintf("out-%d-%d", i, j)) }
			said := func(j int) string {
				b, err := os.ReadFile(out(j))
				if err != nil {
					return ""
				}
				return string(b)
			}
			var ps []*proc
			for j, m := range c.mounts {
				ps = append(ps, m.start(fmt.Sprintf("exec stdbuf -oL ping_pong %s pp-%d 3 > %s 2>&1", opt, i, out(j))))
			}
			rates := func(j int) int { return len(rate.FindAllString(said(j), -1)) }
			increments := func(j int) [][]string { return increment.FindAllStringSubmatch(said(j), -1) }
			rw := strings.HasPrefix(opt, "-rw")
			await(t, "both go on", func() bool {
				for j := range ps {
					if ps[j].ended() || rates(j) < 1 {
						return false
					}
					if x := increments(j); rw && (len(x) == 0 || x[len(x)-1][1] != "2") {
						return false
					}
				}
				return true
			})
			// From now on both see steps of two, and nothing else.
			before := [2]int{len(increments(0)), len(increments(1))}
			seen := [2]int{rates(0), rates(1)}
			more := long.Or(1, 3)
			await(t, "both go on for some more seconds", func() bool {
				return rates(0) >= seen[0]+more && rates(1) >= seen[1]+more
			})
			for j := range ps {
				if x := increments(j); len(x) != before[j] {
					t.Errorf("process %d has seen data that was not handed over: %v", j, x)
				}
				r := rate.FindAllString(said(j), -1)
				t.Logf("process %d: %s", j, r[len(r)-1])
			}
			for j, p := range ps {
				if p.ended() {
					t.Errorf("process %d has ended: %s", j, said(j))
				}
				p.signal(unix.SIGKILL)
				p.ends("the end of ping_pong")
			}
		})
	}
}
