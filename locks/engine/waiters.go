package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// Who waits, and what a waiter holds elsewhere, is looked up by the probes for
// deadlocks. A thousand that wait for a thousand holders are a million pairs, of
// which those are of interest in which the holder waits, too: mostly none. So
// the engine knows the waiters by thread and by owner, an entry knows the
// threads that hold something of it, and the shorter list is looked up in the
// longer one.

// waiters are the tickets that wait; threads and owners are those of them that
// wait for long enough to be part of a deadlock, by who waits.
type waiters struct {
	all     map[*ticket]struct{}
	threads map[locks.Thread][]*ticket
	owners  map[locks.OwnerID][]*ticket // in class Posix
	serial  uint64                      // of the last that was parked
}

func newWaiters() *waiters {
	return &waiters{all: map[*ticket]struct{}{}, threads: map[locks.Thread][]*ticket{}, owners: map[locks.OwnerID][]*ticket{}}
}

func (w *waiters) add(t *ticket) {
	w.all[t] = struct{}{}
	if t.entry.waits == nil {
		t.entry.waits = map[locks.HandleID]int{}
	}
	t.entry.waits[t.Handle]++
}

// has reports whether t still waits.
func (w *waiters) has(t *ticket) bool {
	_, waits := w.all[t]
	return waits
}

// sorted lists the tickets that wait, the oldest first.
func (w *waiters) sorted() []*ticket {
	ts := slices.Collect(maps.Keys(w.all))
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	return ts
}

// end is called when t is decided, or withdrawn.
func (w *waiters) end(t *ticket) {
	delete(w.all, t)
	w.unpark(t)
	if n := t.entry.waits[t.Handle] - 1; n > 0 {
		t.entry.waits[t.Handle] = n
	} else {
		delete(t.entry.waits, t.Handle)
	}
}

// park is called when the program of t begins to wait. A try never waits for long.
func (w *waiters) park(t *ticket) {
	if t.req.Try {
		return
	}
	t.parked = true
	w.serial++
	if t.entry.parked == nil {
		t.entry.parked = map[*ticket]struct{}{}
	}
	t.entry.parked[t] = struct{}{}
	if th := t.req.Program.Thread(); th != (locks.Thread{}) {
		w.threads[th] = append(w.threads[th], t)
	}
	if t.entry.key.Class == locks.Posix {
		w.owners[t.req.Owner] = append(w.owners[t.req.Owner], t)
	}
}

func (w *waiters) unpark(t *ticket) {
	if !t.parked {
		return
	}
	t.parked = false
	delete(t.entry.parked, t)
	if th := t.req.Program.Thread(); th != (locks.Thread{}) {
		without(w.threads, th, t)
	}
	if t.entry.key.Class == locks.Posix {
		without(w.owners, t.req.Owner, t)
	}
}

func without[K comparable](m map[K][]*ticket, k K, t *ticket) {
	ts := m[k]
	if i := slices.Index(ts, t); i >= 0 {
		ts = slices.Delete(ts, i, i+1)
	}
	if len(ts) == 0 {
		delete(m, k)
	} else {
		m[k] = ts
	}
}

// candidates are the tickets that waited a moment ago behind something that is
// held of en, in the order of their IDs. It is the same list, without another
// look, until another one begins to wait or to hold.
func (w *waiters) candidates(en *entry) []*ticket {
	if c := &en.behind; c.serial == en.serial && c.parked == w.serial {
		return c.tickets
	}
	var ws []*ticket
	ws = common(ws, w.threads, en.takers)
	if en.key.Class == locks.Posix {
		ws = common(ws, w.owners, en.owners)
	}
	slices.SortFunc(ws, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	en.behind = behind{slices.Compact(ws), en.serial, w.serial}
	return en.behind.tickets
}

// behind is a list of candidates, and of when.
type behind struct {
	tickets        []*ticket
	serial, parked uint64
}

// common adds the lists in m whose keys o has as well.
func common[K comparable, V any](ws []*ticket, m map[K][]*ticket, o map[K]V) []*ticket {
	if len(m) <= len(o) {
		for k, ts := range m {
			if _, ok := o[k]; ok {
				ws = append(ws, ts...)
			}
		}
		return ws
	}
	for k := range o {
		ws = append(ws, m[k]...)
	}
	return ws
}

// waitsBehind reports whether the waiting of w keeps b from being given up: the
// thread that took b waits, or its process, by fcntl for fcntl.
func waitsBehind(w, b *ticket) bool {
	if w.req.Try {
		return false
	}
	th := w.req.Program.Thread()
	return th != (locks.Thread{}) && th == b.req.Program.Thread() ||
		w.entry.key.Class == locks.Posix && b.entry.key.Class == locks.Posix && w.req.Owner == b.req.Owner
}

// keeps is something that is held of en, stands in the way of mode on r, is not
// of the owner except, and is not given up as long as w waits; or nil.
func (en *entry) keeps(w *ticket, mode locks.Mode, r locks.Range, except *locks.OwnerID) *ticket {
	if w.entry.key.Class == locks.Posix && en.key.Class == locks.Posix && (except == nil || *except != w.req.Owner) {
		if o := en.owners[w.req.Owner]; o != nil {
			for b := range en.inWay(o, mode, r) {
				return b
			}
		}
	}
	th := w.req.Program.Thread()
	if th == (locks.Thread{}) {
		return nil
	}
	var found *ticket
	for id := range en.takers[th].all() {
		var b *ticket
		if en.isOpen() {
			b = en.handles[locks.HandleID(id)]
			if b != nil && (except != nil && *except == b.req.Owner || !en.stands(b, mode, r)) {
				b = nil
			}
		} else if o := en.owners[locks.OwnerID(id)]; o != nil && (except == nil || *except != o.id) {
			b = en.taken(o, th, mode, r)
		}
		if b != nil && (found == nil || b.ID < found.ID) {
			found = b
		}
	}
	return found
}

// taken is something that o holds, that th took, and that stands in the way of
// mode on r; or nil.
func (en *entry) taken(o *owner, th locks.Thread, mode locks.Mode, r locks.Range) *ticket {
	for b := range en.inWay(o, mode, r) {
		if b.req.Program.Thread() == th {
			return b
		}
	}
	return nil
}
