package engine

import (
	"cmp"
	"slices"

	"dmxfs/locks"
)

// Who waits, and what a waiter holds elsewhere, is looked up by the chases for
// deadlocks. A thousand that wait for a thousand holders are a million pairs, of
// which those are of interest in which the holder waits, too: mostly none. So
// the engine knows the waiters by thread and by owner, an entry knows the
// threads that hold something of it, and the shorter list is looked up in the
// longer one.

// parked are the tickets that wait for long enough to be part of a deadlock, by
// who waits.
type parked struct {
	threads map[locks.Thread][]*ticket
	owners  map[locks.OwnerID][]*ticket // in class Posix
	serial  uint64                      // of the last that was added
}

func newParked() parked {
	return parked{threads: map[locks.Thread][]*ticket{}, owners: map[locks.OwnerID][]*ticket{}}
}

// add is called when t begins to wait. A try never waits for long.
func (p *parked) add(t *ticket) {
	if t.req.Try {
		return
	}
	t.parked = true
	p.serial++
	if t.entry.parked == nil {
		t.entry.parked = map[*ticket]struct{}{}
	}
	t.entry.parked[t] = struct{}{}
	if th := t.req.Program.Thread(); th != (locks.Thread{}) {
		p.threads[th] = append(p.threads[th], t)
	}
	if t.entry.key.Class == locks.Posix {
		p.owners[t.req.Owner] = append(p.owners[t.req.Owner], t)
	}
}

func (p *parked) remove(t *ticket) {
	if !t.parked {
		return
	}
	t.parked = false
	delete(t.entry.parked, t)
	if th := t.req.Program.Thread(); th != (locks.Thread{}) {
		without(p.threads, th, t)
	}
	if t.entry.key.Class == locks.Posix {
		without(p.owners, t.req.Owner, t)
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

// took puts t, which is held from now on, on the list of its thread.
func (en *entry) took(t *ticket) {
	t.held = true
	th := t.req.Program.Thread()
	if t.listed || th == (locks.Thread{}) {
		return
	}
	t.listed = true
	if en.takers == nil {
		en.takers = map[locks.Thread]*ticket{}
	}
	if t.next = en.takers[th]; t.next != nil {
		t.next.prev = t
	} else {
		en.serial++
	}
	en.takers[th] = t
}

// gaveUp takes t from the list of its thread.
func (en *entry) gaveUp(t *ticket) {
	if !t.listed {
		return
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	switch {
	case t.prev != nil:
		t.prev.next = t.next
	case t.next != nil:
		en.takers[t.req.Program.Thread()] = t.next
	default:
		delete(en.takers, t.req.Program.Thread())
	}
	t.listed, t.next, t.prev = false, nil, nil
}

// candidates are the tickets that waited a moment ago behind something that is
// held of en, in the order of their IDs. It is the same list, without another
// look, until another one begins to wait or to hold.
func (e *Engine) candidates(en *entry) []*ticket {
	if c := &en.behind; c.serial == en.serial && c.parked == e.parked.serial {
		return c.tickets
	}
	var ws []*ticket
	ws = common(ws, e.parked.threads, en.takers)
	if en.key.Class == locks.Posix {
		ws = common(ws, e.parked.owners, en.owners)
	}
	slices.SortFunc(ws, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	en.behind = behind{slices.Compact(ws), en.serial, e.parked.serial}
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
			lo, hi := en.inWay(o, r)
			for _, b := range o.held[lo:hi] {
				if en.stands(b, mode, r) {
					return b
				}
			}
		}
	}
	th := w.req.Program.Thread()
	if th == (locks.Thread{}) {
		return nil
	}
	for b := en.takers[th]; b != nil; b = b.next {
		if (except == nil || *except != b.req.Owner) && en.stands(b, mode, r) && en.owns(b) {
			return b
		}
	}
	return nil
}
