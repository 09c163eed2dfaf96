package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

var (
	chaosTime = flag.Duration("chaos.time", 0, "how long TestChaos breaks things; 0: a minute in full, 10 s otherwise")
	chaosKeep = flag.String("chaos.keep", "", "directory to which TestChaos copies logs and journals when it has failed")
	chaosOnly = flag.String("chaos.only", "", "the one kind of program that TestChaos runs; empty: all")
	chaosOf   = flag.String("chaos.faults", "", "the faults that TestChaos makes, with commas between them, ten times as often; empty: all")
	chaosTake = flag.Bool("chaos.takeover", false, "the daemons of TestChaos are mounted with --takeover, and killed more often")
	chaosSeed = flag.Uint64("chaos.seed", 0, "choices of TestChaos; 0: any")
)

// TestChaos breaks what can break, at random, under programs on five hosts, and
// checks what the programs saw: no two of them held conflicting locks, nothing
// that was written under a lock is lost, every daemon is back in the end, and
// none has kept anything of it. For a long run: make chaos.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	needTool(t, "sqlite3")
	hosts := 5
	if *chaosTime == 0 {
		hosts = long.Or(3, hosts)
	}
	x := newChaos(t, hosts)
	before := x.c.measure()
	x.startWorkers()

	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos.seed=%d", seed)
	lasts := cmp.Or(*chaosTime, long.Or(3*time.Second, 40*time.Second))
	x.c.watch.Allow(2*lasts + 10*time.Minute)
	x.breakThings(rand.New(rand.NewPCG(seed, 0)), lasts)

	// All is well again, and they all go on.
	x.mend()
	x.c.awaitMembers(len(x.c.mounts))
	x.awaitProgress()
	x.stopWorkers()
	x.check()
	x.compare(before)
	if t.Failed() && *chaosKeep != "" {
		x.keep(*chaosKeep)
	}
}

type chaos struct {
	t       testing.TB
	c       *testCluster
	pause   []string // by mount: a file that makes its programs pause
	workers []*proc
	logs    map[string]string // of the workers, by name

	mu     sync.Mutex
	faults map[string]int
}

