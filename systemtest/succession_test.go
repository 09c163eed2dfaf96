package systemtest

import (
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var flagTakeovers = flag.Int("system.takeovers", long.Pure(5, long.Or(20, 100)), "how many random schedules with takeovers to run")

// legacy is what a process takes over from the one before it.
type legacy struct {
	former *proc
	state  []byte
	node   member.Node  // if it was replaced
	heir   *member.Heir // if it was killed; else nil
}

// replaceDaemon replaces the daemon of p by another one, which its programs use from
// then on. It returns nil if it cannot be at this moment: nothing has happened then.
func (w *world) replaceDaemon(p *proc) *proc {
	if !p.alive() || p.stopped() || p.closing || w.opt.wired {
		return nil
	}
	l := &legacy{former: p, node: p.status().Self}
	var err error
	if l.state, err = p.engine.Bequeath(); err != nil {
		w.logf("%s is not replaced: %v", p.name, err)
		return nil
	}
	w.logf("%s hands over", p.name)
	held := w.check.heldBy(p)
	p.kill()
	return w.succeed(l, held)
}

// succeed starts the process that goes on with l. What its former self held, and had
// not written out, is its own from now on.
func (w *world) succeed(l *legacy, held []*holder) *proc {
	p := l.former
	s := w.startAs(p.name, p.host, l)
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
	return s
}

// inherit makes p, which has not begun to run, go on with what l says.
func (p *proc) inherit(l *legacy) {
	if err := p.engine.Inherit(l.state); err != nil {
		p.w.check.failf("%s: %v", p.name, err)
	}
	p.programs, l.former.programs = l.former.programs, nil
	for _, g := range p.programs {
		g.proc = p
	}
	// The kernel's.
	p.cache, p.dropped = l.former.cache, l.former.dropped
}

// again asks the successor for what the program waits for, and reports whether it
// does: whether that was what its call has ended with.
func (g *program) again(err error, req *locks.Request, cancel chan struct{}, told func(locks.Grant, error)) bool {
	if !errors.Is(err, locks.ErrBequeathed) {
		return false
	}
	select {
	case <-cancel:
	default:
		g.waiting = true
	}
	g.lock(req, cancel, told)
	return true
}

// lock asks for req; told gets the answer.
func (g *program) lock(req *locks.Request, cancel chan struct{}, told func(locks.Grant, error)) {
	p := g.proc
	go func() {
		grant, err := p.engine.Lock(cancel, req)
		answered := p.alive()
		if answered && err == nil {
			g.w.mu.Lock()
			g.knows[knownGrant{req.Key, grant.Token}] = true
			g.w.mu.Unlock()
		}
		g.post(func() {
			g.waiting = false
			if !answered && g.afterKill(p, func() { g.again(locks.ErrBequeathed, req, cancel, told) }) {
				return
			}
			if !g.again(err, req, cancel, told) {
				told(grant, err)
			}
		})
	}()
}

// replacements are faults that replace a daemon.
var replacements = []fault{
	{"takeover", func(w *world, p *proc, d time.Duration) time.Duration {
		w.replaceDaemon(p)
		return time.Second
	}},
	{"takeover of all, one after the other", func(w *world, p *proc, d time.Duration) time.Duration {
		for i, o := range w.running() {
			w.after(time.Duration(i)*w.between(0, time.Second), func() { w.replaceDaemon(o) })
		}
		return 6 * time.Second
	}},
	{"takeover of several at once", func(w *world, p *proc, d time.Duration) time.Duration {
		for _, o := range w.running() {
			if o == p || w.chance(0.5) {
				w.replaceDaemon(o)
			}
		}
		return time.Second
	}},
	{"takeover by one that is stopped", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.replaceDaemon(p); s != nil {
			s.stop(d)
		}
		return d
	}},
	{"takeover by one that is stopped at its link", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.replaceDaemon(p); s != nil {
			return w.stopAt(s, beforeLink, d)
		}
		return 0
	}},
	{"takeover by one that reaches nobody", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.replaceDaemon(p); s != nil {
			w.isolate([]*proc{s}, w.others(s), w.chance(0.5), true, true, d)
		}
		return d
	}},
	{"takeover by one that dies", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.replaceDaemon(p); s != nil {
			w.after(w.between(0, 50*ms), func() { w.restart(s, w.between(1*ms, d), w.chance(0.7)) })
		}
		return d + time.Second
	}},
	{"takeover of a takeover", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.replaceDaemon(p); s != nil {
			w.after(w.between(0, 500*ms), func() { w.replaceDaemon(s) })
		}
		return 2 * time.Second
	}},
}

// takeoverOptions are those of the random schedule of a seed in which daemons are
// replaced.
func takeoverOptions(seed int64) options {
	o := randomOptions(seed)
	o.takeovers = true
	return o
}

func TestTakeovers(t *testing.T) {
	successions(t, *flagTakeovers, takeoverOptions, func(l *legacy) bool { return l.heir == nil })
}

// successions runs schedules, and checks that daemons went on with what others left to
// them, of the kind that counts.
func successions(t *testing.T, seeds int, of func(seed int64) options, counts func(*legacy) bool) {
	t.Helper()
	came := 0
	n := schedules(t, seeds, of, func(r ran) {
		for _, p := range r.world.procs {
			if p.succeeded && counts(p.legacy) {
				came++
			}
		}
	})
	t.Logf("%d daemons went on with what was left to them", came)
	if came == 0 && n >= 20 {
		t.Error("no daemon went on with what was left to it")
	}
}
