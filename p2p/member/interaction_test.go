package member_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

// TestInteraction runs the stories in testdata: one step after another, with
// all that each does. Incarnations and nonces are 1, 2, 3 ... Commands:
//
//	start a b ...          start nodes
//	tick a ... [n=N]       let Params.Tick pass, N times, and tick these nodes (all, if none)
//	deliver a->b [n=N] [drop]   the oldest message of a channel, or N, or all (n=all)
//	sync a->b [drop]       what was to be sent by SendSync
//	disk a [error] [lost] [stale=MS]  end a's storage operation: done; failed; done, but failed for a
//	frozen a               the engine has frozen
//	run [a ...] ms=N       let N ms pass with everything done at once; only views and notices are shown
//	stabilize [a b ...]    do all of that until nothing is left to do, without ticks
//	kill a | leave a | remove a b | policy a HASH
//	state                  what all nodes think
func TestInteraction(t *testing.T) {
	datadriven.Walk(t, "testdata/interaction", func(t *testing.T, path string) {
		e := &interaction{
			now: 1000, store: new(registertest.Store), nodes: map[string]*actor{},
			channels: map[[2]string][]member.Envelope{}, syncs: map[[2]string][]member.SyncArrived{},
		}
		datadriven.RunTest(t, path, e.run)
	})
}

type interaction struct {
	now      int64
	random   uint64
	store    *registertest.Store
	nodes    map[string]*actor
	names    []string
	channels map[[2]string][]member.Envelope
	syncs    map[[2]string][]member.SyncArrived
	b        strings.Builder
}

type actor struct {
	name    string
	m       *member.Machine
	out     member.Output
	op      member.Op
	began   int64
	freezes []uint64
	fences  []member.Fence
	lock    uint64
	saved   member.Saved
	lives   []member.Inc
	alive   bool
}

func (e *interaction) run(t *testing.T, d *datadriven.TestData) string {
	e.b.Reset()
	l := line{opts: map[string]string{}}
	for _, a := range d.CmdArgs {
		if len(a.Vals) > 0 {
			l.opts[a.Key] = a.Vals[0]
		} else {
			l.args = append(l.args, a.Key)
		}
	}
	if err := e.command(d.Cmd, l); err != nil {
		fmt.Fprintf(&e.b, "error: %v\n", err)
	}
	return shorten(e.b.String())
}

// line is a command, without its name.
type line struct {
	args []string
	opts map[string]string
}

func (l line) has(word string) bool { return slices.Contains(l.args, word) }

// pair is who sends and who receives, of the argument a->b.
func (l line) pair() (from, to string) {
	from, to, _ = strings.Cut(l.args[0], "->")
	return from, to
}

// count is n=N or n=all, or 1.
func (l line) count() int {
	if l.opts["n"] == "all" {
		return 1 << 30
	}
	if n, err := strconv.Atoi(l.opts["n"]); err == nil {
		return n
	}
	return 1
}

func (e *interaction) command(cmd string, l line) error {
	switch cmd {
	case "start":
		for _, name := range l.args {
			e.start(name)
		}
	case "tick":
		e.tick(l.args, l.count())
	case "deliver":
		from, to := l.pair()
		if len(e.channels[[2]string{from, to}]) == 0 {
			return fmt.Errorf("nothing to deliver from %s to %s", from, to)
		}
		for n := l.count(); n > 0 && e.deliver(from, to, l.has("drop")); n-- {
		}
	case "sync":
		from, to := l.pair()
		if !e.sync(from, to, l.has("drop")) {
			return fmt.Errorf("no sync from %s to %s", from, to)
		}
	case "disk":
		stale, _ := strconv.ParseInt(l.opts["stale"], 10, 64)
		if !e.disk(e.nodes[l.args[0]], l.has("error"), l.has("lost"), stale) {
			return fmt.Errorf("%s has no operation under way", l.args[0])
		}
	case "frozen":
		if !e.frozen(e.nodes[l.args[0]]) {
			return fmt.Errorf("%s is not to freeze", l.args[0])
		}
	case "run":
		e.elapse(l.args, l.opts["ms"])
	case "stabilize":
		e.stabilize(l.args)
	case "kill":
		e.nodes[l.args[0]].alive = false
	case "leave":
		e.step(e.nodes[l.args[0]], member.Leave{})
	case "remove":
		e.step(e.nodes[l.args[0]], member.Remove{Wish: member.Wish{ID: 1, Deadline: e.now + 60_000}, Node: e.nodes[l.args[1]].m.Self()})
	case "policy":
		e.step(e.nodes[l.args[0]], member.SetPolicy{Wish: member.Wish{ID: 2, Deadline: e.now + 60_000}, Policy: member.Policy{Hash: l.args[1]}})
	case "state":
		e.tellState()
	default:
		return fmt.Errorf("unknown command %q", cmd)
	}
	return nil
}

// tick lets ticks pass, of these nodes or of all.
func (e *interaction) tick(names []string, n int) {
	if len(names) == 0 {
		names = e.names
	}
	for range n {
		e.now += member.Default().Tick
		for _, name := range names {
			if a := e.nodes[name]; a.alive {
				e.step(a, member.Tick{})
			}
		}
	}
}

// tellState tells what all nodes think.
func (e *interaction) tellState() {
	for _, name := range e.names {
		a := e.nodes[name]
		if !a.alive {
			continue
		}
		s := a.m.Status()
		fmt.Fprintf(&e.b, "%v %v in %v live=%v granting=%v", s.Self, s.State, s.View, s.Live, s.Granting)
		if s.Why != "" {
			fmt.Fprintf(&e.b, " (%s)", s.Why)
		}
		for _, p := range s.Peers {
			fmt.Fprintf(&e.b, "; %v %s", p.Node, p.State)
		}
		e.b.WriteByte('\n')
	}
}

