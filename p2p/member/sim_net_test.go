package member_test

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// link is one direction between two peers.
type link struct {
	cut    int // by how many faults
	queues bool
	queue  []func() // what TCP keeps until the link is well again
	slow   int64    // ms that a message takes at most
	dup    float64
	loss   float64
}

func (w *world) link(from, to string) *link {
	k := [2]string{from, to}
	l := w.links[k]
	if l == nil {
		l = new(link)
		w.links[k] = l
	}
	return l
}

// cut cuts one direction. With queues, what is sent meanwhile is delivered at
// healing, as TCP may do; otherwise it is lost.
func (w *world) cut(from, to *node, queues bool) {
	l := w.link(from.name, to.name)
	l.cut++
	l.queues = queues
	w.logf("cut %s->%s", from.name, to.name)
}

func (w *world) heal(from, to *node) {
	l := w.link(from.name, to.name)
	l.cut--
	w.logf("heal %s->%s", from.name, to.name)
	if l.cut > 0 {
		return
	}
	for _, deliver := range l.queue {
		w.after(w.between(0, 50), deliver)
	}
	l.queue = nil
}

// cutBoth and healBoth are for both directions.
func (w *world) cutBoth(a, b *node, queues bool) {
	w.cut(a, b, queues)
	w.cut(b, a, queues)
}

func (w *world) healBoth(a, b *node) {
	w.heal(a, b)
	w.heal(b, a)
}

// carry takes something from one peer to another.
func (w *world) carry(from, to string, deliver func()) {
	l := w.link(from, to)
	if l.cut > 0 {
		if l.queues && len(l.queue) < 200 {
			l.queue = append(l.queue, deliver)
		}
		return
	}
	if l.loss > 0 && w.chance(l.loss) {
		return
	}
	d := w.between(0, 3)
	if w.opt.lan {
		d /= 20
	}
	if l.slow > 0 {
		d = w.between(0, l.slow)
	}
	w.after(d, deliver)
	if l.dup > 0 && w.chance(l.dup) {
		w.after(d+w.between(0, 200), deliver)
	}
}

func (w *world) transmit(n *node, e member.Envelope) {
	if n.out.Offline {
		w.check.failf("%v sends %v while it is offline", n.m.Self(), e)
	}
	w.sent++
	if w.opt.wire {
		e = w.throughWire(e)
	}
	in := member.Received{Envelope: e}
	w.carry(n.name, e.To.Peer, func() {
		if t := w.target(e.To.Peer); t != nil {
			t.input(in)
		}
	})
}

func (w *world) transmitSync(n *node, to member.Node, epoch locks.Epoch) {
	in := member.SyncArrived{From: n.m.Self(), Epoch: epoch}
	w.carry(n.name, to.Peer, func() {
		if t := w.target(to.Peer); t != nil && t.m.Self() == to {
			t.input(in)
		}
	})
}

// target is the process that has a peer's connections: one that is not offline.
// Of two it is the one that made its connections last, as long as it runs.
func (w *world) target(peer string) (t *node) {
	for _, n := range w.byPeer[peer] {
		if n.alive && !n.out.Offline && (t == nil || t.stopped() || !n.stopped()) {
			t = n
		}
	}
	return t
}

func (w *world) throughWire(e member.Envelope) member.Envelope {
	b, err := member.Encode(e)
	if err != nil {
		panic(fmt.Sprintf("%v: %v", e, err))
	}
	d, err := member.Decode(e.From.Peer, e.To.Peer, "", b)
	if err != nil {
		panic(fmt.Sprintf("%v: %v", e, err))
	}
	return d
}
