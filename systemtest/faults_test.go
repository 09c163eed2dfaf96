package systemtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// fault is one kind of trouble. do begins it with p as its victim and returns
// for how long it lasts: then the network, the storage and the processes are
// well again by themselves.
type fault struct {
	name string
	do   func(w *world, p *proc, d time.Duration) time.Duration
}

// others are the running processes but p.
func (w *world) others(p *proc) []*proc {
	return slices.DeleteFunc(w.running(), func(o *proc) bool { return o == p })
}

func (w *world) other(p *proc) *proc {
	o := w.others(p)
	if len(o) == 0 {
		return nil
	}
	return o[w.rng.IntN(len(o))]
}

// isolate cuts one side from the other, for what comes in, what goes out, or
// both.
func (w *world) isolate(side, rest []*proc, queues, in, out bool, d time.Duration) {
	cut := func(from, to string) {
		w.cut(from, to, queues)
		w.after(d, func() { w.heal(from, to) })
	}
	for _, a := range side {
		for _, b := range rest {
			if out {
				cut(a.name, b.name)
			}
			if in {
				cut(b.name, a.name)
			}
		}
	}
}

// restart kills p and starts it again after a pause. With proof it finds its
// former self's lock free in the same boot of the host.
func (w *world) restart(p *proc, pause time.Duration, proof bool) {
	p.kill()
	w.pending++
	w.after(pause, func() {
		w.pending--
		h := p.host
		if !proof {
			h = w.reboot(h)
		}
		w.startOn(p.name, h)
	})
}

// wish is what an admin wants of p. The answer does not matter here.
func (w *world) wish(p *proc, what string, do func()) {
	w.logf("%s: %s", p.name, what)
	p.deliver(func() { go do() })
}

func (w *world) setPolicy(p *proc, hash string) {
	w.wish(p, "policy "+hash, func() {
		_ = p.node.SetPolicy(dying{p}, 10*time.Second, member.Policy{Hash: hash})
	})
}

var newcomerNames = []string{"p", "q", "r", "s", "u", "v", "w", "x", "y", "z"}

func (w *world) freshName() string {
	for _, s := range newcomerNames {
		if len(w.byName[w.id(s)]) == 0 {
			return s
		}
	}
	return ""
}

// diskFor changes a client's storage for d.
func (w *world) diskFor(p *proc, d time.Duration, change func(*client)) {
	change(&p.disk)
	w.after(d, func() {
		c := &p.disk
		c.slow, c.errs, c.done, c.late, c.lateBy, c.oldest = 0, 0, 0, 0, 0, false
	})
}

