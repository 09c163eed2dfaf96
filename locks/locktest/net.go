package locktest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// A link is the messages under way from one node to another, oldest first.
type link []packet

type packet struct {
	epoch locks.Epoch
	bytes []byte
	seq   int // in the order of sending, over all links
}

func (w *world) send(n *node, e locks.Envelope) error {
	v := w.views[n.epoch]
	if e.To == n.id || v.Index(e.To) < 0 {
		return fmt.Errorf("%s sends to %s, which is not another member of epoch %d", n.id, e.To, n.epoch)
	}
	w.seq++
	p := packet{epoch: n.epoch, bytes: e.Msg.Append(nil), seq: w.seq}
	kind := ""
	if w.tells {
		kind, _, _ = strings.Cut(e.Msg.String(), " ")
	}
	w.sent[kind]++
	to := w.nodes[mustIndex(e.To)]
	if to.dead || to.frozen > p.epoch {
		return nil // it comes to a later epoch, where it is dropped
	}
	w.links[n.index][to.index] = append(w.links[n.index][to.index], p)
	return nil
}

func mustIndex(id locks.NodeID) int {
	i, ok := parseNode(string(id))
	if !ok {
		panic("locktest: node " + string(id))
	}
	return i
}

// deliverable reports whether the message at of a link can be delivered.
func (w *world) deliverable(from, to *node, at int) bool {
	l := w.links[from.index][to.index]
	if at >= len(l) || at > 0 && !w.opt.Reorders || to.dead || to.between() {
		return false
	}
	return l[at].epoch == to.epoch // a newer one waits
}

// arriving calls f with each link whose oldest message can be delivered.
func (w *world) arriving(f func(from, to *node)) {
	for i, links := range w.links {
		for k := range links {
			if len(links[k]) > 0 && w.deliverable(w.nodes[i], w.nodes[k], 0) {
				f(w.nodes[i], w.nodes[k])
			}
		}
	}
}

func (w *world) deliver(from, to *node, o Op) error {
	if !w.deliverable(from, to, o.At) || o.Dup && !w.opt.Duplicates {
		return errSkip
	}
	l := w.links[from.index][to.index]
	p := l[o.At]
	if !o.Dup {
		w.links[from.index][to.index] = append(append(link(nil), l[:o.At]...), l[o.At+1:]...)
	}
	msg, err := w.alg.Decode(p.bytes)
	if err != nil {
		return fmt.Errorf("message %x: %w", p.bytes, err)
	}
	if !w.quick {
		if again := msg.Append(nil); !bytes.Equal(again, p.bytes) {
			return fmt.Errorf("message %x is %v, and encoded again %x", p.bytes, msg, again)
		}
	}
	if w.tells {
		w.log = append(w.log, fmt.Sprintf("%v: %v", Op{Kind: opDeliver, Node: from.index, To: to.index}, msg))
	}
	if w.opt.Asks != nil {
		if t := w.oracle.ticket(from, w.opt.Asks(msg)); t != nil {
			t.heard |= 1 << to.index
		}
	}
	return w.run(to, func(m locks.Machine, out *locks.Turn) error { return m.Receive(from.id, msg, out) })
}

// quiet reports whether no message is under way and no epoch is being changed.
func (w *world) quiet() bool {
	for _, n := range w.nodes {
		if !n.dead && (n.epoch != w.epoch || n.between()) {
			return false
		}
		for _, l := range w.links[n.index] {
			if len(l) > 0 {
				return false
			}
		}
	}
	return true
}
