package member_test

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// fault is one kind of trouble. do begins it with the current node as its
// victim and returns for how many milliseconds it lasts, until the network,
// the storage and the processes are well again by themselves.
type fault struct {
	name string
	do   func(w *world, n *node, length int64) int64
}

// others are the running processes but n.
func (w *world) others(n *node) []*node {
	var r []*node
	for _, o := range w.running() {
		if o != n {
			r = append(r, o)
		}
	}
	return r
}

func (w *world) other(n *node) *node {
	o := w.others(n)
	if len(o) == 0 {
		return nil
	}
	return o[w.rng.IntN(len(o))]
}

// cutFor cuts a direction for d milliseconds.
func (w *world) cutFor(from, to *node, queues bool, d int64) {
	w.cut(from, to, queues)
	w.after(d*ms, func() { w.heal(from, to) })
}

// isolate cuts all between one side and the other. Processes that start later
// have the same peers, so they are cut as well.
func (w *world) isolate(side, rest []*node, queues bool, in, out bool, d int64) {
	for _, a := range side {
		for _, b := range rest {
			if out {
				w.cutFor(a, b, queues, d)
			}
			if in {
				w.cutFor(b, a, queues, d)
			}
		}
	}
}

// diskFor changes a client's storage for d milliseconds.
func (w *world) diskFor(n *node, d int64, change func(*client)) {
	change(&n.disk)
	w.after(d*ms, func() {
		c := &n.disk
		c.slow, c.slowMin, c.errs, c.done, c.late, c.lateBy = 0, 0, 0, 0, 0, 0
	})
}

// restart kills n and starts it again after a pause. With proof it finds its
// former self's lock free in the same boot of the host.
func (w *world) restart(n *node, pause int64, proof bool) {
	n.kill()
	w.pending++
	w.after(pause*ms, func() {
		w.pending--
		h := *n.host
		if !proof {
			w.boots++
			h.boot = n.host.boot + "'"
			h.lock.Ino = uint64(w.boots)
		}
		w.startOn(n.name, &h, nil)
	})
}

func (w *world) setPolicy(n *node, hash string) {
	w.logf("%s changes the policy", n.name)
	n.input(member.SetPolicy{Wish: member.Wish{ID: 9, Deadline: n.clock() + 10_000}, Policy: member.Policy{Hash: hash}})
}

var newcomerNames = []string{"p", "q", "r", "s", "u", "v", "w", "x", "y", "z"}

func (w *world) freshName() string {
	for _, s := range newcomerNames {
		if len(w.byPeer[s]) == 0 {
			return s
		}
	}
	return ""
}

