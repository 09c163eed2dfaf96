package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

var (
	outliveTime = flag.Duration("outlive.time", 0, "how long TestProgramsOutliveTheDaemon kills daemons; 0: half a minute in full, 4 s otherwise")
	outliveGap  = flag.Duration("outlive.gap", 2*time.Second, "how long it lets each daemon live, on average")
	outliveRest = flag.Duration("outlive.rest", 25*time.Millisecond, "what its programs wait between two steps, at most: with three hosts on two processors some 100ms leave room for what is measured")
	outliveOnly = flag.String("outlive.only", "", "the kinds of programs that it runs, with commas between them; empty: all")
	outliveKeep = flag.String("outlive.keep", "", "directory to which it copies logs and journals when it has failed")
	outliveSeed = flag.Uint64("outlive.seed", 0, "choices of it; 0: any")
	outliveSure = flag.Bool("outlive.sure", false, "it fails if the outcome of a change is not known, see unknownOutcome")
)

// stuckAfter is how long a program may take for a step: much longer than any wait.
const stuckAfter = 2 * time.Minute

// Programs of many kinds run on three hosts, or two, whose daemons are killed again and
// again, at any moment. They notice nothing: no call fails, nothing that they have written is lost
// or is anything else, no two of them are where one may be, and none hangs. In the end
// nothing is left over. For a long run: make outlive.
func TestProgramsOutliveTheDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	needTool(t, "sqlite3", "git")
	seed := cmp.Or(*outliveSeed, rand.Uint64())
	t.Logf("-outlive.seed=%d", seed)
	lasts := cmp.Or(*outliveTime, long.Or(4*time.Second, 30*time.Second))
	kinds := slices.Sorted(maps.Keys(outlivers))
	if *outliveOnly != "" {
		kinds = strings.Split(*outliveOnly, ",")
	}
	hosts := long.Or(2, 3)
	if *outliveTime != 0 {
		hosts = 3
	}
	c := newCluster(t, hosts, withTakeover()...)
	newOutlive(t, rand.New(rand.NewPCG(seed, 0)), c, c.src, kinds).run(lasts, (*outliving).killDaemons)
}

// run has disturb do to the daemons what programs must not notice.
func (x *outliving) run(lasts time.Duration, disturb func(*outliving, time.Duration)) {
	before := x.c.measure()
	x.c.watch.Allow(lasts + 10*time.Minute)
	x.start()
	disturb(x, lasts)
	if x.unharmed() {
		for _, m := range x.c.mounts {
			m.mayTakeOver()
		}
		x.c.awaitMembers(len(x.c.mounts))
		x.awaitSteps("when no daemon is disturbed any more")
	}
	x.stop()
	x.tell()
	x.check()
	if !x.t.Failed() {
		x.c.compare(before, x.c.measure(), x.files())
		x.nothingIsLeft()
	}
}

// outliving is a run of the test.
type outliving struct {
	t        *testing.T
	c        *testCluster
	r        *rand.Rand
	root     string // where the test finds the files of the programs
	kinds    []string
	numbers  bool          // all hosts see the same numbers of files
	local    string        // where the programs write down what is true
	rest     time.Duration // what a program waits between two steps, at most
	many     int           // so many files each host has open all the time, a fifth of them locked
	programs []*outlivingProgram

	mu    sync.Mutex
	kills []killing
}

// outlivingProgram is a program, as the test sees it.
type outlivingProgram struct {
	kind, who string
	host      int
	p         *proc
	state     *outliverState
	seen      uint64    // steps
	since     time.Time // when they were seen
	told      bool
}

