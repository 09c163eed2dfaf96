package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"dmxfs/locks"
)

// A file gets another algorithm when the rules change, which they do with a new
// epoch. Within an epoch the algorithm of a key is the same on all members:
//
//   - What is held when the rules change is told to all by State, also where
//     the machine has nothing to tell (a reader of rw is silent), together
//     with the path, and all members draw the same conclusion from it.
//   - If the path has the same algorithm as before, the key keeps it until the
//     next epoch (Engine.pinned), also where it is known by another path: by
//     one from before a directory was renamed elsewhere.
//   - If not, new machines are made everywhere, and what waits asks them. What
//     is held stays held, beside the machines: it may be what the new algorithm
//     would never grant together, as two readers are. As long as there is any
//     of it, on whatever member, no machine of the key grants anything (barrier,
//     by Turn.MayEnter). Who has given up the last of it tells all (frameLifted).
//
// While a node is in a barrier, all that it holds of the key is from before
// the change: no machine knows of it.

// NewRules is called when Rule answers otherwise than at the last epoch: after
// Freeze, before State.
func (e *Engine) NewRules() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.newRules = true
}

// tells reports whether the others must know of what en holds.
func (e *Engine) tells(en *entry) bool {
	return en.holds() && (e.newRules || e.pinned[en.key] != "" || len(en.barrier) > 0)
}

// verdict is what the members conclude of a key that some told of.
type verdict struct {
	alg *locks.Algorithm
	// states for Restore; nil if the algorithm is a new one.
	states map[locks.NodeID][]byte
	// barrier are the members that hold by an algorithm before this one.
	barrier map[locks.NodeID]bool
	held    bool
}

// judge draws the conclusions from what all members told. It is the same on
// all of them.
// REQUIRES: e.mu held. It lets go of it in between, as adopt does.
func (e *Engine) judge(told map[locks.NodeID][]keyState) map[locks.Key]*verdict {
	type voice struct {
		node locks.NodeID
		keyState
	}
	voices := map[locks.Key][]voice{}
	for _, n := range slices.Sorted(maps.Keys(told)) {
		for _, ks := range told[n] {
			voices[ks.key] = append(voices[ks.key], voice{n, ks})
			e.mu.breathe()
		}
	}
	out := map[locks.Key]*verdict{}
	for k, vs := range voices {
		e.mu.breathe()
		var now, want []string
		for _, v := range vs {
			now = append(now, v.algorithm)
			if v.path != "" {
				want = append(want, e.o.Rule(v.path))
			}
		}
		if len(want) == 0 {
			want = now
		}
		v := &verdict{alg: e.strictest(want), states: map[locks.NodeID][]byte{}, barrier: map[locks.NodeID]bool{}}
		for _, x := range vs {
			// A member that has missed the epochs since a change says what it
			// says by the algorithm of then; the others need not do so.
			same := x.algorithm == v.alg.Name
			v.held = v.held || x.held
			if x.lifting || x.held && !same {
				v.barrier[x.node] = true
			}
			if len(x.state) > 0 && same {
				v.states[x.node] = x.state
			}
		}
		out[k] = v
	}
	return out
}

// strictest picks one of several names of algorithms: members that know a file
// by paths with different rules (by a directory's old name, or by hard links
// that were made elsewhere) must agree on one.
func (e *Engine) strictest(names []string) *locks.Algorithm {
	var best *locks.Algorithm
	for _, n := range names {
		a := e.o.Algorithms[n]
		if a == nil {
			continue
		}
		if best == nil || best.Shared && !a.Shared || best.Shared == a.Shared && cmp.Less(a.Name, best.Name) {
			best = a
		}
	}
	return best
}

