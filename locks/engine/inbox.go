package engine

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// maxEarly bounds the frames that are kept for epochs to come. A member sends
// at most what its own tickets and the answers to ours need, so this is far
// from what a healthy cluster reaches while an epoch is being restored.
const maxEarly = 1 << 20

// inbox takes the frames of the members to those parts that they are for.
type inbox struct {
	*base
	waiters   *waiters
	entries   *entries
	damages   *damages
	stepper   *stepper
	barriers  *barriers
	askBacks  *askBacks
	queries   *queries
	tickets   *tickets
	lent      *lent
	borrowed  *borrowed
	deadlocks *detector
	sweeper   *sweeper
	closings  *closings

	early    early
	draining bool // the early frames of this epoch are being received
}

// take is [Engine.Receive].
func (in *inbox) take(from locks.NodeID, epoch locks.Epoch, frame []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.view != nil && epoch < in.view.Epoch:
		// Of an epoch that is over: what still matters is said again.
	case in.phase == active && epoch == in.view.Epoch && !in.draining:
		in.handle(from, frame)
	case len(in.early[epoch]) >= maxEarly:
		in.o.Log.Error("too many messages for an epoch that has not begun here: dropped", "peer", from, "epoch", epoch)
	default:
		in.early[epoch] = append(in.early[epoch], earlyFrame{from, frame})
	}
}

// takeNow is [Engine.ReceiveNow].
func (in *inbox) takeNow(from locks.NodeID, epoch locks.Epoch, frame []byte) bool {
	if len(frame) == 0 || frame[0] != frameMachine { // others may be about many locks
		return false
	}
	if !in.mu.TryLock() {
		return false
	}
	defer in.mu.Unlock()
	if in.phase != active || epoch != in.view.Epoch || in.draining {
		return false
	}
	in.handle(from, frame)
	return true
}

// drain receives what has come for this epoch before it began.
// REQUIRES: mu held. It lets go of it in between.
func (in *inbox) drain() {
	// What others send meanwhile comes behind what they have sent before.
	in.draining = true
	for epoch := in.view.Epoch; len(in.early[epoch]) > 0; in.mu.breathe() {
		f := in.early[epoch][0]
		in.early[epoch] = in.early[epoch][1:]
		in.handle(f.from, f.frame)
	}
	in.draining = false
	delete(in.early, in.view.Epoch)
}

func (in *inbox) clear() { clear(in.early) }

// forget forgets what has come for epochs before this one.
func (in *inbox) forget(before locks.Epoch) {
	for epoch := range in.early {
		if epoch < before {
			delete(in.early, epoch)
		}
	}
}

// handle handles a frame of the active epoch. What a peer gets wrong is
// logged and left out.
func (in *inbox) handle(from locks.NodeID, b []byte) {
	f, err := decodeFrame(b, in.o.Algorithms, len(in.view.Members))
	if err != nil {
		in.o.Log.Error("malformed lock message: dropped", "peer", from, "err", err)
		return
	}
	switch f.kind {
	case frameMachine:
		if in.closings.heldUp(f.key, from, b) {
			return
		}
		en := in.entries.entry(f.key, "", f.algorithm)
		if en.alg.Name != f.algorithm && in.sweeper.giveUp(en) {
			en = in.entries.entry(f.key, "", f.algorithm)
		}
		if en.alg.Name != f.algorithm {
			// A hard link that was made elsewhere, under another rule.
			in.o.Log.Error("a member serves a file by another algorithm: its message is refused",
				"peer", from, "key", f.key.String(), "path", en.path, "theirs", f.algorithm, "ours", en.alg.Name)
			in.o.Transport.Send(in.view.Epoch, from, otherFrame(f.key, en.alg.Name))
			return
		}
		en.messages++
		if in.stepper.step(en, func(turn *locks.Turn) { err = en.machine.Receive(from, f.msg, turn) }) {
			in.askBacks.gaveAway(en)
		}
		if err != nil {
			in.o.Log.Error("lock message against the protocol: dropped", "peer", from, "key", f.key.String(),
				"message", f.msg.String(), "err", err)
			err = nil
		}
		in.entries.tidy(en)
	case frameQuery:
		if in.closings.heldUp(f.key, from, b) {
			return
		}
		in.queries.answer(from, f)
	case frameHolders:
		if q := in.queries.open[f.id]; q != nil {
			in.queries.answered(q, from, f.conflicts)
		}
	case frameProbe:
		in.deadlocks.receiveProbe(probe{f.id, f.path})
	case frameCycle, frameConfirm:
		in.deadlocks.receiveCycle(f.kind, from, f.id, f.path)
	case frameLifted:
		in.barriers.receive(from, f.key)
	case frameDamaged:
		in.damages.receive(from, f.key, int(f.origin), f.id)
	case frameOther:
		in.receiveOther(from, f.key, f.algorithm)
	case frameConfirmed:
		in.deadlocks.receiveConfirmed(from, f.id, f.ok)
	case frameWant, frameReturn:
		err = in.lent.receive(from, &f)
	case frameRefuse, frameDelegate, frameRecall:
		err = in.borrowed.receive(from, &f)
	}
	if err != nil {
		in.o.Log.Error("message about a delegation against the protocol: dropped", "peer", from, "err", err)
	}
}

var errOther = errors.New("another algorithm")

// receiveOther: a member serves k by another algorithm, so that what waits here
// would wait for ever. Two names of one file have different rules.
func (in *inbox) receiveOther(from locks.NodeID, k locks.Key, theirs string) {
	en := in.entries.all[k]
	if en == nil || en.alg.Name == theirs {
		return
	}
	err := fmt.Errorf("%w: %w: %s uses the file by a name whose rule says %s, here it says %s: names of one file must have one rule",
		locks.ErrUnavailable, errOther, from, theirs, en.alg.Name)
	for _, t := range in.waiters.sorted() {
		if in.waiters.has(t) && t.entry == en {
			in.tickets.withdraw(t, err, err.Error())
		}
	}
}
