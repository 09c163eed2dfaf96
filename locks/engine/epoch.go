package engine

import (
	"fmt"
	"maps"
	"slices"

	"dmxfs/locks"
)

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

// Freeze ends the epoch: from its return on nothing is granted and nothing
// sent until the next one is restored. It is called once more without harm.
func (e *Engine) Freeze() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == outside && e.view == nil {
		e.sync = nil
		return
	}
	e.phase, e.sync, e.stated = frozen, nil, false
	e.forgetAskingBack()
	for _, en := range e.entries {
		for _, p := range en.outbox {
			en.dirty = en.dirty || p.flush
		}
		en.outbox = nil
		e.forgetClosing(en)
		e.mu.breathe() // nothing is granted or sent any more
	}
	e.restartQueries()
}

// State is what the other members need to know of this node at the next
// epoch. It returns when all that was written here under locks can be read
// elsewhere: the permissions that guard it end with the epoch.
// Freeze must have been called; what else happens meanwhile, also that a later
// epoch begins, makes the result worthless, but does no harm.
func (e *Engine) State() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase >= restoring {
		return nil // the epoch that this was for is over
	}
	e.stated = true // machines that are made from now on say nothing at once
	e.flushing++    // a call for a later epoch waits for this one
	var said statement
	var todo []*entry
	for _, en := range e.snapshot() {
		if e.phase >= restoring {
			break
		}
		if e.entries[en.key] != en {
			continue // it had nothing to say
		}
		said.add(e, en)
		// What is given up from now on is said to be held, and what is held can
		// still be written; both are handed over later. What is not held any more
		// others may see soon.
		if en.dirty {
			en.dirty, en.gave = en.holdsWrite(), false
			todo = append(todo, en)
		}
		e.mu.breathe()
	}
	for len(todo) > 0 {
		e.writeOut(todo)
		// Nevertheless, what is given up meanwhile goes out as well, as this node
		// may be about to leave.
		todo = slices.DeleteFunc(todo, func(en *entry) bool {
			e.mu.breathe()
			if e.phase >= restoring || e.entries[en.key] != en || !en.dirty || !en.gave && en.holdsWrite() {
				return true
			}
			en.dirty, en.gave = en.holdsWrite(), false
			return false
		})
	}
	e.flushing--
	e.flushed.Broadcast()
	for e.flushing > 0 && e.phase < restoring {
		e.flushed.Wait() // for what was begun before
	}
	if e.phase >= restoring {
		return nil // another epoch has begun meanwhile
	}
	return said.bytes()
}

// writeOut writes out the files of todo.
// REQUIRES: e.mu held. It lets go of it in between.
func (e *Engine) writeOut(todo []*entry) {
	ks := make([]locks.Key, len(todo))
	for i, en := range todo {
		ks[i] = en.key
		e.mu.breathe()
	}
	e.mu.Unlock()
	e.flushAll(ks)
	e.mu.Lock()
}

// Install begins to collect what the members of v say by Sync.
func (e *Engine) Install(v *locks.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// A machine that is made from now on, also of what others tell of, says nothing
	// before it is restored, which comes to one after the other.
	e.stated = true
	e.phase = frozen
	e.deleg = delegations{}
	e.view = v
	e.sync = &syncing{told: map[locks.NodeID][]keyState{}}
	for ep := range e.early {
		if ep < v.Epoch {
			delete(e.early, ep)
		}
	}
}