// adopt makes the entries what the verdicts say, and those of keys of which
// nobody told what the rules say. The machines are restored after that.
func (e *Engine) adopt(verdicts map[locks.Key]*verdict) error {
	clear(e.pinned)
	// In one order, so that a run can be repeated.
	for _, k := range e.inOrder(verdicts) {
		e.mu.breathe()
		v := verdicts[k]
		if v.alg == nil {
			return fmt.Errorf("%v is served by an algorithm that this version does not have", k)
		}
		if v.held {
			e.pinned[k] = v.alg.Name
		}
		en, self := e.entry(k, "", v.alg.Name), e.view.Self
		if en.alg != v.alg && en.holds() && !v.barrier[self] {
			// Two names of one file with different rules, made behind the
			// back of all mounts: the others know nothing of this holder.
			e.o.Log.Error("a file is held here by a name whose rule is another one than by its name elsewhere: it is not kept apart",
				"key", k.String(), "path", en.path, "here", en.alg.Name, "elsewhere", v.alg.Name)
			v.barrier[self] = true
		}
		if en.alg != v.alg || v.barrier[self] && !e.beside(en) {
			e.convert(en, v.alg)
		}
		en.barrier = v.barrier
	}
	for _, en := range e.snapshot() {
		e.mu.breathe()
		if verdicts[en.key] != nil || e.entries[en.key] != en {
			continue
		}
		en.barrier = nil
		switch {
		case len(en.tickets) == 0 && !en.dirty:
			e.forget(en) // its algorithm may be that of a path which is out of date
		case !e.newRules:
		case !en.holds():
			alg := e.o.Algorithms[e.o.Rule(en.path)]
			if alg == nil {
				return fmt.Errorf("the rule of %q names an unknown algorithm", en.path)
			}
			if en.alg != alg {
				e.convert(en, alg)
			}
		default:
			return fmt.Errorf("%v is held here, but was not told of", en.key)
		}
	}
	return nil
}

// inOrder lists the keys of verdicts.
// REQUIRES: e.mu held. It lets go of it meanwhile.
func (e *Engine) inOrder(verdicts map[locks.Key]*verdict) []locks.Key {
	e.mu.Unlock()
	defer e.mu.Lock()
	return slices.SortedFunc(maps.Keys(verdicts), locks.Key.Compare)
}

// convert gives en a new machine. What is held stays beside it; what waits
// asks the new one.
func (e *Engine) convert(en *entry, alg *locks.Algorithm) {
	floor := max(e.floor, en.machine.Token())
	en.alg = alg
	en.machine = alg.New(locks.Config{Key: en.key, View: e.view, Token: floor, Seed: e.id(), Breathe: e.breathe})
	en.machine.State() // as the contract of State wants it
	for _, t := range en.sortedTickets() {
		if !t.held && t.asks {
			t.stamp = locks.Stamp{}
			e.acquire(t)
		}
	}
	e.openGate(en)
}

// forget drops an entry without tickets.
func (e *Engine) forget(en *entry) {
	e.floor = max(e.floor, en.machine.Token())
	if en.idle != nil {
		e.idle.Remove(en.idle)
		en.idle = nil
	}
	delete(e.entries, en.key)
}

func (en *entry) holds() bool { return en.held > 0 }

// beside reports whether what is held here is held beside the machine.
func (e *Engine) beside(en *entry) bool { return e.view != nil && en.barrier[e.view.Self] }

// replace is Machine.Replace for what the machine knows of.
func (e *Engine) replace(en *entry, old []locks.TicketID, parts []locks.Part) {
	en.gave = true
	if e.beside(en) {
		e.lift(en)
		return
	}
	if e.step(en, func(turn *locks.Turn) { en.machine.Replace(old, parts, turn) }) {
		e.gaveAway(en)
	}
}

// lift ends this node's part in a barrier if it holds nothing any more.
func (e *Engine) lift(en *entry) {
	if e.phase < restoring || !e.beside(en) || en.holds() {
		return // between two epochs: the next one looks again
	}
	delete(en.barrier, e.view.Self)
	var letters []letter
	for _, m := range e.view.Members {
		if m != e.view.Self {
			letters = append(letters, letter{m, liftedFrame(en.key)})
		}
	}
	en.messages += len(letters)
	e.queue(en, en.dirty, letters)
	e.lifted(en)
}

