package systemtest

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var flagKills = flag.Int("system.kills", long.Or(20, 100), "how many random schedules with daemons that are killed and succeeded to run")

// ledger is what outlives a process. Nothing is written into it from the moment on in
// which that is killed. Its clock is that of the test.
type ledger struct {
	*shm.Tables
	dead atomic.Bool
}

// ledgerForm is that of engine.LedgerTables, for few records.
func ledgerForm() shm.Form {
	const most = 1 << 10
	f := shm.Form{Version: engine.LedgerVersion, Texts: most}
	for _, t := range engine.LedgerTables {
		f.Tables = append(f.Tables, shm.Spec{Words: t.Words, Texts: t.Texts, Max: min(t.Max, most)})
	}
	return f
}

// beginLedger gives p a ledger, which is new and empty.
func (p *proc) beginLedger() {
	if !p.w.opt.kills {
		return
	}
	tables, err := shm.Create("test", 1, ledgerForm())
	if err != nil {
		panic(err)
	}
	p.ledger = &ledger{Tables: tables}
}

func (l *ledger) close() {
	if l != nil {
		_ = l.Tables.Close()
	}
}

func (l *ledger) Put(table int, words []uint64) (uint32, error) {
	if l.dead.Load() {
		return ^uint32(0), nil
	}
	return l.Tables.Put(table, words)
}

func (l *ledger) Set(table int, number uint32, words []uint64) error {
	if l.dead.Load() {
		return nil
	}
	return l.Tables.Set(table, number, words)
}

func (l *ledger) Delete(table int, number uint32) {
	if !l.dead.Load() {
		l.Tables.Delete(table, number)
	}
}

func (l *ledger) Clear() {
	if !l.dead.Load() {
		l.Tables.Clear()
	}
}

func (l *ledger) Text(s string) (uint64, error) {
	if l.dead.Load() {
		return 1, nil
	}
	return l.Tables.Text(s)
}

