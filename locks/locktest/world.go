package locktest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"dmxfs/locks"
)

// errSkip: the op cannot be done in this state. A run that was made shorter
// has such ops; they are left out.
var errSkip = errors.New("not now")

// A world is all nodes of one key, and who sees all of it.
type world struct {
	alg   locks.Algorithm
	opt   Options
	nodes []*node
	epoch locks.Epoch // of the newest view
	views map[locks.Epoch]*locks.View
	links [][]link // [from][to]
	sent  map[string]int
	seq   int

	oracle oracle
	// fair: check that nobody is passed; see Options.Asks.
	fair bool
	// log is what the last op did, for interaction files.
	log []string
	// quick: leave out the checks that look at more than one step; for
	// bringing a world to a state that has been checked.
	quick bool
	turn  locks.Turn
}

// A node is what an engine keeps for one key, and the engine's duties.
type node struct {
	index   int
	id      locks.NodeID
	machine locks.Machine // nil until it is needed, and after a drop
	floor   locks.Token   // the largest token of dropped machines
	dead    bool
	// suspended: Turn.MayEnter is false.
	suspended bool
	// epoch is the one that was restored, frozen the one for which a state
	// was said. In between, the node has left the one and not begun the other.
	epoch, frozen locks.Epoch
	state         []byte
	data          cache
	last          locks.Token // of its grants
}

func (n *node) between() bool { return n.frozen > n.epoch }

// A link is the messages under way from one node to another, oldest first.
type link []packet

type packet struct {
	epoch locks.Epoch
	bytes []byte
	seq   int // in the order of sending, over all links
}

// newWorld is a world of n nodes in epoch 1.
func newWorld(alg locks.Algorithm, opt Options, n int) *world {
	w := &world{alg: alg, opt: opt, sent: make(map[string]int), views: make(map[locks.Epoch]*locks.View)}
	var members []int
	for i := range n {
		members = append(members, i)
	}
	w.announce(members)
	for _, n := range w.nodes {
		n.epoch, n.frozen = w.epoch, w.epoch
	}
	return w
}

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

func (w *world) addNode() {
	n := &node{index: len(w.nodes), id: nodeID(len(w.nodes))}
	w.nodes = append(w.nodes, n)
	w.oracle.join(n)
	for i := range w.links {
		w.links[i] = append(w.links[i], nil)
	}
	w.links = append(w.links, make([]link, len(w.nodes)))
}

// viewOf is the view of epoch e as n sees it.
func (w *world) viewOf(n *node, e locks.Epoch) *locks.View {
	v := *w.views[e]
	v.Self = n.id
	return &v
}

// member reports whether n is in the newest view.
func (w *world) member(n *node) bool { return w.views[w.epoch].Index(n.id) >= 0 }

// need is the machine of n, made now if there is none.
func (w *world) need(n *node) locks.Machine {
	if n.machine == nil {
		n.machine = w.alg.New(locks.Config{
			Key:   locks.Key{File: "f", Class: locks.Flock},
			View:  w.viewOf(n, n.epoch),
			Token: n.floor,
			Seed:  uint64(n.index),
		})
		n.data.renew()
		if n.between() {
			n.machine.State() // nothing, which is what was said for it
		}
	}
	return n.machine
}

// apply does one op. It returns errSkip if the op is not possible now, another
// error if something is wrong after it.
func (w *world) apply(o Op) (err error) {
	w.log = w.log[:0]
	if max(o.Node, o.To) >= len(w.nodes) {
		return errSkip
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, stack())
		}
	}()
	switch o.Kind {
	case opDeliver: // also from the dead
		return w.deliver(w.nodes[o.Node], w.nodes[o.To], o)
	case opView:
		return w.change(o.View)
	}
	n := w.nodes[o.Node]
	if n.dead || n.epoch == 0 && o.Kind != opFreeze && o.Kind != opRestore {
		return errSkip
	}
	switch o.Kind {
	case opAcquire:
		return w.acquire(n, o)
	case opCancel:
		return w.cancel(n, o.Ticket.ID)
	case opReplace:
		return w.replace(n, o)
	case opOvertake:
		return w.overtake(n, o.Ticket.ID)
	case opExpire:
		if n.machine == nil {
			return errSkip
		}
		return w.run(n, func(m locks.Machine, out *locks.Turn) error { m.Expire(out); return nil })
	case opDrop:
		if n.machine == nil || n.between() || !n.machine.Idle() {
			return errSkip
		}
		n.floor = max(n.floor, n.machine.Token())
		n.machine = nil
		return w.check(n)
	case opSuspend:
		if n.suspended {
			return errSkip
		}
		n.suspended = true
		return nil
	case opResume:
		if !n.suspended {
			return errSkip
		}
		n.suspended = false
		if n.machine == nil || n.between() {
			return nil
		}
		return w.run(n, func(m locks.Machine, out *locks.Turn) error { m.Resume(out); return nil })
	case opFreeze:
		return w.freeze(n)
	case opRestore:
		return w.restore(n)
	}
	return fmt.Errorf("unknown op %q", o.Kind)
}