var faults = []fault{
	{"stop", func(w *world, p *proc, d time.Duration) time.Duration {
		p.stop(d)
		return d
	}},
	{"stop all", func(w *world, p *proc, d time.Duration) time.Duration {
		for _, o := range w.running() {
			o.stop(d - w.between(0, d/2))
		}
		return d
	}},
	{"cut pair", func(w *world, p *proc, d time.Duration) time.Duration {
		if o := w.other(p); o != nil {
			w.isolate([]*proc{p}, []*proc{o}, w.chance(0.5), true, true, d)
		}
		return d
	}},
	{"cut pair one way", func(w *world, p *proc, d time.Duration) time.Duration {
		if o := w.other(p); o != nil {
			w.isolate([]*proc{p}, []*proc{o}, w.chance(0.5), true, false, d)
		}
		return d
	}},
	{"isolate", func(w *world, p *proc, d time.Duration) time.Duration {
		w.isolate([]*proc{p}, w.others(p), w.chance(0.5), true, true, d)
		return d
	}},
	{"receives nothing", func(w *world, p *proc, d time.Duration) time.Duration {
		w.isolate([]*proc{p}, w.others(p), w.chance(0.5), true, false, d)
		return d
	}},
	{"sends nothing", func(w *world, p *proc, d time.Duration) time.Duration {
		w.isolate([]*proc{p}, w.others(p), w.chance(0.5), false, true, d)
		return d
	}},
	{"partition", func(w *world, p *proc, d time.Duration) time.Duration {
		all := w.running()
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		k := w.rng.IntN(len(all) + 1)
		w.isolate(all[:k], all[k:], w.chance(0.5), true, true, d)
		return d
	}},
	{"slow network", func(w *world, p *proc, d time.Duration) time.Duration {
		slow := w.between(1*ms, 3000*ms)
		for _, o := range w.others(p) {
			for _, k := range [][2]string{{p.name, o.name}, {o.name, p.name}} {
				w.change(k[0], k[1], func(l *link) { l.slow = slow })
				w.after(d, func() { w.change(k[0], k[1], func(l *link) { l.slow = 0 }) })
			}
		}
		return d + 3*time.Second
	}},
	{"loss and duplicates", func(w *world, p *proc, d time.Duration) time.Duration {
		loss, dup := w.rng.Float64()*0.6, w.rng.Float64()*0.5
		for _, a := range w.running() {
			for _, b := range w.others(a) {
				w.change(a.name, b.name, func(l *link) { l.loss, l.dup = loss, dup })
				w.after(d, func() { w.change(a.name, b.name, func(l *link) { l.loss, l.dup = 0, 0 }) })
			}
		}
		return d
	}},
	{"storage hangs", func(w *world, p *proc, d time.Duration) time.Duration {
		p.disk.hang(d)
		return d
	}},
	{"all storage hangs", func(w *world, p *proc, d time.Duration) time.Duration {
		for _, o := range w.running() {
			o.disk.hang(d)
		}
		return d
	}},
	{"storage errors", func(w *world, p *proc, d time.Duration) time.Duration {
		done, late, errs := w.rng.Float64(), w.rng.Float64(), 0.3+0.7*w.rng.Float64()
		w.diskFor(p, d, func(c *client) { c.errs, c.done, c.late, c.lateBy = errs, done, late, 8*time.Second })
		return d + 8*time.Second
	}},
	{"storage slow", func(w *world, p *proc, d time.Duration) time.Duration {
		slow := w.between(500*ms, 8000*ms)
		w.diskFor(p, d, func(c *client) { c.slow = slow })
		return d + slow
	}},
	{"stop before link", func(w *world, p *proc, d time.Duration) time.Duration { return w.stopAt(p, beforeLink, d) }},
	{"stop after link", func(w *world, p *proc, d time.Duration) time.Duration { return w.stopAt(p, afterLink, d) }},
	{"stop after listing", func(w *world, p *proc, d time.Duration) time.Duration { return w.stopAt(p, afterListing, d) }},
	{"crash, proof", func(w *world, p *proc, d time.Duration) time.Duration {
		w.restart(p, w.between(1*ms, d), true)
		return d
	}},
	{"crash, no proof", func(w *world, p *proc, d time.Duration) time.Duration {
		w.restart(p, w.between(1*ms, d), false)
		return d
	}},
	{"crash for good", func(w *world, p *proc, d time.Duration) time.Duration {
		if len(w.running()) > 1 {
			p.kill()
		}
		return 0
	}},
	{"crash loop", func(w *world, p *proc, d time.Duration) time.Duration {
		k := time.Duration(2 + w.rng.IntN(4))
		proof := w.chance(0.7)
		for i := range k {
			w.after(i*d/k, func() {
				if r := w.ofPeer(p.name); r != nil {
					w.restart(r, w.between(1*ms, d/k/2), proof)
				}
			})
		}
		return d
	}},
	{"leave", func(w *world, p *proc, d time.Duration) time.Duration {
		if len(w.running()) > 1 {
			p.leave()
		}
		return 9 * time.Second
	}},
	{"leave and return", func(w *world, p *proc, d time.Duration) time.Duration {
		p.leave()
		w.pending++
		var back func()
		back = func() {
			if p.alive() {
				w.after(w.between(100*ms, 200*ms), back)
				return
			}
			w.pending--
			w.startOn(p.name, p.host)
		}
		w.after(d, back)
		return d + 11*time.Second
	}},
	{"remove", func(w *world, p *proc, d time.Duration) time.Duration {
		if o := w.other(p); o != nil {
			victim := o.status().Self
			w.wish(p, "removes "+o.name, func() { _ = p.node.Remove(dying{p}, 20*time.Second, victim, "a test") })
		}
		return 6 * time.Second
	}},
	{"policy", func(w *world, p *proc, d time.Duration) time.Duration {
		w.setPolicy(p, p.name)
		return time.Second
	}},
	{"many views", func(w *world, p *proc, d time.Duration) time.Duration {
		for i := range 5 {
			w.after(time.Duration(i)*d/5, func() {
				if r := w.running(); len(r) > 0 {
					w.setPolicy(r[w.rng.IntN(len(r))], fmt.Sprint(i))
				}
			})
		}
		return d
	}},
	{"newcomer", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.freshName(); s != "" {
			w.start(s)
		}
		return time.Second
	}},
	{"isolated newcomer", func(w *world, p *proc, d time.Duration) time.Duration {
		if s := w.freshName(); s != "" {
			w.isolated(s, d)
		}
		return d
	}},
	{"clock jump", func(w *world, p *proc, d time.Duration) time.Duration {
		w.logf("the clock of %s jumps by %v", p.name, d)
		p.host.offset.Add(d.Milliseconds())
		return 0
	}},
	{"all die", func(w *world, p *proc, d time.Duration) time.Duration {
		for i, o := range w.running() {
			if i == 0 || w.chance(0.5) {
				w.restart(o, w.between(1*ms, d), w.chance(0.5))
			} else {
				o.kill()
			}
		}
		return d
	}},
}

func (w *world) stopAt(p *proc, at point, d time.Duration) time.Duration {
	p.disk.stopAt, p.disk.stopFor = at, d
	w.after(2*d, func() { p.disk.stopAt = noPoint })
	if at != afterListing && w.chance(0.5) {
		w.setPolicy(p, "to be linked")
	}
	return 3 * d
}

// isolated starts a process that reaches no other for d.
func (w *world) isolated(name string, d time.Duration) *proc {
	name = w.id(name)
	var peers []string
	for peer := range w.byName {
		peers = append(peers, peer)
	}
	slices.Sort(peers)
	for _, peer := range peers {
		w.cut(name, peer, false)
		w.cut(peer, name, false)
		w.after(d, func() {
			w.heal(name, peer)
			w.heal(peer, name)
		})
	}
	return w.start(name)
}

// dying is a context that ends with a process.
type dying struct{ p *proc }

func (dying) Deadline() (time.Time, bool) { return time.Time{}, false }
func (d dying) Done() <-chan struct{}     { return d.p.dead }
func (dying) Value(any) any               { return nil }
func (d dying) Err() error {
	if d.p.alive() {
		return nil
	}
	return errIO
}
