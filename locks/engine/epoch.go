package engine

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// epochs takes the node from one view to the next.
type epochs struct {
	*base
	alarm     *alarm
	journal   *journal
	ledger    *ledger
	quota     *quota
	waiters   *waiters
	entries   *entries
	damages   *damages
	outboxes  *outboxes
	stepper   *stepper
	barriers  *barriers
	askBacks  *askBacks
	queries   *queries
	tickets   *tickets
	lent      *lent
	borrowed  *borrowed
	deadlocks *detector
	closings  *closings
	inbox     *inbox

	sync *syncing // nil: no epoch is coming
}

// syncing is what is known of a new epoch before it is restored.
type syncing struct {
	told map[locks.NodeID][]keyState
}

// early keeps frames of epochs that are not active yet, in order of arrival.
type early map[locks.Epoch][]earlyFrame

type earlyFrame struct {
	from  locks.NodeID
	frame []byte
}

// freeze is [Engine.Freeze].
func (ep *epochs) freeze() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.phase == outside && ep.view == nil {
		ep.sync = nil
		return
	}
	if !ep.bequeathed {
		ep.stop()
	}
}

// stop ends the epoch.
// REQUIRES: mu held. It lets go of it in between.
func (ep *epochs) stop() {
	ep.phase, ep.sync, ep.stated = frozen, nil, false
	ep.askBacks.forget()
	for _, en := range ep.entries.all {
		for _, p := range en.outbox {
			en.dirty = en.dirty || p.flush
		}
		en.outbox = nil
		ep.closings.forget(en)
		ep.mu.breathe() // nothing is granted or sent any more
	}
	ep.deadlocks.forget()
	ep.queries.restart()
}

// state is [Engine.State].
func (ep *epochs) state() []byte {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.phase >= restoring || ep.bequeathed {
		return nil // the epoch that this was for is over, or is for the successor
	}
	ep.stated = true         // machines that are made from now on say nothing at once
	ep.outboxes.beginFlush() // a call for a later epoch waits for this one
	var said statement
	var todo []*entry
	for _, en := range ep.entries.snapshot() {
		if ep.phase >= restoring {
			break
		}
		if ep.entries.all[en.key] != en {
			continue // it had nothing to say
		}
		state, tells, beside := en.machine.State(), ep.tells(en), ep.beside(en)
		said.add(en, state, tells && !beside, tells && beside)
		// What is given up from now on is said to be held, and what is held can
		// still be written; both are handed over later. What is not held any more
		// others may see soon. But for a node that leaves: nothing stays its own.
		if en.dirty && (ep.sync == nil || !ep.keepsAll(en)) {
			en.dirty, en.gave = en.holdsWrite(), false
			en.writing++
			todo = append(todo, en)
		}
		ep.mu.breathe()
	}
	for len(todo) > 0 {
		ep.writeOut(todo)
		// Nevertheless, what is given up meanwhile goes out as well, as this node
		// may be about to leave.
		todo = slices.DeleteFunc(todo, func(en *entry) bool {
			ep.mu.breathe()
			if ep.phase >= restoring || ep.entries.all[en.key] != en || !en.dirty || !en.gave && en.holdsWrite() {
				en.writing--
				ep.ledger.written(en)
				return true
			}
			en.dirty, en.gave = en.holdsWrite(), false
			return false
		})
	}
	ep.outboxes.endFlush()
	ep.outboxes.awaitFlushes()
	if ep.phase >= restoring || ep.bequeathed {
		return nil // another epoch has begun meanwhile
	}
	return said.bytes()
}

// keepsAll reports whether nobody else can be let in to any byte of en before this node
// lets them in: then what was written under it goes out when that happens, however long ago
// it was written. That some of it is held for writing is not enough: what was written under
// the rest, which is held no more, others see when the epoch begins.
func (ep *epochs) keepsAll(en *entry) bool {
	switch {
	case len(en.barrier) > 0:
		return false // by an algorithm before this one others may hold it as well
	case !en.alg.Shared:
		return en.held > 0
	case en.written == 0 || en.written > 1 && en.key.Class != locks.Open: // of one owner pieces are joined
		return false
	}
	for _, t := range en.tickets {
		if t.held && t.Mode == locks.Write && t.Range == locks.Whole {
			return true
		}
	}
	return false
}

// writeOut writes out the files of todo.
// REQUIRES: mu held. It lets go of it in between.
func (ep *epochs) writeOut(todo []*entry) {
	ks := make([]locks.Key, len(todo))
	for i, en := range todo {
		ks[i] = en.key
		ep.mu.breathe()
	}
	ep.mu.Unlock()
	ep.outboxes.flushAll(ks)
	ep.mu.Lock()
}

// install is [Engine.Install].
func (ep *epochs) install(v *locks.View) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.bequeathed {
		return // its successor goes on
	}
	ep.rename(v.Self)
	// A machine that is made from now on, also of what others tell of, says nothing
	// before it is restored, which comes to one after the other.
	ep.stated = true
	ep.phase = frozen
	ep.borrowed.reset()
	ep.lent.reset()
	ep.view = v
	ep.sync = &syncing{told: map[locks.NodeID][]keyState{}}
	ep.ledger.begin()
	ep.ledger.renewSoon()
	ep.inbox.forget(v.Epoch)
}