// run is one turn of the machine of n.
func (w *world) run(n *node, f func(locks.Machine, *locks.Turn) error) error {
	w.turn.Reset(!n.suspended && !n.between())
	out := &w.turn
	if err := f(w.need(n), out); err != nil {
		return fmt.Errorf("%s: %w", n.id, err)
	}
	return w.finish(n, out)
}

// finish does with a turn what an engine does, and checks it.
func (w *world) finish(n *node, out *locks.Turn) error {
	if !w.quick {
		w.log = append(w.log, out.Lines()...)
	}
	if n.between() && len(out.Send) > 0 {
		return fmt.Errorf("%s says %v between two epochs", n.id, out.Send[0])
	}
	if out.Handover {
		w.oracle.writeOut(n)
	}
	for _, e := range out.Send {
		if err := w.send(n, e); err != nil {
			return err
		}
	}
	if out.Stale {
		n.data.stale = true
	}
	for _, o := range out.Done {
		if err := w.oracle.done(w, n, o, out.MayEnter); err != nil {
			return err
		}
	}
	w.oracle.justify(w)
	return w.check(n)
}

func (w *world) send(n *node, e locks.Envelope) error {
	v := w.views[n.epoch]
	if e.To == n.id || v.Index(e.To) < 0 {
		return fmt.Errorf("%s sends to %s, which is not another member of epoch %d", n.id, e.To, n.epoch)
	}
	w.seq++
	p := packet{epoch: n.epoch, bytes: e.Msg.Append(nil), seq: w.seq}
	if w.quick {
		w.sent[""]++
	} else {
		kind, _, _ := strings.Cut(e.Msg.String(), " ")
		w.sent[kind]++
	}
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
		w.log = append(w.log, fmt.Sprintf("%v: %v", Op{Kind: opDeliver, Node: from.index, To: to.index}, msg))
	}
	if w.opt.Asks != nil {
		if t := w.oracle.ticket(from, w.opt.Asks(msg)); t != nil {
			t.heard |= 1 << to.index
		}
	}
	return w.run(to, func(m locks.Machine, out *locks.Turn) error { return m.Receive(from.id, msg, out) })
}

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

// check verifies n, and every pair that it is in.
func (w *world) check(n *node) error {
	if w.quick {
		return nil
	}
	if err := w.oracle.answers(w, n); err != nil {
		return fmt.Errorf("%s: %w", n.id, err)
	}
	if *flagBlind {
		return nil
	}
	if n.machine != nil {
		if err := n.machine.Check(); err != nil {
			return fmt.Errorf("%s: %w\n%v", n.id, err, n.machine)
		}
	}
	if w.opt.Pair == nil || n.between() {
		return nil
	}
	for _, x := range w.nodes {
		if x == n || x.dead || x.between() || x.epoch != n.epoch || x.epoch == 0 {
			continue
		}
		quiet := len(w.links[n.index][x.index])+len(w.links[x.index][n.index]) == 0
		a, b := Side{n.id, n.machine}, Side{x.id, x.machine}
		if err := errors.Join(w.opt.Pair(a, b, quiet), w.opt.Pair(b, a, quiet)); err != nil {
			return fmt.Errorf("%s and %s: %w\n%v\n%v", n.id, x.id, err, n.machine, x.machine)
		}
	}
	return nil
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
