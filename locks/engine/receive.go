package engine

import (
	"errors"
	"fmt"

	"dmxfs/locks"
)

// maxEarly bounds the frames that are kept for epochs to come. A member sends
// at most what its own tickets and the answers to ours need, so this is far
// from what a healthy cluster reaches while an epoch is being restored.
const maxEarly = 1 << 20

// Receive takes a frame that a member sent in an epoch. Frames of one member
// come in the order in which it sent them. The engine keeps frame.
func (e *Engine) Receive(from locks.NodeID, epoch locks.Epoch, frame []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.view != nil && epoch < e.view.Epoch:
		// Of an epoch that is over: what still matters is said again.
	case e.phase == active && epoch == e.view.Epoch && !e.draining:
		e.receive(from, frame)
	case len(e.early[epoch]) >= maxEarly:
		e.o.Log.Error("too many messages for an epoch that has not begun here: dropped", "peer", from, "epoch", epoch)
	default:
		e.early[epoch] = append(e.early[epoch], earlyFrame{from, frame})
	}
}

// receive handles a frame of the active epoch. What a peer gets wrong is
// logged and left out.
func (e *Engine) receive(from locks.NodeID, b []byte) {
	f, err := decodeFrame(b, e.o.Algorithms, len(e.view.Members))
	if err != nil {
		e.o.Log.Error("malformed lock message: dropped", "peer", from, "err", err)
		return
	}
	switch f.kind {
	case frameMachine:
		if e.heldUp(f.key, from, b) {
			return
		}
		en := e.entry(f.key, "", f.algorithm)
		if en.alg.Name != f.algorithm && e.giveUp(en) {
			en = e.entry(f.key, "", f.algorithm)
		}
		if en.alg.Name != f.algorithm {
			// A hard link that was made elsewhere, under another rule.
			e.o.Log.Error("a member serves a file by another algorithm: its message is refused",
				"peer", from, "key", f.key.String(), "path", en.path, "theirs", f.algorithm, "ours", en.alg.Name)
			e.o.Transport.Send(e.view.Epoch, from, otherFrame(f.key, en.alg.Name))
			return
		}
		en.messages++
		if e.step(en, func(turn *locks.Turn) { err = en.machine.Receive(from, f.msg, turn) }) {
			e.gaveAway(en)
		}
		if err != nil {
			e.o.Log.Error("lock message against the protocol: dropped", "peer", from, "key", f.key.String(),
				"message", f.msg.String(), "err", err)
		}
		if len(en.tickets) == 0 && !e.drop(en) {
			e.settle(en)
		}
	case frameQuery:
		if e.heldUp(f.key, from, b) {
			return
		}
		e.answer(from, f)
	case frameHolders:
		if q := e.queries[f.id]; q != nil {
			e.answered(q, from, f.conflicts)
		}
	case frameProbe:
		e.receiveProbe(probe{f.id, f.path})
	case frameCycle, frameConfirm:
		e.receiveCycle(f.kind, from, f.id, f.path)
	case frameLifted:
		e.receiveLifted(from, f.key)
	case frameDamaged:
		e.receiveDamage(from, f.key, int(f.origin), f.id)
	case frameOther:
		e.receiveOther(from, f.key, f.algorithm)
	case frameConfirmed:
		e.receiveConfirmed(from, f.id, f.ok)
	case frameWant, frameRefuse, frameDelegate, frameRecall, frameReturn:
		if err := e.receiveDelegation(from, &f); err != nil {
			e.o.Log.Error("message about a delegation against the protocol: dropped", "peer", from, "err", err)
		}
	}
}

var errOther = errors.New("another algorithm")

// receiveOther: a member serves k by another algorithm, so that what waits here
// would wait for ever. Two names of one file have different rules.
func (e *Engine) receiveOther(from locks.NodeID, k locks.Key, theirs string) {
	en := e.entries[k]
	if en == nil || en.alg.Name == theirs {
		return
	}
	err := fmt.Errorf("%w: %w: %s uses the file by a name whose rule says %s, here it says %s: names of one file must have one rule",
		locks.ErrUnavailable, errOther, from, theirs, en.alg.Name)
	for _, t := range e.waitingTickets() {
		if _, waits := e.waiters[t]; waits && t.entry == en {
			e.withdraw(t, err, err.Error())
		}
	}
}
