package systemtest

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var flagKills = flag.Int("system.kills", long.Pure(5, long.Or(20, 100)), "how many random schedules with daemons that are killed and succeeded to run")

// knownGrant is a grant that a program has been told of.
type knownGrant struct {
	key   locks.Key
	token locks.Token
}

// killDaemon kills p, if it runs and keeps a ledger. After a pause another process goes
// on with that, which the programs of p use from then on; then, if not nil, is called
// with it. If nothing is in the ledger, the other process starts as any does.
func (w *world) killDaemon(p *proc, pause time.Duration, then func(*proc)) {
	if !p.alive() || p.stopped() || p.closing || p.ledger == nil {
		return
	}
	if p.ledger.dead.Store(true); p.left() == nil {
		w.restart(p, pause, true)
		return
	}
	held := slices.DeleteFunc(w.check.heldBy(p), func(h *holder) bool { return !p.hasTold(h) })
	p.due = true
	p.kill()
	w.pending++
	w.after(pause, func() {
		w.pending--
		p.due = false
		if s := w.goOnAfter(p, held); s != nil && then != nil {
			then(s)
		}
	})
}

// hasTold reports whether a program was told of the grant of h. If it was not when p is
// killed, it waits, for all that anybody knows.
func (p *proc) hasTold(h *holder) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return slices.ContainsFunc(p.programs, func(g *program) bool { return g.pid == h.pid && g.knows[knownGrant{h.key, h.token}] })
}

// goOnAfter starts a process that goes on with the ledger of p, which was killed, and
// holds what p held. It returns nil if another process of the host has begun meanwhile.
func (w *world) goOnAfter(p *proc, held []*holder) *proc {
	l := p.left()
	if l == nil || w.ofPeer(p.name) != nil {
		return nil
	}
	if w.opt.bug == "a ledger of before is taken" && p.legacy != nil && p.legacy.heir != nil {
		l.state, l.heir.Of = p.legacy.state, p.legacy.heir.Of
	}
	s := w.succeed(l, held)
	s.cache = map[locks.Key][]int{} // nobody knows any more what the kernel has
	s.engine.GiveUpUnknown(func(_ locks.Key, h locks.HandleID) bool {
		return slices.ContainsFunc(s.programs, func(g *program) bool { return locks.HandleID(g.pid) == h })
	}, "its file is not open any more")
	for _, do := range p.postponed {
		s.deliver(do)
	}
	p.postponed = nil
	return s
}

// deliver has the program do something, as soon as there is a daemon.
func (g *program) deliver(do func()) {
	if !g.afterKill(g.proc, do) {
		g.proc.deliver(do)
	}
}

// afterKill reports whether p, which the program used, was killed and left a ledger. If
// so the program does something in the next daemon, unless there will be none.
func (g *program) afterKill(p *proc, do func()) bool {
	switch {
	case p.ledger == nil || !p.ledger.dead.Load():
		return false
	case g.proc != p:
		g.deliver(do)
	case p.due:
		p.postponed = append(p.postponed, do)
	}
	return true
}

// killAtLink kills s as it tries its first link, which the server gets at once, late or
// never.
func (w *world) killAtLink(s *proc, pause time.Duration, then func(*proc)) {
	s.disk.atLink = func(op member.LinkOp) bool {
		if w.killDaemon(s, pause, then); s.alive() {
			return false // it was stopped, or leaves
		}
		switch {
		case w.chance(0.5):
			_ = w.do(op)
		case w.chance(0.5):
			w.after(w.between(0, 2*pause+100*ms), func() { _ = w.do(op) })
		}
		return true
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

// killOptions are those of the random schedule of a seed in which daemons are killed.
func killOptions(seed int64) options {
	o := randomOptions(seed)
	o.kills, o.takeovers = true, seed%3 == 0
	return o
}

func TestKills(t *testing.T) {
	successions(t, *flagKills, killOptions, func(l *legacy) bool { return l.heir != nil })
}