func (l *ledger) Clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// left is what the next process finds in the ledger of p; nil if that is nothing.
func (p *proc) left() *legacy {
	fd, err := unix.FcntlInt(uintptr(p.ledger.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	tables, err := shm.Open(fd, 1, ledgerForm())
	if err != nil {
		unix.Close(fd)
		p.w.check.failf("the ledger of %s: %v", p.name, err)
		return nil
	}
	defer tables.Close()
	found := &ledger{Tables: tables}
	id, epoch, err := engine.LedgerNode(found)
	if err != nil {
		return nil // it was no member
	}
	of, err := member.ParseNode(id)
	l := &legacy{former: p, node: of, heir: &member.Heir{Of: of, Epoch: epoch}}
	if err == nil {
		l.state, err = engine.ReadLedger(found)
	}
	if err != nil {
		p.w.check.failf("the ledger of %s: %v", p.name, err)
		return nil
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	l.heir.Claimed = slices.Clone(p.host.claimed)
	return l
}

// claims is cluster.Options.Claim.
func (p *proc) claims(by []member.Node) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.isAlive {
		return errors.New("killed")
	}
	p.host.claimed = by
	return nil
}

// killDaemon kills p. After a pause another process goes on with its ledger, which its
// programs use from then on; then, if not nil, is called with it. It reports whether
// that is to come.
func (w *world) killDaemon(p *proc, pause time.Duration, then func(*proc)) bool {
	if !p.alive() || p.stopped() || p.closing || w.opt.wired || p.ledger == nil || p.host.copied {
		return false
	}
	if p.ledger.dead.Store(true); p.left() == nil {
		w.restart(p, pause, true)
		return false
	}
	held := w.check.heldBy(p)
	p.due = true
	p.kill()
	w.pending++
	w.after(pause, func() {
		w.pending--
		p.due = false
		l := p.left()
		if l == nil || w.ofPeer(p.name) != nil {
			return
		}
		if w.opt.bug == "a ledger of before is taken" && p.legacy != nil && p.legacy.heir != nil {
			l.state, l.heir.Of, l.node = p.legacy.state, p.legacy.heir.Of, p.legacy.node
		}
		s := w.startAs(p.name, p.host, l)
		s.cache = map[locks.Key][]int{} // nobody knows any more what the kernel has
		w.check.mu.Lock()
		for _, h := range held {
			h.p = s
		}
		w.check.holders = append(w.check.holders, held...)
		w.check.mu.Unlock()
		for _, x := range p.host.dirty.writes {
			if x.p == p {
				x.p = s
			}
		}
		s.engine.GiveUpUnknown(func(_ locks.Key, h locks.HandleID) bool {
			return slices.ContainsFunc(s.programs, func(g *program) bool { return locks.HandleID(g.pid) == h })
		}, "its file is not open any more")
		for _, do := range p.held {
			s.deliver(do)
		}
		p.held = nil
		if then != nil {
			then(s)
		}
	})
	return true
}

// deliver has the program do something, as soon as there is a daemon.
func (g *program) deliver(do func()) {
	if !g.afterKill(g.proc, do) {
		g.proc.deliver(do)
	}
}

// afterKill has the program go on in the next daemon if p, which it used, was killed.
// It reports whether that is so.
func (g *program) afterKill(p *proc, do func()) bool {
	switch {
	case p.ledger == nil || !p.ledger.dead.Load():
		return false
	case g.proc != p:
		g.deliver(do)
	case p.due:
		p.held = append(p.held, do)
	}
	return true
}

// killAtLink kills s as it tries its first link, which the server gets at once, late or
// never.
func (w *world) killAtLink(s *proc, pause time.Duration, then func(*proc)) {
	s.disk.atLink = func(op member.LinkOp) {
		switch {
		case w.chance(0.5):
			_ = w.do(op)
		case w.chance(0.5):
			w.after(w.between(0, 2*pause+100*ms), func() { _ = w.do(op) })
		}
		w.killDaemon(s, pause, then)
	}
}

// kills are faults that kill a daemon which has a successor.
var kills = []fault{
	{"kill", func(w *world, p *proc, d time.Duration) time.Duration {
		w.killDaemon(p, w.between(0, 500*ms), nil)
		return time.Second
	}},
	{"kill of several", func(w *world, p *proc, d time.Duration) time.Duration {
		for _, o := range w.running() {
			if o == p || w.chance(0.5) {
				w.after(w.between(0, 500*ms), func() { w.killDaemon(o, w.between(0, 500*ms), nil) })
			}
		}
		return 2 * time.Second
	}},
	{"kill with a slow successor", func(w *world, p *proc, d time.Duration) time.Duration {
		w.killDaemon(p, d, nil)
		return d
	}},
	{"kill, and again at the link", func(w *world, p *proc, d time.Duration) time.Duration {
		pause, k := w.between(0, 300*ms), 1+w.rng.IntN(3)
		var next func(*proc)
		next = func(s *proc) {
			if k--; k >= 0 {
				w.killAtLink(s, pause, next)
			}
		}
		w.killDaemon(p, pause, next)
		return 5*pause + time.Second
	}},
	{"kill, and again soon", func(w *world, p *proc, d time.Duration) time.Duration {
		k := 1 + w.rng.IntN(4)
		var next func(*proc)
		next = func(s *proc) {
			if k--; k >= 0 {
				w.after(w.between(0, 300*ms), func() { w.killDaemon(s, w.between(0, 200*ms), next) })
			}
		}
		w.killDaemon(p, w.between(0, 200*ms), next)
		return 4 * time.Second
	}},
	{"kill, and a successor that is stopped at its link", func(w *world, p *proc, d time.Duration) time.Duration {
		w.killDaemon(p, w.between(0, 300*ms), func(s *proc) { w.stopAt(s, beforeLink, d) })
		return 2*d + time.Second
	}},
	{"kill after a takeover", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.replaceDaemon(p); s != nil {
			w.after(w.between(0, 100*ms), func() { w.killDaemon(s, w.between(0, 200*ms), nil) })
		}
		return time.Second
	}},
}

// killed is a random schedule in which daemons are killed and succeeded.
func killed(t *testing.T, seed int64, bug string) error {
	return withKills(t, seed, bug, false).err
}

func withKills(t *testing.T, seed int64, bug string, tracing bool) ran {
	o := randomOptions(seed)
	o.bug, o.kills, o.takeovers, o.tracing = bug, true, seed%3 == 0, tracing
	return schedule(t, o)
}

func TestKills(t *testing.T) {
	came := 0
	for seed := *flagFirst; seed < *flagFirst+int64(*flagKills); seed++ {
		r := withKills(t, seed, "", false)
		if r.err != nil {
			report(t, r.world.opt, r, fmt.Sprintf("go test ./systemtest -run TestKills -system.first %d -system.kills 1 -v", seed))
			return
		}
		for _, p := range r.world.procs {
			if p.succeeded && p.legacy.heir != nil {
				came++
			}
		}
	}
	t.Logf("%d went on with a ledger", came)
	if came == 0 && *flagKills >= 20 {
		t.Error("nobody went on with a ledger")
	}
}