// newOutlive prepares programs of these kinds. root is the shared directory, or one of the
// mounts where the storage is seen through clients alone.
func newOutlive(t *testing.T, r *rand.Rand, c *testCluster, root string, kinds []string) *outliving {
	x := &outliving{t: t, c: c, r: r, root: root, kinds: kinds, numbers: true, rest: *outliveRest, many: 1000}
	if *outliveTime == 0 {
		x.many = long.Or(50, 300)
		// Dozens of programs leave the processor to other tests, and to git, which needs most of it.
		switch {
		case long.Race:
			x.rest *= 20
		case !long.Tests():
			x.rest *= 6
		}
	}
	x.local = filepath.Join(x.c.dir, "local")
	t.Cleanup(func() {
		if t.Failed() && *outliveKeep != "" {
			x.keep(*outliveKeep)
		}
	})
	makeDirs(t, x.c.dir, "local")
	makeDirs(t, x.root, kinds...)
	in := func(kind, name, text string) {
		if !x.has(kind) {
			return
		}
		write(t, filepath.Join(x.root, kind, name), text)
		write(t, filepath.Join(x.local, "truth-"+kind), text)
	}
	for _, kind := range []string{"counter-flock", "counter-fcntl", "counter-ofd", "counter-open", "queue"} {
		in(kind, "data", "0")
	}
	in("mkdir", "number", "0")
	in("excl", "number", "0")
	in("shared", "data", "")
	in("append", "data", "")
	in("replace", "current", "first")
	for i := range x.c.mounts {
		if x.has("log") {
			write(t, filepath.Join(x.root, "log", fmt.Sprintf("%d-log", i)), "")
			write(t, filepath.Join(x.local, fmt.Sprintf("truth-%d-log", i)), "")
		}
	}
	x.begin("sqlite", "sqlite3 sqlite/t.db 'create table t(id text primary key); create table n(n); insert into n values(0)'")
	x.begin("git", "export "+gitEnds+"; cd git && git init -q -b main repo && cd repo && git config gc.auto 0 && git commit -q --allow-empty -m first")
	write(t, filepath.Join(x.local, "truth-git"), "first")
	return x
}

func (x *outliving) has(kind string) bool { return slices.Contains(x.kinds, kind) }

// begin runs what programs of a kind need to have been done.
func (x *outliving) begin(kind, script string) {
	x.t.Helper()
	if !x.has(kind) {
		return
	}
	if out, code := x.c.mounts[0].sh(script); code != 0 {
		x.t.Fatalf("%s: %d %s", kind, code, out)
	}
}

// start starts the programs.
func (x *outliving) start() {
	for i, m := range x.c.mounts {
		for _, kind := range x.kinds {
			names := []string{fmt.Sprintf("%d-%s", i, kind)}
			if kind == "queue" {
				names = append(names, names[0]+"-again")
			}
			for _, who := range names {
				x.startOne(i, m, kind, who)
			}
		}
	}
}

func (x *outliving) startOne(i int, m *testMount, kind, who string) {
	o := &outlivingProgram{kind: kind, who: who, host: i, since: time.Now()}
	var err error
	if o.state, err = mapState(x.local, who); err != nil {
		x.t.Fatal(err)
	}
	o.p = m.newHelper("outlive", kind, who, m.dir, x.local, fmt.Sprint(x.r.Uint64()), x.rest.String(), fmt.Sprint(x.many))
	o.p.runIn(x.c.dir)
	x.programs = append(x.programs, o)
}

// killDaemons kills the daemons for d, or until something is wrong.
func (x *outliving) killDaemons(d time.Duration) {
	end := time.Now().Add(d)
	var hosts sync.WaitGroup
	done := make(chan struct{})
	for i, m := range x.c.mounts {
		r := rand.New(rand.NewPCG(x.r.Uint64(), 0))
		hosts.Go(func() {
			for {
				gap := time.NewTimer(min(time.Duration(r.ExpFloat64()*float64(*outliveGap)), time.Until(end)))
				select {
				case <-done:
					return
				case <-gap.C:
				}
				if time.Now().After(end) {
					return
				}
				x.kill(i, m)
			}
		})
	}
	for time.Now().Before(end) && x.unharmed() {
		waitALittle()
	}
	close(done)
	hosts.Wait()
}

