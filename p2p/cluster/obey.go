package cluster

import (
	"fmt"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// step gives the machine one input and does what follows. Nothing in it
// blocks.
func (n *Node) step(it item) {
	if n.end != nil {
		return
	}
	now := n.o.Now()
	n.stepping.Lock()
	n.o.Machine.Step(now, it.in, &n.out)
	n.stepped, n.status = true, nil
	n.stepping.Unlock()
	n.obey(it)
}

// obey does what n.out asks for, in the order of its fields.
func (n *Node) obey(it item) {
	o := &n.out
	until := n.liveUntil.Swap(o.LiveUntil)
	n.setOnline(!o.Offline)
	if x := o.Expelled; x != nil {
		n.own = state{}
		why := x.Why
		n.engineDo.put(func() {
			n.o.Transport.DropView()
			n.engine.Expelled(why)
		})
	}
	if f := o.Freeze; f != nil {
		n.freeze(f)
	}
	if a, ok := it.in.(member.SyncArrived); ok && o.TakeSync {
		n.tell(a.From.ID(), a.Epoch, it.state)
	}
	if v := n.o.Machine.View(); o.Synced != 0 && n.o.Installed != nil {
		n.engineDo.put(func() { n.o.Installed(v) })
	}
	n.resume(until)
	for _, e := range o.Send {
		b, err := member.Encode(e)
		if err != nil {
			to := e.To
			n.clerk.put(func() { n.o.Log.Error("a membership message cannot be sent", "to", to.String(), "err", err) })
			continue
		}
		n.o.Transport.Member(e.To.Peer, b)
	}
	for _, to := range o.SendSync {
		n.sendState(to)
	}
	if op := o.Storage; op != nil {
		n.background(func() item {
			look, err := n.do(op)
			return item{in: member.Done{Op: op, Err: err, Look: look}}
		})
	}
	for _, f := range o.Fence {
		n.background(func() item { return item{in: member.Fenced{Node: f.Node, Err: n.o.Fence(n.ctx, f)}} })
	}
	for _, c := range o.Meet {
		n.meet[c.Peer] = met{c, n.o.Now()}
	}
	if len(o.Meet) > 0 || o.Expelled != nil || n.o.Machine.View() != n.wantFor {
		n.want()
	}
	if s := o.Save; s != nil {
		n.clerk.put(func() { n.save(s) })
	}
	if inc := o.Inc; inc != 0 && n.o.Named != nil {
		n.clerk.put(func() {
			if err := n.o.Named(inc); err != nil {
				n.o.Log.Warn("the state directory cannot be written: should this daemon die, the others wait for the end of its tenure", "err", err)
			}
		})
	}
	for _, a := range o.Answers {
		n.answer(a)
	}
	for _, x := range o.Notices {
		n.clerk.put(func() { n.o.Notice(x) })
	}
	n.end = o.End
}

// resume tells the engine to go on with what waits for this node to have
// tenure: grants, and I/O, which needs Params.Guard more of it. The tenure that
// ended at until, or came that near to its end, may have done so between two
// steps, and those who saw it wait.
//
// I/O goes on before the states of all are there: a state waits for the
// write-out, and that may wait for a page that a program of this host locked
// for a write through a mapping, which is held up itself for want of tenure.
// Two nodes that lose their tenure at once, as when a third one stands still,
// would wait for each other's states for ever.
func (n *Node) resume(until int64) {
	now, guard := n.o.Now(), n.o.Params.Guard // after the new one was published
	ended, short := now+guard >= until, now+guard >= n.out.LiveUntil
	n.lapsed.grants = n.lapsed.grants || !n.granting || ended
	n.lapsed.io = n.lapsed.io || ended
	n.granting = n.out.Granting
	switch {
	case n.granting && n.lapsed.grants:
		n.lapsed.grants, n.lapsed.io = short, short
		n.engineDo.put(n.engine.Resume)
	case n.lapsed.io && !short:
		n.lapsed.io = false
		n.engineDo.put(n.engine.ResumeIO)
	}
}

// do carries out an operation on the storage. Who claims a place is kept first.
func (n *Node) do(op member.Op) (member.Look, error) {
	if l, ok := op.(member.LinkOp); ok && len(l.Claim) > 0 && n.o.Claim != nil {
		if err := n.o.Claim(l.Claim); err != nil {
			return member.Look{}, fmt.Errorf("it cannot be written down that this process takes the place of the one before it: %w", err)
		}
	}
	return n.o.Storage.Do(op)
}

// background runs f, which may take for ever, and gives its result to the
// machine.
func (n *Node) background(f func() item) {
	go func() { n.give(f()) }()
}

// give gives the machine an input that must not be lost, if Run still runs.
func (n *Node) give(it item) {
	select {
	case n.inputs <- it:
	case <-n.ctx.Done():
	}
}

// freeze stops the engine, and begins the epoch of f.View: the engine collects
// states from now on. The machine goes on when the engine has obeyed.
func (n *Node) freeze(f *member.Freeze) {
	seq, v := f.Seq, f.View
	if v == nil {
		// Before it leaves: what was written here goes out before the others
		// may go on without this node.
		n.engineDo.put(func() {
			n.engine.Freeze()
			go func() {
				if n.engine.State() == nil {
					return // all is left to the successor: it is not this process that leaves
				}
				n.give(item{in: member.Frozen{Seq: seq}})
			}()
		})
		return
	}
	self := n.o.Machine.Self()
	n.own = state{epoch: v.Epoch, sending: map[member.Node]bool{}}
	n.engineDo.put(func() {
		n.engine.Freeze()
		if n.o.Begin != nil {
			n.o.Begin(v)
		}
		lv := v.Locks(self)
		if err := n.o.Transport.SetView(v.Epoch, self.ID(), lv.Members); err != nil {
			// Without the channels no state arrives, so nothing is granted.
			n.o.Log.Error("the network does not take a view", "epoch", v.Epoch, "err", err)
		}
		n.engine.Install(lv)
		n.give(item{in: member.Frozen{Seq: seq}})
		go func() {
			b := n.engine.State()
			n.give(item{do: func() { n.ownReady(v.Epoch, b) }})
		}()
	})
}

// save is run by the clerk.
func (n *Node) save(s *member.Saved) {
	n.unsaved = nil
	if err := n.o.Save(*s); err != nil {
		n.o.Log.Warn("the state directory cannot be written: tried again in some seconds", "err", err)
		n.unsaved = s
	}
}