// rename: the epoch that begins names this node self. One that has taken over the
// locks of another process went by the name of that until now.
func (ep *epochs) rename(self locks.NodeID) {
	if ep.view == nil || ep.view.Self == self {
		return
	}
	for _, en := range ep.entries.all {
		if ep.beside(en) {
			en.barrier = map[locks.NodeID]bool{self: true}
		}
	}
}

// collect is [Engine.Sync].
func (ep *epochs) collect(from locks.NodeID, epoch locks.Epoch, state []byte) error {
	told, err := decodeState(state, ep.o.Algorithms)
	if err != nil {
		return fmt.Errorf("state of %s at epoch %d: %w", from, epoch, err)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.bequeathed || ep.sync == nil || ep.view.Epoch != epoch || ep.view.Index(from) < 0 {
		return nil // of an epoch that is over, or restored
	}
	if _, again := ep.sync.told[from]; again {
		return nil
	}
	ep.sync.told[from] = told
	if len(ep.sync.told) < len(ep.view.Members) {
		return nil
	}
	return ep.restore()
}

// restore begins the epoch of e.view with what all its members told. If that ends
// meanwhile it stays ended: what is left is for the next one.
// REQUIRES: mu held. It lets go of it in between.
func (ep *epochs) restore() error {
	s, v := ep.sync, ep.view
	verdicts := ep.judge(s.told)
	if ep.sync != s {
		return nil
	}
	if err := ep.adopt(verdicts); err != nil || ep.sync != s {
		return err
	}
	ep.phase, ep.sync, ep.stated, ep.newRules = restoring, nil, false, false
	ep.entries.clean.clear()
	ep.damages.begin()
	// What is made from now on begins in the new epoch.
	for _, en := range ep.entries.snapshot() {
		if ep.entries.all[en.key] != en {
			continue
		}
		en.stale++
		var states map[locks.NodeID][]byte
		if told := verdicts[en.key]; told != nil {
			states = told.states
		}
		var err error
		ep.stepper.step(en, func(turn *locks.Turn) { err = en.machine.Restore(v, states, turn) })
		if ep.phase != restoring || ep.view != v {
			return nil
		}
		ep.ledger.sync(en)
		if err != nil {
			ep.phase = frozen
			return fmt.Errorf("restore %v: %w", en.key, err)
		}
		ep.barriers.lift(en)  // it may have been given up since it was told of
		ep.entries.settle(en) // what kept it from being dropped may be gone
		if ep.mu.breathe() && (ep.phase != restoring || ep.view != v) {
			return nil
		}
	}
	ep.phase, ep.began = active, ep.Moment()
	ep.inbox.drain()
	ep.queries.askAgain()
	ep.broadcast()
	ep.alarm.wake()
	return nil
}

// LostLock tells of a lock or a wait that ended with a tenure.
type LostLock struct {
	Key     locks.Key
	Path    string
	Mode    locks.Mode
	Range   locks.Range
	Held    bool
	Program locks.Program
}

// expelled is [Engine.Expelled].
func (ep *epochs) expelled(reason string) []LostLock {
	ep.mu.Lock()
	if ep.bequeathed {
		ep.mu.Unlock()
		return nil // its successor finds out
	}
	ep.ledger.clear()
	ep.tenure.Add(1)
	ep.phase, ep.view, ep.sync = outside, nil, nil
	ep.borrowed.reset()
	ep.lent.reset()
	for _, t := range ep.waiters.sorted() {
		ep.waiters.end(t)
		t.fail(fmt.Errorf("%w: %s", locks.ErrLost, reason))
	}
	entries, left := ep.entries.takeAll(), ep.left.Load()
	ep.quota.reset()
	ep.askBacks.clear()
	ep.tickets.places.clear()
	ep.inbox.clear()
	ep.deadlocks.forget()
	ep.queries.restart()
	for _, en := range entries {
		en.outbox = nil
		ep.closings.forget(en)
		ep.mu.breathe()
	}
	var lost []LostLock
	if !left { // else it is in the journal as released
		lost = ep.lost(entries, reason)
	}
	ep.broadcast()
	ep.mu.Unlock()
	ep.o.Files.Expelled()
	return lost
}

// lost journals what was lost of entries that are no more, and returns it.
// REQUIRES: mu held. It lets go of it in between.
func (ep *epochs) lost(entries map[locks.Key]*entry, reason string) []LostLock {
	found := newRows((*lostRow).compare)
	reqs := newRows(byKey)
	for _, en := range entries {
		for _, t := range en.tickets {
			found.add(lostRow{t.ID, LostLock{en.key, en.path, t.Mode, t.Range, t.held, t.req.Program}})
			reqs.add(t)
			ep.mu.breathe()
		}
		ep.mu.breathe()
	}
	ep.mu.Unlock()
	ts, lost := reqs.sorted(), lostOf(found)
	ep.mu.Lock()
	for _, t := range ts {
		t.req.pieces--
		ep.journal.record(Lost, t.entry, t.req, event{rng: t.Range, reason: reason, token: t.token, final: t.req.pieces == 0})
		ep.mu.breathe()
	}
	return lost
}