// Sync is the State of one member for the epoch that is being installed; the
// node's own comes in the same way. When all are there the epoch is restored.
// It is safe to call it twice for one member. An error means that the state
// cannot be read: then this node must not go on.
func (e *Engine) Sync(from locks.NodeID, epoch locks.Epoch, state []byte) error {
	told, err := decodeState(state, e.o.Algorithms)
	if err != nil {
		return fmt.Errorf("state of %s at epoch %d: %w", from, epoch, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sync == nil || e.view.Epoch != epoch || e.view.Index(from) < 0 {
		return nil // of an epoch that is over, or restored
	}
	if _, again := e.sync.told[from]; again {
		return nil
	}
	e.sync.told[from] = told
	if len(e.sync.told) < len(e.view.Members) {
		return nil
	}
	return e.restore()
}

// restore begins the epoch of e.view with what all its members told.
// REQUIRES: e.mu held. It lets go of it in between.
func (e *Engine) restore() error {
	verdicts := e.judge(e.sync.told)
	if err := e.adopt(verdicts); err != nil {
		return err
	}
	e.phase, e.sync, e.stated, e.newRules = restoring, nil, false, false
	e.clean.clear()
	e.beginDamage()
	// What is made from now on begins in the new epoch.
	for _, en := range e.snapshot() {
		if e.entries[en.key] != en {
			continue
		}
		en.stale++
		var states map[locks.NodeID][]byte
		if v := verdicts[en.key]; v != nil {
			states = v.states
		}
		var err error
		e.step(en, func(turn *locks.Turn) { err = en.machine.Restore(e.view, states, turn) })
		if err != nil {
			e.phase = frozen
			return fmt.Errorf("restore %v: %w", en.key, err)
		}
		e.lift(en)   // it may have been given up since it was told of
		e.settle(en) // what kept it from being dropped may be gone
		e.mu.breathe()
	}
	e.phase, e.began = active, e.Moment()
	// What others send meanwhile comes behind what they have sent before.
	e.draining = true
	for epoch := e.view.Epoch; len(e.early[epoch]) > 0; e.mu.breathe() {
		f := e.early[epoch][0]
		e.early[epoch] = e.early[epoch][1:]
		e.receive(f.from, f.frame)
	}
	e.draining = false
	delete(e.early, e.view.Epoch)
	for _, id := range slices.Sorted(maps.Keys(e.queries)) {
		e.ask(e.queries[id])
	}
	e.broadcast()
	e.wake()
	return nil
}

// snapshot lists the entries that there are when it is called, and no others, as
// sorted does. Of many it lets go of e.mu meanwhile: some may be gone by then.
// REQUIRES: e.mu held.
func (e *Engine) snapshot() []*entry {
	if len(e.entries) <= maxAtOnce {
		return e.sorted()
	}
	ens, last := make([]*entry, 0, len(e.entries)), e.made
	for _, en := range e.entries {
		if en.made <= last {
			ens = append(ens, en)
		}
		e.mu.breathe()
	}
	e.mu.Unlock()
	slices.SortFunc(ens, func(a, b *entry) int { return a.key.Compare(b.key) })
	e.mu.Lock()
	return ens
}

// sorted lists the entries in the order of their keys, so that a run can be
// repeated.
func (e *Engine) sorted() []*entry {
	ens := make([]*entry, 0, len(e.entries))
	for _, en := range e.entries {
		ens = append(ens, en)
	}
	slices.SortFunc(ens, func(a, b *entry) int { return a.key.Compare(b.key) })
	return ens
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

// Expelled ends the tenure: the others went on without this node. Everything
// held is lost, every wait fails with ErrLost. The engine is outside until the
// next Install. It returns what was lost.
func (e *Engine) Expelled(reason string) []LostLock {
	e.mu.Lock()
	e.tenure.Add(1)
	e.phase, e.view, e.sync = outside, nil, nil
	e.deleg = delegations{}
	for _, t := range e.waitingTickets() {
		e.endWait(t)
		t.err = fmt.Errorf("%w: %s", locks.ErrLost, reason)
		if t.done != nil {
			close(t.done)
		}
	}
	entries, left := e.entries, e.left.Load()
	e.entries = map[locks.Key]*entry{}
	clear(e.usage)
	clear(e.pinned)
	e.idle.Init()
	e.askingBack = nil
	e.clean.clear()
	e.places.clear()
	e.early = early{}
	e.restartQueries()
	for _, en := range entries {
		en.outbox = nil
		e.forgetClosing(en)
		e.mu.breathe()
	}
	var lost []LostLock
	if !left { // else it is in the journal as released
		lost = e.lost(entries, reason)
	}
	e.broadcast()
	e.mu.Unlock()
	e.o.Files.Expelled()
	return lost
}

// lost journals what was lost of entries that are no more, and returns it.
// REQUIRES: e.mu held. It lets go of it in between.
func (e *Engine) lost(entries map[locks.Key]*entry, reason string) []LostLock {
	found := newRows((*lostRow).compare)
	reqs := newRows(byKey)
	for _, en := range entries {
		for _, t := range en.tickets {
			found.add(lostRow{t.ID, LostLock{en.key, en.path, t.Mode, t.Range, t.held, t.req.Program}})
			reqs.add(t)
			e.mu.breathe()
		}
		e.mu.breathe()
	}
	e.mu.Unlock()
	ts, lost := reqs.sorted(), lostOf(found)
	e.mu.Lock()
	for _, t := range ts {
		t.req.pieces--
		e.record(Lost, t.entry, t.req, event{rng: t.Range, reason: reason, token: t.token, final: t.req.pieces == 0})
		e.mu.breathe()
	}
	return lost
}
