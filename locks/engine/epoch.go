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
	for first := true; ; first = false {
		if e.phase == active {
			return nil // the epoch that this was for is over
		}
		var todo []locks.Key
		for _, en := range e.sorted() {
			// Of a file that is held for writing, ranges that are not held go
			// to others with this epoch: the first time, and again if some of
			// it was given up while this was going on. What is held to the
			// end can still be written, and is handed over later.
			if en.dirty && (first || en.gave || !en.holdsWrite()) {
				en.dirty, en.gave = en.holdsWrite(), false
				todo = append(todo, en.key)
			}
		}
		if len(todo) == 0 && e.flushing == 0 {
			break
		}
		if len(todo) == 0 {
			e.flushed.Wait()
			continue
		}
		e.flushing++
		e.mu.Unlock()
		e.flushAll(todo)
		e.mu.Lock()
		e.flushing--
		e.flushed.Broadcast()
	}
	if e.phase == active {
		return nil // the epoch that this was for is over: another one has begun meanwhile
	}
	e.stated = true
	return e.encodeState()
}

// Install begins to collect what the members of v say by Sync.
func (e *Engine) Install(v *locks.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == outside {
		e.stated = false
	}
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
func (e *Engine) restore() error {
	verdicts := e.judge(e.sync.told)
	if err := e.adopt(verdicts); err != nil {
		return err
	}
	e.phase, e.sync, e.stated, e.newRules = active, nil, false, false
	e.began = e.Moment()
	e.clean.clear()
	e.sendDamage()
	for _, en := range e.sorted() {
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
	}
	frames := e.early[e.view.Epoch]
	delete(e.early, e.view.Epoch)
	for _, f := range frames {
		e.receive(f.from, f.frame)
	}
	for _, id := range slices.Sorted(maps.Keys(e.queries)) {
		e.ask(e.queries[id])
	}
	e.broadcast()
	e.wake()
	return nil
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
	var lost []LostLock
	for _, en := range e.sorted() {
		en.outbox = nil
		e.forgetClosing(en)
		for _, t := range en.sortedTickets() {
			if e.left.Load() {
				continue // it is in the journal as released
			}
			lost = append(lost, LostLock{en.key, en.path, t.Mode, t.Range, t.held, t.req.Program})
			t.req.pieces--
			e.record(Lost, en, t.req, event{rng: t.Range, reason: reason, token: t.token, final: t.req.pieces == 0})
			if _, waits := e.waiters[t]; waits {
				e.endWait(t)
				t.err = fmt.Errorf("%w: %s", locks.ErrLost, reason)
				if t.done != nil {
					close(t.done)
				}
			}
		}
	}
	clear(e.entries)
	clear(e.usage)
	clear(e.pinned)
	e.idle.Init()
	e.askingBack = nil
	e.clean.clear()
	e.places.clear()
	e.early = early{}
	e.restartQueries()
	e.broadcast()
	e.mu.Unlock()
	e.o.Files.Expelled()
	return lost
}