// kill kills the daemon that serves a mount, or that is about to.
func (x *outliving) kill(i int, m *testMount) {
	for _, pid := range children(m.watcher) {
		if !serves(pid) {
			continue
		}
		at := monotonic()
		if unix.Kill(pid, unix.SIGKILL) == nil {
			x.mu.Lock()
			x.kills = append(x.kills, killing{i, at})
			x.mu.Unlock()
		}
	}
}

// unharmed reports whether all programs go on.
func (x *outliving) unharmed() bool {
	ok := true
	for _, o := range x.programs {
		if o.p.ended() && !o.told {
			o.told = true
			x.t.Errorf("%s has ended: %s", o.who, o.p.out.String())
		}
		if n := o.state.steps.Load(); n != o.seen {
			o.seen, o.since = n, time.Now()
		} else if time.Since(o.since) > stuckAfter && !o.told {
			o.told = true
			x.t.Errorf("%s HANGS after %d steps\n%s", o.who, n, x.where(o))
		}
		ok = ok && !o.told
	}
	return ok
}

// where tells where a program hangs, and what the daemons say of it.
func (x *outliving) where(o *outlivingProgram) string {
	var b strings.Builder
	for _, pid := range append(children(o.p.cmd.Process.Pid), o.p.cmd.Process.Pid) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, dir := range threads {
			wchan, _ := os.ReadFile(dir + "/wchan")
			call, _ := os.ReadFile(dir + "/syscall")
			fmt.Fprintf(&b, "%s: %s %s\n", dir, wchan, strings.TrimSpace(string(call)))
		}
	}
	for _, m := range x.c.mounts {
		for _, args := range [][]string{{"locks", "--all", m.dir}, {"status", m.dir}} {
			out, err := x.c.try(args...)
			fmt.Fprintf(&b, "%v: %s %v\n", args, out, err)
		}
	}
	return b.String()
}

// writeStacks has each daemon write down, in its log, where it stands, and end.
func (x *outliving) writeStacks() {
	for _, m := range x.c.mounts {
		for _, pid := range children(m.watcher) {
			if serves(pid) {
				_ = unix.Kill(pid, unix.SIGABRT)
			}
		}
	}
}

// awaitSteps waits until each program has made two more steps: one may have been under way.
// A step of git may take long where the tests leave it little of the processor.
func (x *outliving) awaitSteps(when string) {
	x.t.Helper()
	had := make([]uint64, len(x.programs))
	for i, o := range x.programs {
		had[i] = o.state.steps.Load()
	}
	goOn := func(i int) bool { return x.programs[i].state.steps.Load() > had[i]+1 }
	all := false
	comesTo(2*stuckAfter, func() bool {
		all = true
		for i := range x.programs {
			all = all && goOn(i)
		}
		return all || !x.unharmed()
	})
	if all {
		return
	}
	x.t.Errorf("not all programs go on %s", when)
	for i, o := range x.programs {
		if !goOn(i) {
			x.t.Logf("%s has made %d steps since\n%s", o.who, o.state.steps.Load()-had[i], x.where(o))
		}
	}
	x.writeStacks()
}

func (x *outliving) stop() {
	for _, o := range x.programs {
		_ = o.p.cmd.Process.Signal(unix.SIGTERM)
	}
	for _, o := range x.programs {
		if o.told && !o.p.ended() {
			o.p.signal(unix.SIGKILL) // it hangs
			continue
		}
		select {
		case <-o.p.done:
			if code := o.p.cmd.ProcessState.ExitCode(); code != 0 && !o.told {
				x.t.Errorf("%s: %d %s", o.who, code, o.p.out.String())
			}
		case <-time.After(stuckAfter):
			x.t.Errorf("%s does not end\n%s", o.who, x.where(o))
			o.p.signal(unix.SIGKILL)
		}
	}
}
