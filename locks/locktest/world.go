package locktest

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
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
	// tells: what ops do is wanted as text. Then log is what the last one did, and
	// sent counts the messages by their kind.
	tells bool
	log   []string
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

func (w *world) addNode() {
	n := &node{index: len(w.nodes), id: nodeID(len(w.nodes))}
	w.nodes = append(w.nodes, n)
	w.oracle.join(n)
	for i := range w.links {
		w.links[i] = append(w.links[i], nil)
	}
	w.links = append(w.links, make([]link, len(w.nodes)))
}

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
	if w.tells {
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
