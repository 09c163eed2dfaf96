package engine

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// LockState is what a row of [LockInfo] stands for: a ticket, or permissions of
// which no ticket makes use.
type LockState uint8

const (
	Held LockState = iota + 1
	Waits
	Cached // no program holds it, but this node could have it again at once
)

// LockInfo is one row of the table of locks.
type LockInfo struct {
	Key       locks.Key
	Path      string
	Mode      locks.Mode
	Range     locks.Range
	State     LockState
	Request   uint64
	Owner     locks.OwnerID
	Handle    locks.HandleID
	Program   locks.Program
	Since     time.Time // of the grant, or of the request if it waits
	Epoch     locks.Epoch
	Algorithm string
	Token     locks.Token
	// Blocked by these programs of this node, or some of them if they are
	// many, and these members.
	Local  []locks.Program
	Remote []locks.NodeID
}

// listed is a row of the table, as it is collected under the engine's mutex: there
// may be very many.
type listed struct {
	*listedKey
	id     locks.TicketID // 0: what is kept, behind all others
	req    *request       // nil if it is kept
	rng    locks.Range
	handle locks.HandleID
	since  time.Time
	token  locks.Token
	blocks *blockedBy // nil if it does not wait
	mode   locks.Mode
	state  LockState
}

// listedKey is what all rows of a key have in common.
type listedKey struct {
	key       locks.Key
	path      string
	algorithm string
	epoch     locks.Epoch
}

// blockedBy is what a row waits for.
type blockedBy struct {
	local  []locks.Program
	remote []locks.NodeID
}

func (a *listed) compare(b *listed) int {
	if a.listedKey == b.listedKey { // of very many, mostly
		return cmp.Or(cmp.Compare(a.id-1, b.id-1), cmp.Compare(a.rng.Start, b.rng.Start))
	}
	return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.id-1, b.id-1), cmp.Compare(a.rng.Start, b.rng.Start))
}

func (l *listed) info() LockInfo {
	i := LockInfo{Key: l.key, Path: l.path, Algorithm: l.algorithm, Epoch: l.epoch, Mode: l.mode, Range: l.rng, State: l.state,
		Handle: l.handle, Since: l.since, Token: l.token}
	if l.req != nil {
		i.Path, i.Request, i.Owner, i.Program = l.req.Path, l.req.id, l.req.Owner, l.req.Program
	}
	if l.blocks != nil {
		i.Local, i.Remote = l.blocks.local, l.blocks.remote
	}
	return i
}

// locks is [Engine.Locks].
func (rp *reports) locks() []LockInfo {
	sorted := rp.listed()
	all := slices.Grow([]LockInfo(nil), len(sorted)) // they are large
	for _, l := range sorted {
		all = append(all, l.info())
	}
	return all
}

// list is [Engine.List].
func (rp *reports) list() iter.Seq[LockInfo] {
	sorted := rp.listed()
	return func(yield func(LockInfo) bool) {
		for _, l := range sorted {
			if !yield(l.info()) {
				return
			}
		}
	}
}

// listed are the rows of the table, sorted.
func (rp *reports) listed() []*listed {
	found := newRows((*listed).compare)
	rp.mu.Lock()
	for _, en := range rp.entries.all {
		if rp.entries.all[en.key] != en {
			break // all were lost meanwhile, with the view
		}
		rp.listKey(found, en)
		rp.mu.breathe()
	}
	rp.mu.Unlock()
	return found.pointers()
}

// listKey adds the rows of en to found, as long as en is there.
func (rp *reports) listKey(found *rows[listed], en *entry) {
	k := &listedKey{key: en.key, path: en.path, algorithm: en.alg.Name}
	if rp.view != nil {
		k.epoch = rp.view.Epoch
	}
	for id, t := range en.tickets {
		l := listed{listedKey: k, id: id, req: t.req, rng: t.Range, handle: t.Handle, since: t.req.granted, token: t.token,
			mode: t.Mode, state: Held}
		if !t.held {
			l.state, l.since, l.blocks = Waits, t.req.asked, rp.blockedBy(t)
		}
		found.add(l)
		if (found.full() && rp.room(found) || rp.mu.breathe()) && rp.entries.all[en.key] != en {
			return
		}
	}
	for from := uint64(0); from < locks.MaxOffset && rp.entries.all[en.key] == en; rp.mu.breathe() {
		permitted, next := en.machine.Permitted(from, maxAtOnce)
		for _, r := range permitted {
			found.add(listed{listedKey: k, rng: r, since: en.since, token: en.machine.Token(), mode: locks.Write, state: Cached})
		}
		from = next
	}
}

// room makes room for more rows, while others have the engine: who allocates much
// may have to help the garbage collector first. It is true: anything may have
// changed.
// REQUIRES: mu held. It lets go of it in between.
func (rp *reports) room(found *rows[listed]) bool {
	rp.mu.Unlock()
	found.grow()
	rp.mu.yield()
	rp.mu.Lock()
	return true
}

// blockedBy is what t waits for.
func (rp *reports) blockedBy(t *ticket) *blockedBy {
	local, remote := rp.barriers.blockers(t, maxConflicts)
	b := &blockedBy{remote: remote}
	for _, id := range local {
		if x := t.entry.tickets[id]; x != nil {
			b.local = append(b.local, x.req.Program)
		}
	}
	return b
}