// receiveLifted: a member holds nothing of k any more from before the change
// of its algorithm. It may have written until now; but nothing was granted
// since the epoch began, so the next grant renews what is cached in any case.
func (e *Engine) receiveLifted(from locks.NodeID, k locks.Key) {
	en := e.entries[k]
	if en == nil || !en.barrier[from] {
		return
	}
	en.messages++
	delete(en.barrier, from)
	e.lifted(en)
	if len(en.tickets) == 0 && !e.drop(en) {
		e.settle(en)
	}
}

// lifted lets the machine grant, if nothing from before is held anywhere.
func (e *Engine) lifted(en *entry) {
	if len(en.barrier) == 0 {
		e.step(en, func(turn *locks.Turn) { en.machine.Resume(turn) })
	}
}

var errBarrier = fmt.Errorf("%w: it is held from before the rules were changed", locks.ErrWouldBlock)

// alongside answers, while there is a barrier, what no machine will: a try;
// and a request of somebody who holds something from before the change, which
// would wait for that to be given up. If nobody else holds any, it is granted.
// If others do, fcntl is told that it would be a deadlock; an open waits until
// the other open files of its process are closed, or give way.
func (e *Engine) alongside(en *entry, req *request) (*ticket, error) {
	if len(en.barrier) == 0 || e.phase != active || !e.o.Live(0) {
		return nil, nil
	}
	mine, others := false, len(en.barrier) > 1 || !e.beside(en)
	token := locks.Token(0)
	for _, t := range en.tickets {
		switch {
		case !t.held:
		case t.req.Owner == req.Owner || en.handles != nil && t.req.Program.SameProcess(&req.Program):
			mine = true
			token = max(token, t.token)
		default:
			others = true
		}
	}
	if mine && !others {
		t := e.newTicket(en, req)
		e.decided(en, locks.Outcome{Ticket: t.ID, Granted: true, Token: token})
		return t, nil
	}
	var err error
	switch {
	case req.Try:
		err = errBarrier
	case mine && en.handles == nil:
		err = fmt.Errorf("%w: others hold it, too, from before the rules were changed", locks.ErrDeadlock)
	default:
		return nil, nil
	}
	e.record(Denied, en, req, event{rng: req.Range, reason: err.Error(), final: true})
	e.settle(en)
	return nil, err
}

// blockers is Machine.Blockers, and what is held from before a change.
func (e *Engine) blockers(t *ticket, most int) (local []locks.TicketID, remote []locks.NodeID) {
	if !t.asks {
		return nil, nil
	}
	en := t.entry
	local, remote = en.machine.Blockers(t.ID, most)
	for _, n := range slices.Sorted(maps.Keys(en.barrier)) {
		switch {
		case n == e.view.Self:
			local = en.holding(local, most)
		case !slices.Contains(remote, n):
			remote = append(remote, n)
		}
	}
	return local, remote
}

// holding adds tickets that are held to ids, which are most then.
func (en *entry) holding(ids []locks.TicketID, most int) []locks.TicketID {
	if len(ids) >= most {
		return ids
	}
	for _, t := range en.tickets {
		if t.held && !slices.Contains(ids, t.ID) {
			if ids = append(ids, t.ID); len(ids) == most {
				break
			}
		}
	}
	return ids
}

// suspects is Machine.Suspects, and who holds from before a change.
func (e *Engine) suspects(en *entry, m locks.Mode, r locks.Range) []locks.NodeID {
	who := en.machine.Suspects(m, r)
	for _, n := range slices.Sorted(maps.Keys(en.barrier)) {
		if n != e.view.Self && !slices.Contains(who, n) {
			who = append(who, n)
		}
	}
	return who
}