// faults are all kinds.
var faults = []fault{
	{"stop", func(w *world, n *node, d int64) int64 {
		n.stop(d)
		return d
	}},
	{"stop all", func(w *world, n *node, d int64) int64 {
		for _, o := range w.running() {
			o.stop(d - w.rng.Int64N(d/2+1))
		}
		return d
	}},
	{"cut pair", func(w *world, n *node, d int64) int64 {
		if o := w.other(n); o != nil {
			q := w.chance(0.5)
			w.isolate([]*node{n}, []*node{o}, q, true, true, d)
		}
		return d
	}},
	{"cut pair one way", func(w *world, n *node, d int64) int64 {
		if o := w.other(n); o != nil {
			w.isolate([]*node{n}, []*node{o}, w.chance(0.5), true, false, d)
		}
		return d
	}},
	{"isolate", func(w *world, n *node, d int64) int64 {
		w.isolate([]*node{n}, w.others(n), w.chance(0.5), true, true, d)
		return d
	}},
	{"receives nothing", func(w *world, n *node, d int64) int64 {
		w.isolate([]*node{n}, w.others(n), w.chance(0.5), true, false, d)
		return d
	}},
	{"sends nothing", func(w *world, n *node, d int64) int64 {
		w.isolate([]*node{n}, w.others(n), w.chance(0.5), false, true, d)
		return d
	}},
	{"partition", func(w *world, n *node, d int64) int64 {
		all := w.running()
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		k := w.rng.IntN(len(all) + 1)
		w.isolate(all[:k], all[k:], w.chance(0.5), true, true, d)
		return d
	}},
	{"slow network", func(w *world, n *node, d int64) int64 {
		slow := 1 + w.rng.Int64N(3000)
		for _, o := range w.others(n) {
			for _, l := range []*link{w.link(n.name, o.name), w.link(o.name, n.name)} {
				l.slow = slow
				w.after(d*ms, func() { l.slow = 0 })
			}
		}
		return d + 3000
	}},
	{"loss and duplicates", func(w *world, n *node, d int64) int64 {
		loss, dup := w.rng.Float64()*0.6, w.rng.Float64()*0.5
		for _, a := range w.running() {
			for _, b := range w.others(a) {
				l := w.link(a.name, b.name)
				l.loss, l.dup = loss, dup
				w.after(d*ms, func() { l.loss, l.dup = 0, 0 })
			}
		}
		return d
	}},
	{"storage hangs", func(w *world, n *node, d int64) int64 {
		n.hang(d)
		return d
	}},
	{"all storage hangs", func(w *world, n *node, d int64) int64 {
		for _, o := range w.running() {
			o.hang(d)
		}
		return d
	}},
	{"storage errors", func(w *world, n *node, d int64) int64 {
		done, late := w.rng.Float64(), w.rng.Float64()
		errs := 0.3 + 0.7*w.rng.Float64()
		w.diskFor(n, d, func(c *client) { c.errs, c.done, c.late, c.lateBy = errs, done, late, 8000 })
		return d + 8000
	}},
	{"storage slow", func(w *world, n *node, d int64) int64 {
		slow := 500 + w.rng.Int64N(7500)
		w.diskFor(n, d, func(c *client) { c.slow = slow })
		return d + slow
	}},
	{"stop before link", func(w *world, n *node, d int64) int64 {
		n.disk.stopAt, n.disk.stopFor = beforeLink, d
		w.after(2*d*ms, func() { n.disk.stopAt = noPoint })
		return 3 * d
	}},
	{"link of an old name", func(w *world, n *node, d int64) int64 {
		// n proposes, and is stopped before its link for so long that the
		// others go on without it and its name is pruned.
		d += 9000
		if len(w.running()) > 1 {
			n.disk.stopAt, n.disk.stopFor = beforeLink, d
			w.setPolicy(n, "old")
			for i := range int64(4) {
				w.after((6500+i*600)*ms, func() {
					if o := w.other(n); o != nil {
						w.setPolicy(o, fmt.Sprint(i))
					}
				})
			}
		}
		w.after(2*d*ms, func() { n.disk.stopAt = noPoint })
		return 3 * d
	}},
	{"stop after link", func(w *world, n *node, d int64) int64 {
		n.disk.stopAt, n.disk.stopFor = afterLink, d
		w.after(2*d*ms, func() { n.disk.stopAt = noPoint })
		return 3 * d
	}},
	{"stop after listing", func(w *world, n *node, d int64) int64 {
		n.disk.stopAt, n.disk.stopFor = afterListing, d
		w.after(2*d*ms, func() { n.disk.stopAt = noPoint })
		return 3 * d
	}},
	{"crash, proof", func(w *world, n *node, d int64) int64 {
		w.restart(n, w.rng.Int64N(d)+1, true)
		return d
	}},
	{"crash, no proof", func(w *world, n *node, d int64) int64 {
		w.restart(n, w.rng.Int64N(d)+1, false)
		return d
	}},
	{"crash for good", func(w *world, n *node, d int64) int64 {
		if len(w.running()) > 1 {
			n.kill()
		}
		return 0
	}},
	{"crash loop", func(w *world, n *node, d int64) int64 {
		k := 2 + w.rng.Int64N(4)
		proof := w.chance(0.7)
		for i := range k {
			w.after(i*d/k*ms, func() {
				if r := w.target(n.name); r != nil {
					w.restart(r, w.rng.Int64N(d/k+1)/2, proof)
				}
			})
		}
		return d
	}},
	{"leave", func(w *world, n *node, d int64) int64 {
		if len(w.running()) > 1 {
			w.logf("%s leaves", n.name)
			n.input(member.Leave{})
		}
		return 6000
	}},
	{"leave and return", func(w *world, n *node, d int64) int64 {
		w.logf("%s leaves", n.name)
		n.input(member.Leave{})
		w.pending++
		var back func()
		back = func() {
			if n.alive {
				w.after(w.between(100, 200), back)
				return
			}
			w.pending--
			w.startOn(n.name, n.host, nil)
		}
		w.after(d*ms, back)
		return d + 8000
	}},
	{"remove", func(w *world, n *node, d int64) int64 {
		if o := w.other(n); o != nil {
			w.logf("%s removes %s", n.name, o.name)
			n.input(member.Remove{Wish: member.Wish{ID: 1, Deadline: n.clock() + 20_000}, Node: o.m.Self()})
		}
		return 6000
	}},
	{"policy", func(w *world, n *node, d int64) int64 {
		w.setPolicy(n, n.name)
		return 1000
	}},
	{"newcomer", func(w *world, n *node, d int64) int64 {
		if s := w.freshName(); s != "" {
			w.start(s)
		}
		return 1000
	}},
	{"newcomer with other file IDs", func(w *world, n *node, d int64) int64 {
		if s := w.freshName(); s != "" {
			other := "inode 2"
			if w.chance(0.5) {
				other = "path"
			}
			adapt := func(c *member.Config) { c.FileID, c.TakesPath = other, false }
			w.isolated(s, w.between(0, d)/ms, adapt)
		}
		return d
	}},
	{"isolated newcomer", func(w *world, n *node, d int64) int64 {
		if s := w.freshName(); s != "" {
			w.isolated(s, d, nil)
		}
		return d
	}},
	{"clock jump", func(w *world, n *node, d int64) int64 {
		w.logf("the clock of %s jumps by %d ms", n.name, d)
		n.host.offset += d
		return 0
	}},
	{"clock jump of an isolated node", func(w *world, n *node, d int64) int64 {
		w.isolate([]*node{n}, w.others(n), w.chance(0.5), true, true, d)
		w.after(w.between(0, d), func() {
			w.logf("the clock of %s jumps by %d ms", n.name, d)
			n.host.offset += d
		})
		return d
	}},
	{"damaged view", func(w *world, n *node, d int64) int64 {
		w.damageNext = d
		if !w.opt.fence && w.chance(0.3) {
			w.damageNext = 3_600_000 // for good
		}
		w.after(3*d*ms, func() { w.damageNext = 0 })
		// Something has to make a view meanwhile.
		w.restart(n, w.rng.Int64N(d)+1, w.chance(0.5))
		return 4 * d
	}},
	{"fence command fails", func(w *world, n *node, d int64) int64 {
		w.fenceFails = max(w.fenceFails, w.now+d*ms)
		n.stop(d)
		return d
	}},
	{"all die", func(w *world, n *node, d int64) int64 {
		for i, o := range w.running() {
			if i == 0 || w.chance(0.5) {
				w.restart(o, w.rng.Int64N(d)+1, w.chance(0.5))
			} else {
				o.kill()
			}
		}
		return d
	}},
}

// isolated starts a process that reaches no other for d milliseconds.
func (w *world) isolated(name string, d int64, adapt func(*member.Config)) *node {
	for _, peer := range w.peerNames() {
		for _, k := range [][2]string{{name, peer}, {peer, name}} {
			l := w.link(k[0], k[1])
			l.cut++
			w.after(d*ms, func() { l.cut-- })
		}
	}
	return w.startOn(name, w.newHost(), adapt)
}

func (w *world) peerNames() []string {
	var r []string
	for peer := range w.byPeer {
		r = append(r, peer)
	}
	slices.Sort(r)
	return r
}