func newChaos(t *testing.T, n int) *chaos {
	var args []string
	if *chaosTake {
		args = []string{"--takeover"}
	}
	x := &chaos{t: t, c: newNetCluster(t, n, args...), logs: map[string]string{}, faults: map[string]int{}}
	for _, f := range []string{"counter-flock", "counter-fcntl", "counter-ofd"} {
		write(t, filepath.Join(x.c.src, f), "0")
	}
	write(t, filepath.Join(x.c.src, "groups"), "")
	if err := os.Mkdir(filepath.Join(x.c.src, "many"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code := x.c.mounts[0].sh("sqlite3 t.db 'create table t(id text primary key)'"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	for i := range x.c.mounts {
		x.pause = append(x.pause, filepath.Join(x.c.dir, fmt.Sprintf("pause-%d", i)))
	}
	return x
}

func (x *chaos) startWorkers() {
	rest := long.Or(250*time.Millisecond, 10*time.Millisecond)
	if *chaosTime != 0 {
		rest = 5 * time.Millisecond
	}
	for i, m := range x.c.mounts {
		for _, kind := range []string{"counter-flock", "counter-fcntl", "counter-ofd", "reader", "open", "many", "sqlite"} {
			if *chaosOnly != "" && kind != *chaosOnly {
				continue
			}
			who := fmt.Sprintf("%d-%s", i, kind)
			log := filepath.Join(x.c.dir, "log-"+who)
			x.logs[who] = log
			p := &proc{t: x.t, cmd: exec.Command("/proc/self/exe", kind, who, m.dir, log, x.pause[i], rest.String()), done: make(chan struct{})}
			p.cmd.Env = append(os.Environ(), helperEnv+"=chaos")
			p.runIn(x.c.dir)
			x.workers = append(x.workers, p)
		}
	}
}

// breakThings breaks one thing after another, on all hosts at the same time.
func (x *chaos) breakThings(r *rand.Rand, d time.Duration) {
	var hosts sync.WaitGroup
	end := time.Now().Add(d)
	for i, m := range x.c.mounts {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		hosts.Go(func() {
			for {
				gap := 10_000
				if *chaosOf != "" {
					gap = 1000
				}
				pause(time.Duration(own.IntN(gap))*time.Millisecond, end)
				if time.Now().After(end) {
					return
				}
				x.fault(i, m, own, end)
			}
		})
	}
	hosts.Wait()
	x.t.Logf("faults: %v", x.faults)
}

// pause lets time pass, but not past end.
func pause(d time.Duration, end time.Time) { <-time.After(max(min(d, time.Until(end)), 0)) }

// fault breaks something of one host, waits a while, and mends it.
func (x *chaos) fault(i int, m *testMount, r *rand.Rand, end time.Time) {
	d := time.Duration(r.IntN(12_000)) * time.Millisecond
	if r.IntN(2) == 0 {
		d /= 10 // most troubles are short
	}
	kinds := []string{"kill", "stop", "stop", "cut", "cut", "one way", "unmount", "power", "upgrade", "upgrade", "killed upgrade"}
	if *chaosTake {
		kinds = append(kinds, "kill", "kill", "kill", "kill", "kill", "kill twice", "kill twice")
	}
	if *chaosOf != "" {
		kinds = strings.Split(*chaosOf, ",")
	}
	kind := kinds[r.IntN(len(kinds))]
	x.mu.Lock()
	x.faults[kind]++
	x.mu.Unlock()
	switch kind {
	case "kill":
		if pid := m.daemon(); pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	case "kill twice": // the daemon, and soon the next one
		for range 2 {
			if pid := m.daemon(); pid != 0 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			pause(time.Duration(r.IntN(150))*time.Millisecond, end)
		}
	case "stop":
		pid := m.daemon()
		if pid == 0 {
			return
		}
		_ = unix.Kill(pid, unix.SIGSTOP)
		pause(d, end)
		_ = unix.Kill(pid, unix.SIGCONT)
	case "cut", "one way":
		for _, o := range x.c.mounts {
			if o != m && r.IntN(3) > 0 {
				m.deaf(kind == "cut", o)
			}
		}
		pause(d, end)
		m.heal()
	case "unmount":
		x.unmount(i, m)
	case "upgrade":
		if _, err := x.c.try("upgrade", "--timeout", "5s", m.dir); err != nil { // as while another host is cut off
			x.t.Log(err)
		}
	case "killed upgrade":
		pid, cmd := m.daemon(), x.c.cmd("upgrade", m.dir)
		if pid == 0 || cmd.Start() != nil {
			return
		}
		<-time.After(time.Duration(r.IntN(150)) * time.Millisecond)
		_ = unix.Kill(pid, unix.SIGKILL)
		_ = cmd.Wait()
	case "power": // the daemon and its watcher
		if m.watcher <= 1 || unix.Kill(m.watcher, unix.SIGSTOP) != nil {
			return
		}
		await(x.t, "the watcher starts no other one", func() bool { return standsStill(m.watcher) })
		for _, pid := range append(children(m.watcher), m.watcher) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		pause(d, end)
		x.remount(m)
	}
}

// unmount takes a mount away in good order, while its programs pause, and
// mounts again. If the programs cannot end what they do it leaves it at that.
func (x *chaos) unmount(i int, m *testMount) {
	if err := os.WriteFile(x.pause[i], nil, 0o644); err != nil {
		x.t.Error(err)
	}
	defer os.Remove(x.pause[i])
	for begun := time.Now(); time.Since(begun) < 5*time.Second; waitALittle() {
		if _, err := x.c.try("unmount", m.dir); err == nil {
			x.remount(m)
			return
		}
	}
}

// remount mounts again, however long it takes: the others may be broken.
func (x *chaos) remount(m *testMount) {
	for begun := time.Now(); ; waitALittle() {
		err := m.tryMount()
		if err == nil {
			return
		}
		if time.Since(begun) > 2*time.Minute {
			x.t.Errorf("%s cannot be mounted any more: %v", m.dir, err)
			return
		}
	}
}

// mend makes sure that nothing is broken.
func (x *chaos) mend() {
	for _, m := range x.c.mounts {
		m.heal()
		if pid := m.daemon(); pid != 0 {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
		if !m.mounted() || m.daemon() == 0 && !alive(m.watcher) {
			x.remount(m)
		}
	}
}

// awaitProgress waits until every program has done something without an error.
func (x *chaos) awaitProgress() {
	x.t.Helper()
	done := func(who string) int {
		n := 0
		for _, mark := range []string{"S", "G", "Q"} {
			lines, err := readMarks(x.logs[who], mark)
			if err != nil {
				x.t.Fatal(err)
			}
			n += len(lines)
		}
		return n
	}
	had := map[string]int{}
	for who := range x.logs {
		had[who] = done(who)
	}
	for who := range x.logs { // all at the same time
		await(x.t, who+" goes on", func() bool { return done(who) > had[who] })
	}
}

func (x *chaos) stopWorkers() {
	for _, p := range x.workers {
		_ = p.cmd.Process.Signal(unix.SIGTERM)
	}
	for _, p := range x.workers {
		if out, code := p.wait(); code != 0 {
			x.t.Errorf("a worker: %d %s", code, out)
		}
	}
}

// check looks at what the programs saw, and at what they left.
func (x *chaos) check() {
	t := x.t.(*testing.T)
	var all []section
	groups := map[string]map[string]bool{} // by file
	var rows []string
	errors := 0
	for who, log := range x.logs {
		all = append(all, readSections(t, log)...)
		marks := map[string][]string{}
		for _, mark := range []string{"!", "G", "Q", "#"} {
			lines, err := readMarks(log, mark)
			if err != nil {
				t.Fatal(err)
			}
			marks[mark] = lines
		}
		for _, l := range marks["!"] {
			t.Errorf("%s: %s", who, l)
		}
		for _, g := range marks["G"] {
			file, id, _ := strings.Cut(g, " ")
			if groups[file] == nil {
				groups[file] = map[string]bool{}
			}
			groups[file][id] = true
		}
		rows = append(rows, marks["Q"]...)
		errors += len(marks["#"])
		for _, l := range marks["#"] {
			// SQLite waits by trying, for so long and no longer.
			if *chaosOf == "upgrade" && !strings.Contains(l, "database is locked") {
				t.Errorf("%s was told of an error: %s", who, l)
			}
		}
	}
	t.Logf("%d sections, %d groups of lines, %d rows; %d errors told to programs", len(all), len(groups), len(rows), errors)
	for _, c := range conflicts(all) {
		t.Errorf("conflict: %s", c)
	}
	for _, kind := range []string{"flock", "fcntl", "ofd"} {
		var its []section
		for _, s := range all {
			if s.File == "counter-"+kind && s.Mode == "W" {
				its = append(its, s)
			}
		}
		last, err := strconv.ParseInt(read(t, filepath.Join(x.c.src, "counter-"+kind)), 10, 64)
		if err != nil {
			t.Error(err)
		}
		for _, l := range lostUpdates(its, last) {
			t.Errorf("counter of %s: %s", kind, l)
		}
	}
	for file, acked := range groups {
		for _, g := range brokenGroups(read(t, filepath.Join(x.c.src, file)), acked) {
			t.Errorf("%s: %s", file, g)
		}
	}
	x.checkRows(rows)
	late := 0
	for _, m := range x.c.mounts {
		late += len(m.journal("--event", "late_write"))
	}
	if late > 0 {
		t.Logf("%d writes came late, and were reported", late)
	}
}

func (x *chaos) checkRows(rows []string) {
	m := x.c.mounts[0]
	if out, code := m.sh("sqlite3 t.db 'pragma integrity_check'"); code != 0 || out != "ok\n" {
		x.t.Errorf("the database: %d %s", code, out)
	}
	out, code := m.sh("sqlite3 t.db 'select id from t'")
	if code != 0 {
		x.t.Errorf("the database: %d %s", code, out)
	}
	there := map[string]bool{}
	for row := range strings.Lines(out) {
		there[strings.TrimSpace(row)] = true
	}
	for _, r := range rows {
		if !there[r] {
			x.t.Errorf("row %s is lost", r)
		}
	}
}

// keep copies what the programs and the daemons wrote down.
func (x *chaos) keep(dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		x.t.Fatal(err)
	}
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			x.t.Error(err)
		}
	}
	for who, log := range x.logs {
		put(who+".log", []byte(read(x.t, log)))
	}
	for i, m := range x.c.mounts {
		put(fmt.Sprintf("%d-journal.json", i), []byte(x.c.run("journal", "--json", m.dir)))
		put(fmt.Sprintf("%d-daemon.log", i), []byte(m.log()))
	}
}

// compare reports leaks: what is kept after thousands of locks and scores of
// epochs is about what was kept before.
func (x *chaos) compare(before []usage) {
	many, err := os.ReadDir(filepath.Join(x.c.src, "many"))
	if err != nil {
		x.t.Fatal(err)
	}
	x.c.compare(before, x.c.measure(), len(many))
}
