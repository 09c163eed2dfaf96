package locktest

import (
	"github.com/dmxfs/dmxfs/locks"
)

// announce makes a view; nodes that are new begin to exist.
func (w *world) announce(members []int) {
	w.epoch++
	v := &locks.View{Epoch: w.epoch}
	for _, i := range members {
		for len(w.nodes) <= i {
			w.addNode()
		}
		v.Members = append(v.Members, nodeID(i))
	}
	w.views[w.epoch] = v
}

// viewOf is the view of epoch e as n sees it.
func (w *world) viewOf(n *node, e locks.Epoch) *locks.View {
	v := *w.views[e]
	v.Self = n.id
	return &v
}

// member reports whether n is in the newest view.
func (w *world) member(n *node) bool { return w.views[w.epoch].Index(n.id) >= 0 }

// change announces the next epoch. Nodes that are left out are dead: their
// locks are void, and what they had not written out is lost.
func (w *world) change(members []int) error {
	for _, i := range members {
		if i > len(w.nodes) || i < len(w.nodes) && w.nodes[i].dead {
			return errSkip
		}
	}
	w.announce(members)
	for _, n := range w.nodes {
		if !n.dead && !w.member(n) {
			n.dead = true
			w.oracle.die(n)
			for i := range w.nodes {
				w.links[i][n.index] = nil
			}
		}
	}
	return nil
}

// freeze is the moment in which n learns of the newest epoch: what comes of an
// older one is dropped from here on, and what it wrote and may give up is on
// the storage before its state is sent.
func (w *world) freeze(n *node) error {
	if !w.member(n) || n.frozen == w.epoch {
		return errSkip
	}
	n.frozen = w.epoch
	for i := range w.nodes {
		w.links[i][n.index] = keep(w.links[i][n.index], func(p packet) bool { return p.epoch >= w.epoch })
	}
	w.oracle.writeOut(n)
	w.oracle.unhear(n)
	n.state = nil
	if n.machine != nil {
		n.state = n.machine.State()
	}
	return w.check(n)
}

func keep(l link, f func(packet) bool) link {
	var out link
	for _, p := range l {
		if f(p) {
			out = append(out, p)
		}
	}
	return out
}

// restorable reports whether n can begin the newest epoch: all have said their
// state for it.
func (w *world) restorable(n *node) bool {
	if n.epoch == w.epoch || !w.member(n) {
		return false
	}
	for _, x := range w.nodes {
		if w.member(x) && x.frozen != w.epoch {
			return false
		}
	}
	return true
}

func (w *world) restore(n *node) error {
	if !w.restorable(n) {
		return errSkip
	}
	states := make(map[locks.NodeID][]byte)
	for _, x := range w.nodes {
		if w.member(x) && x.state != nil {
			states[x.id] = x.state
		}
	}
	n.epoch = w.epoch
	if n.machine == nil && len(states) == 0 {
		return w.check(n)
	}
	return w.run(n, func(m locks.Machine, out *locks.Turn) error {
		return m.Restore(w.viewOf(n, w.epoch), states, out)
	})
}
