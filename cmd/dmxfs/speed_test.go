package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Benchmarks of whole programs, and of hosts that want the same file, beside
// go-fuse's loopback. The figures and the command that prints them are in
// docs/performance.md.

// speedCluster is n mounts, and a loopback beside them.
func speedCluster(b *testing.B, n int) (c *testCluster, plain string) {
	c = newCluster(b, n)
	dir := filepath.Join(c.dir, "plain")
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	return c, loopback(b, dir)
}

// sideBySide times a shell command in directories of the loopback and of a
// mount in turns, and reports the median of the ratios.
func sideBySide(b *testing.B, plain, shim, command string) {
	b.Helper()
	n := 0
	timed := func(dir string) float64 {
		n++
		dir = filepath.Join(dir, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command("sh", "-ec", command)
		cmd.Dir = dir
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began).Seconds()
	}
	timed(plain)
	timed(shim)
	var ratios, times []float64
	for b.Loop() {
		p, s := timed(plain), timed(shim)
		ratios, times = append(ratios, s/p), append(times, s)
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(times), "s/run")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkGitClone(b *testing.B) {
	needTool(b, "git")
	c, plain := speedCluster(b, 3)
	repo := filepath.Join(c.dir, "repo")
	const make = `git init -q . && for i in $(seq 2000); do mkdir -p d$((i%40)); echo "content of file $i" >d$((i%40))/f$i; done
		git add . && git -c user.name=x -c user.email=x@x commit -qm all`
	if err := os.Mkdir(repo, 0o755); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("sh", "-ec", make)
	cmd.Dir = repo
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	sideBySide(b, plain, c.mounts[0].dir, "git clone -q --no-hardlinks "+repo+" clone")
}

func BenchmarkSQLite(b *testing.B) {
	needTool(b, "sqlite3")
	c, plain := speedCluster(b, 3)
	sideBySide(b, plain, c.mounts[0].dir, `{ echo "create table t(x);"; for i in $(seq 200); do echo "insert into t values($i);"; done; } | sqlite3 t.db`)
}

// BenchmarkHandover times how a lock goes from one program to another: two
// programs of one host on the loopback, of one host on a mount, and of two
// hosts.
//
// Latency is from the unlock of the one to the return of the other's flock,
// which waits. In alternation they have locks strictly in turns, as fast as
// they can.
func BenchmarkHandover(b *testing.B) {
	c, plain := speedCluster(b, 2)
	pairs := []struct {
		name string
		dirs [2]string
	}{
		{"one host", [2]string{c.mounts[0].dir, c.mounts[0].dir}},
		{"two hosts", [2]string{c.mounts[0].dir, c.mounts[1].dir}},
	}
	for _, what := range []string{"latency", "alternation"} {
		for _, p := range pairs {
			b.Run(what+"/"+p.name, func(b *testing.B) {
				var ratios, shims []float64
				for b.Loop() {
					l := handover(b, what, plain, plain)
					s := handover(b, what, p.dirs[0], p.dirs[1])
					ratios, shims = append(ratios, s/l), append(shims, s)
				}
				b.ReportMetric(median(ratios), "ratio")
				b.ReportMetric(median(shims), map[string]string{"latency": "µs/handover", "alternation": "handovers/s"}[what])
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func handover(b *testing.B, what, dir1, dir2 string) float64 {
	b.Helper()
	return runFigure(b, "handover", what, dir1, dir2)
}

// runFigure runs a helper that prints a number.
func runFigure(b *testing.B, args ...string) float64 {
	b.Helper()
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.Env = append(os.Environ(), helperEnv+"="+args[0])
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// measureHandover prints the median or the mean latency in µs, or the handovers in
// a second: handover latency|mean|alternation DIR1 DIR2.
func measureHandover(args []string) error {
	if args[0] == "alternation" {
		v, err := alternation(args[1:])
		fmt.Print(v)
		return err
	}
	times, err := handoverTimes(args[1:])
	switch {
	case err != nil:
	case args[0] == "mean":
		sum := 0.0
		for _, t := range times {
			sum += t
		}
		fmt.Print(sum / float64(len(times)))
	default:
		fmt.Print(median(times))
	}
	return err
}

// handoverTimes are the latencies of some handovers, in µs.
func handoverTimes(dirs []string) (times []float64, err error) {
	const samples = 60
	var fds [2]int
	for i := range fds {
		fd, err := unix.Open(filepath.Join(dirs[i], "handover"), unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return nil, err
		}
		fds[i] = fd
	}
	if err := lockCall("flock", fds[0], true); err != nil {
		return nil, err
	}
	for i := range samples {
		holder, waiter := fds[i%2], fds[1-i%2]
		tid := make(chan int)
		got := make(chan time.Time)
		failed := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			err := lockCall("flock", waiter, true)
			got <- time.Now()
			failed <- err
		}()
		where := fmt.Sprintf("/proc/self/task/%d/wchan", <-tid)
		for end := time.Now().Add(10 * time.Second); ; {
			if b, _ := os.ReadFile(where); strings.Contains(string(b), "request_wait") || strings.Contains(string(b), "fuse") {
				break
			}
			if time.Now().After(end) {
				return nil, fmt.Errorf("the waiter does not wait")
			}
		}
		waitALittle() // so that its request is everywhere
		began := time.Now()
		if err := lockCall("flock", holder, false); err != nil {
			return nil, err
		}
		times = append(times, float64((<-got).Sub(began).Nanoseconds())/1e3)
		if err := <-failed; err != nil {
			return nil, err
		}
	}
	return times, nil
}

// alternation lets two programs go round three locks, each taking the next one
// before it gives up the one it has, as ping_pong of ctdb does with bytes: so
// every lock passes from the one to the other, strictly in turns.
func alternation(dirs []string) (float64, error) {
	const during = time.Second
	var fds [2][3]int
	for i := range fds {
		for n := range fds[i] {
			// For reading, so that nobody waits for the open lock of the other.
			fd, err := unix.Open(filepath.Join(dirs[i], fmt.Sprintf("turn%d", n)), unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
			if err != nil {
				return 0, err
			}
			fds[i][n] = fd
		}
		if err := lockCall("flock", fds[i][i], true); err != nil {
			return 0, err
		}
	}
	type end struct {
		taken int
		err   error
	}
	ends := make(chan end)
	began := time.Now()
	for i := range fds {
		go func() {
			runtime.LockOSThread()
			var e end
			has := i
			for e.err == nil && time.Since(began) < during {
				next := (has + 1) % 3
				if e.err = lockCall("flock", fds[i][next], true); e.err == nil {
					e.taken++
					e.err = lockCall("flock", fds[i][has], false)
					has = next
				}
			}
			ends <- end{e.taken, errors.Join(e.err, lockCall("flock", fds[i][has], false))}
		}()
	}
	taken := 0
	var err error
	for range fds {
		e := <-ends
		taken += e.taken
		err = errors.Join(err, e.err)
	}
	return float64(taken) / time.Since(began).Seconds(), err
}

// BenchmarkManyWaiters lets many programs wait for one lock, half on each
// host, and then have it one after the other.
func BenchmarkManyWaiters(b *testing.B) {
	for _, n := range []int{250, 500, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCluster(b, 2)
			runFigure(b, "waiters", "10", c.mounts[0].dir, c.mounts[1].dir)
			before := c.memory()
			var each []float64
			most := before
			for b.Loop() {
				each = append(each, runFigure(b, "waiters", strconv.Itoa(n), c.mounts[0].dir, c.mounts[1].dir))
				most = max(most, c.memory())
			}
			b.ReportMetric(median(each), "µs/waiter")
			b.ReportMetric(float64(most-before)/1e3/float64(n), "kB/waiter")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// memory is the most that the daemons ever had in memory, in bytes.
func (c *testCluster) memory() int {
	c.t.Helper()
	sum := 0
	for _, m := range c.mounts {
		s, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.daemon()))
		if err != nil {
			c.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(s), "VmHWM:")
		kb, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			c.t.Fatal(err)
		}
		sum += kb * 1024
	}
	return sum
}

// manyWaiters prints how long it takes from the release of a lock until all
// that wait have had it, in µs for each: waiters N DIR1 DIR2.
func manyWaiters(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	open := func(i int) (int, error) {
		return unix.Open(filepath.Join(args[1+i%2], "waited"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	}
	hold, err := open(0)
	if err != nil {
		return err
	}
	if err := lockCall("flock", hold, true); err != nil {
		return err
	}
	failed := make(chan error, n)
	tids := make(chan int, n)
	for i := range n {
		fd, err := open(i)
		if err != nil {
			return err
		}
		go func() {
			runtime.LockOSThread()
			tids <- unix.Gettid()
			err := lockCall("flock", fd, true)
			if err == nil {
				err = lockCall("flock", fd, false)
			}
			unix.Close(fd)
			failed <- err
		}()
	}
	for range n {
		where := fmt.Sprintf("/proc/self/task/%d/wchan", <-tids)
		for {
			if b, _ := os.ReadFile(where); strings.Contains(string(b), "request_wait") || strings.Contains(string(b), "fuse") {
				break
			}
			waitALittle()
		}
	}
	began := time.Now()
	if err := lockCall("flock", hold, false); err != nil {
		return err
	}
	for range n {
		if err := <-failed; err != nil {
			return err
		}
	}
	fmt.Print(float64(time.Since(began).Microseconds()) / float64(n))
	return nil
}

// BenchmarkManyLocks takes many locks on one of two hosts, which are then held
// at once: ranges of one file, or one lock on each of many files.
func BenchmarkManyLocks(b *testing.B) {
	for what, counts := range map[string][]int{"ranges": {1000, 10_000, 100_000}, "files": {2000, 4000, 8000}} {
		for _, n := range counts {
			b.Run(fmt.Sprintf("%s/%d", what, n), func(b *testing.B) {
				c := newCluster(b, 2)
				before := c.memory()
				var each []float64
				for b.Loop() {
					each = append(each, runFigure(b, "many-locks", what, strconv.Itoa(n), c.mounts[0].dir))
				}
				b.ReportMetric(median(each), "µs/lock")
				b.ReportMetric(float64(c.memory()-before)/float64(n), "B/lock")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// manyLocks prints how long a lock took, in µs: many-locks ranges|files N DIR.
func manyLocks(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: 1 << 18, Max: 1 << 18}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	var took time.Duration
	fd := -1
	for i := range n {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i) * 10, Len: 5}
		if args[0] == "files" || fd < 0 {
			name := filepath.Join(args[2], fmt.Sprintf("d%d", i%100))
			if err := os.MkdirAll(name, 0o755); err != nil {
				return err
			}
			if fd, err = unix.Open(filepath.Join(name, fmt.Sprint("many-", os.Getpid(), "-", i)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &l) }); err != nil {
			return err
		}
		took += time.Since(began)
	}
	fmt.Print(float64(took.Nanoseconds()) / 1e3 / float64(n))
	return nil
}