func (e *interaction) start(name string) {
	a := e.nodes[name]
	if a == nil {
		a = &actor{name: name, lock: uint64(len(e.names)) + 1}
		e.nodes[name] = a
		e.names = append(e.names, name)
	}
	m, err := member.New(member.Config{
		Params: member.Default(), Cluster: strings.Repeat("c", 32),
		Self:   member.Member{Node: member.Node{Peer: name}, Boot: "boot-" + name, Lock: member.LockFile{Dev: 1, Ino: a.lock}},
		Former: a.lives,
		Random: func() uint64 { e.random++; return e.random },
		Made:   func() string { return "" },
	})
	if err != nil {
		panic(err)
	}
	*a = actor{name: name, lock: a.lock, saved: a.saved, lives: a.lives, m: m, alive: true}
	e.step(a, member.Start{Saved: a.saved})
}

func (e *interaction) step(a *actor, in member.Input) {
	a.m.Step(e.now, in, &a.out)
	out := &a.out
	text := out.String()
	if _, tick := in.(member.Tick); !tick || text != "" {
		fmt.Fprintf(&e.b, "> %s %d %v\n", a.name, e.now, in)
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "meet ") {
				e.b.WriteString("  " + line)
			}
		}
	}
	if f := out.Freeze; f != nil {
		a.freezes = append(a.freezes, f.Seq)
	}
	for _, env := range out.Send {
		k := [2]string{a.name, env.To.Peer}
		e.channels[k] = append(e.channels[k], env)
	}
	for _, to := range out.SendSync {
		k := [2]string{a.name, to.Peer}
		e.syncs[k] = append(e.syncs[k], member.SyncArrived{From: a.m.Self(), Epoch: a.m.Epoch()})
	}
	a.fences = append(a.fences, out.Fence...)
	if out.Storage != nil {
		a.op, a.began = out.Storage, e.now
	}
	if out.Save != nil {
		a.saved = *out.Save
	}
	if out.Inc != 0 {
		a.lives = append(a.lives, out.Inc)
	}
	if out.End != nil {
		a.alive = false
	}
}

func (e *interaction) deliver(from, to string, drop bool) bool {
	k := [2]string{from, to}
	if len(e.channels[k]) == 0 {
		return false
	}
	env := e.channels[k][0]
	e.channels[k] = e.channels[k][1:]
	if a := e.nodes[to]; !drop && a != nil && a.alive {
		e.step(a, member.Received{Envelope: env})
	}
	return true
}

func (e *interaction) sync(from, to string, drop bool) bool {
	k := [2]string{from, to}
	if len(e.syncs[k]) == 0 {
		return false
	}
	in := e.syncs[k][0]
	e.syncs[k] = e.syncs[k][1:]
	if a := e.nodes[to]; !drop && a != nil && a.alive {
		e.step(a, in)
	}
	return true
}

func (e *interaction) disk(a *actor, fails, lost bool, stale int64) bool {
	if a.op == nil {
		return false
	}
	res := member.Done{Op: a.op}
	a.op = nil
	if look, ok := res.Op.(member.LookOp); ok && !fails {
		res.Look = e.store.Look(e.now-stale, look)
		res.Look.Began = a.began
	} else if !fails {
		res.Err = e.store.Do(e.now, res.Op)
	}
	if fails || lost {
		res.Err = errors.New("input/output error")
	}
	e.step(a, res)
	return true
}

func (e *interaction) frozen(a *actor) bool {
	if len(a.freezes) == 0 {
		return false
	}
	seq := a.freezes[0]
	a.freezes = a.freezes[1:]
	e.step(a, member.Frozen{Seq: seq})
	return true
}

// elapse is many ticks in which everything is done at once.
func (e *interaction) elapse(names []string, ms string) {
	d, _ := strconv.ParseInt(ms, 10, 64)
	before := e.b.String()
	for end := e.now + d; e.now < end; {
		e.tick(names, 1)
		e.stabilize(names)
	}
	all := strings.TrimPrefix(e.b.String(), before)
	e.b.Reset()
	e.b.WriteString(before)
	for line := range strings.Lines(all) {
		if strings.HasPrefix(line, "  notice ") {
			e.b.WriteString(line)
		}
	}
}

// stabilize lets the nodes named, or all, do whatever is left to do.
func (e *interaction) stabilize(names []string) {
	if len(names) == 0 {
		names = e.names
	}
	for progress := true; progress; {
		progress = false
		for _, name := range names {
			a := e.nodes[name]
			if !a.alive {
				continue
			}
			for e.disk(a, false, false, 0) || e.frozen(a) {
				progress = true
			}
			for len(a.fences) > 0 {
				f := a.fences[0]
				a.fences = a.fences[1:]
				e.step(a, member.Fenced{Node: f.Node})
				progress = true
			}
			for _, from := range e.names {
				if !slices.Contains(names, from) {
					continue
				}
				for e.deliver(from, name, false) || e.sync(from, name, false) {
					progress = true
				}
			}
		}
	}
}

var longInc = regexp.MustCompile(`\.0*([0-9a-f]+)\b`)

// shorten writes incarnations without their zeros.
func shorten(s string) string {
	return regexp.MustCompile(`\.[0-9a-f]{16}\b`).ReplaceAllStringFunc(s, func(x string) string {
		return longInc.ReplaceAllString(x, ".$1")
	})
}
