package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// A file gets another algorithm when the rules change, which they do with a new
// epoch. Within an epoch the algorithm of a key is the same on all members:
//
//   - What is held when the rules change is told to all by State, also where
//     the machine has nothing to tell (a reader of rw is silent), together
//     with the path, and all members draw the same conclusion from it.
//   - If the path has the same algorithm as before, the key keeps it until the
//     next epoch (entries.pinned), also where it is known by another path: by
//     one from before a directory was renamed elsewhere.
//   - If not, new machines are made everywhere, and what waits asks them. What
//     is held stays held, beside the machines: it may be what the new algorithm
//     would never grant together, as two readers are. As long as there is any
//     of it, on whatever member, no machine of the key grants anything (barrier,
//     by Turn.MayEnter). Who has given up the last of it tells all (frameLifted).
//
// While a node is in a barrier, all that it holds of the key is from before
// the change: no machine knows of it.

// rulesChanged is [Engine.NewRules].
func (ep *epochs) rulesChanged() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.newRules = true
}

// tells reports whether the others must know of what en holds.
func (ep *epochs) tells(en *entry) bool {
	return en.holds() && (ep.newRules || ep.entries.pinned[en.key] != "" || len(en.barrier) > 0)
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
// REQUIRES: mu held. It lets go of it in between, as adopt does.
func (ep *epochs) judge(told map[locks.NodeID][]keyState) map[locks.Key]*verdict {
	type voice struct {
		node locks.NodeID
		keyState
	}
	voices := map[locks.Key][]voice{}
	for _, n := range slices.Sorted(maps.Keys(told)) {
		for _, ks := range told[n] {
			voices[ks.key] = append(voices[ks.key], voice{n, ks})
			ep.mu.breathe()
		}
	}
	out := map[locks.Key]*verdict{}
	for k, vs := range voices {
		ep.mu.breathe()
		var now, want []string
		for _, v := range vs {
			now = append(now, v.algorithm)
			if v.path != "" {
				want = append(want, ep.o.Rule(v.path))
			}
		}
		if len(want) == 0 {
			want = now
		}
		v := &verdict{alg: ep.strictest(want), states: map[locks.NodeID][]byte{}, barrier: map[locks.NodeID]bool{}}
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
func (ep *epochs) strictest(names []string) *locks.Algorithm {
	var best *locks.Algorithm
	for _, n := range names {
		a := ep.o.Algorithms[n]
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
func (ep *epochs) adopt(verdicts map[locks.Key]*verdict) error {
	ep.entries.unpin()
	// In one order, so that a run can be repeated.
	for _, k := range ep.inOrder(verdicts) {
		ep.mu.breathe()
		v := verdicts[k]
		if v.alg == nil {
			return fmt.Errorf("%v is served by an algorithm that this version does not have", k)
		}
		if v.held {
			ep.entries.pin(k, v.alg.Name)
		}
		en, self := ep.entries.entry(k, "", v.alg.Name), ep.view.Self
		if en.alg != v.alg && en.holds() && !v.barrier[self] {
			// Two names of one file with different rules, made behind the
			// back of all mounts: the others know nothing of this holder.
			ep.o.Log.Error("two names of a file have rules with different algorithms: what is locked by the one here does not exclude those who lock by the other; give both names one rule",
				"key", k.String(), "path", en.path, "here", en.alg.Name, "elsewhere", v.alg.Name)
			v.barrier[self] = true
		}
		if en.alg != v.alg || v.barrier[self] && !ep.beside(en) {
			ep.convert(en, v.alg, v.barrier)
		}
		en.barrier = v.barrier
	}
	for _, en := range ep.entries.snapshot() {
		ep.mu.breathe()
		if verdicts[en.key] != nil || ep.entries.all[en.key] != en {
			continue
		}
		en.barrier = nil
		switch {
		case len(en.tickets) == 0 && !en.dirty:
			ep.entries.forget(en) // its algorithm may be that of a path which is out of date
		case !ep.newRules:
		case !en.holds():
			alg := ep.o.Algorithms[ep.o.Rule(en.path)]
			if alg == nil {
				return fmt.Errorf("the rule of %q names an unknown algorithm", en.path)
			}
			if en.alg != alg {
				ep.convert(en, alg, nil)
			}
		default:
			return fmt.Errorf("%v is held here, but was not told of", en.key)
		}
	}
	return nil
}

// inOrder lists the keys of verdicts.
// REQUIRES: mu held. It lets go of it meanwhile.
func (ep *epochs) inOrder(verdicts map[locks.Key]*verdict) []locks.Key {
	ep.mu.Unlock()
	defer ep.mu.Lock()
	return slices.SortedFunc(maps.Keys(verdicts), locks.Key.Compare)
}

// convert gives en a new machine, of an epoch with that barrier. What is held stays
// beside it; what waits asks the new one.
func (ep *epochs) convert(en *entry, alg *locks.Algorithm, barrier map[locks.NodeID]bool) {
	floor := max(ep.entries.floor, en.machine.Token())
	// Only those who ask by now: what one is granted may open the gate for others,
	// who have asked the new machine then.
	asking := slices.DeleteFunc(en.sortedTickets(), func(t *ticket) bool { return t.held || !t.asks })
	// The ledger never has a stamp of the one machine beside the other one, nor a
	// machine as that of what it does not know of.
	for _, t := range asking {
		t.own().stamp, t.asks = locks.Stamp{}, false
		ep.ledger.changes(t)
	}
	en.alg, en.barrier = alg, barrier
	en.machine = alg.New(locks.Config{Key: en.key, View: ep.view, Token: floor, Seed: ep.id(), Breathe: ep.breathe})
	en.machine.State() // as the contract of State wants it
	for _, t := range asking {
		if !t.asks {
			ep.stepper.acquire(t)
		}
	}
	ep.stepper.openGate(en)
}

var errBarrier = fmt.Errorf("%w: it is held from before the rules were changed", locks.ErrWouldBlock)
