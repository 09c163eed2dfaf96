package long

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// usual is how long a test may take. On a machine that is half as fast as one of
// two cores, and busy, none takes half as long, but for those with an allowance.
const usual = 4 * time.Minute

// Watch is what looks after a test.
type Watch struct {
	t     testing.TB
	dir   string
	grace time.Duration // for the test to end by itself, when all else has
	out   io.Writer     // gets the report: what t has said is lost if the test does not end

	mu    sync.Mutex // held while all is ended, which the test's end waits for
	limit time.Duration
	timer *time.Timer // nil: the test has ended
}

// Limit has a test that hangs fail after some minutes, say where it hangs, and end,
// rather than hold up all others until -timeout. Even that would not end it: a thread
// that waits for a file system whose daemon stands still cannot be killed. So what
// belongs to the test is killed, and its mounts are cut off: all processes that have
// dir in their arguments, environment or working directory, and all mounts by FUSE
// below it. No other test has dir, an absolute path.
//
// It waits for t's [Turn], and then the time of t counts. Call Limit before what is
// cleaned up by t.Cleanup, so that cleaning up is part of it.
func Limit(t testing.TB, dir string) *Watch {
	t.Helper()
	Turn(t)
	return watch(t, dir)
}

func watch(t testing.TB, dir string) *Watch {
	t.Helper()
	if rel, err := filepath.Rel(os.TempDir(), dir); err != nil || !filepath.IsLocal(rel) || rel == "." {
		t.Fatalf("%s is no directory of this test", dir)
	}
	w := &Watch{t: t, dir: dir, grace: 2 * time.Minute, out: os.Stderr}
	d := usual
	if _, ok := t.(*testing.B); ok {
		d = time.Hour
	} else if Race {
		d += usual
	}
	w.Allow(d)
	t.Cleanup(w.stop)
	return w
}

// Allow has the test take as long as d from now on.
func (w *Watch) Allow(d time.Duration) {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit, w.timer = d, time.AfterFunc(d, w.end)
}

func (w *Watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// end ends what the test waits for.
func (w *Watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	w.t.Errorf("takes longer than %v, and what belongs to it is killed: see where it says %q", w.limit, w.t.Name()+" takes longer")
	// If that does not help, no other test can be trusted to end, either.
	w.timer = time.AfterFunc(w.grace, func() {
		panic(fmt.Sprintf("%s hangs, although all that it started was killed", w.t.Name()))
	})
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	// A Go program that can still do so says where it is. A watcher begins its daemon
	// anew until it is killed itself.
	for i, sig := range []unix.Signal{unix.SIGQUIT, unix.SIGKILL, unix.SIGKILL, unix.SIGKILL} {
		pids := processes(w.dir)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if i == 0 {
				found = append(found, describe(pid))
			}
			_ = unix.Kill(pid, sig)
		}
		time.Sleep(time.Second)
	}
	mounts := cutOff(w.dir)
	fmt.Fprintf(w.out, "%s takes longer than %v. What belongs to it was killed:\n%s\nits mounts were cut off:\n%s\nand these were the goroutines:\n%s\n",
		w.t.Name(), w.limit, strings.Join(found, "\n"), strings.Join(mounts, "\n"), stacks)
}

// processes are those that dir is part of, but for this one.
func processes(dir string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(p + "/cmdline")
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if slices.ContainsFunc([]string{string(args), string(env), cwd}, func(s string) bool { return mentions(s, dir) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mentions reports whether dir, or what is below it, is in s.
func mentions(s, dir string) bool {
	for {
		_, after, ok := strings.Cut(s, dir)
		if !ok {
			return false
		}
		if after == "" || strings.IndexByte("/\x00 :=,\n", after[0]) >= 0 {
			return true
		}
		s = after
	}
}

// describe is the command of a process, and in what calls of the kernel its threads
// sleep.
func describe(pid int) string {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	var where []string
	for _, t := range threads {
		b, _ := os.ReadFile(t + "/wchan")
		stat, _ := os.ReadFile(t + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		if s := fmt.Sprintf("%.1s %s", state, b); !slices.Contains(where, s) {
			where = append(where, s)
		}
	}
	return fmt.Sprintf("%d %s (%s)", pid, bytes.ReplaceAll(args, []byte{0}, []byte{' '}), strings.Join(where, ", "))
}

// cutOff aborts the connections of all mounts by FUSE below dir, takes the mounts
// away, and tells them.
func cutOff(dir string) (found []string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		sep := slices.Index(f, "-")
		if sep < 0 || sep+1 >= len(f) || !strings.HasPrefix(f[sep+1], "fuse") || !mentions(f[4], dir) {
			continue
		}
		_ = unix.Unmount(f[4], unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) // aborts it also if it is busy
		_ = unix.Unmount(f[4], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		found = append(found, f[4])
	}
	return found
}
