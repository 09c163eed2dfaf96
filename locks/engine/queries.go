package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/posix"
)

// query is a question to other nodes: who holds what stands in the way?
type query struct {
	id   uint64
	key  locks.Key
	mode locks.Mode
	rng  locks.Range
	// missing are the members that have not answered in this epoch.
	missing map[locks.NodeID]bool
	found   []locks.Conflict
	done    chan struct{} // closed when nothing is missing, or on failure: then it is not open
	err     error
	// then, if not nil, is called instead of closing done.
	then func()
}

// queries ask other nodes, and answer them.
type queries struct {
	*base
	entries  *entries
	outboxes *outboxes
	barriers *barriers
	open     map[uint64]*query
}

func (q *query) isDone() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// restart: the epoch is over, and with it the answers; they are asked
// for again in the next one.
func (qs *queries) restart() {
	for id, q := range qs.open {
		q.missing, q.found = nil, nil
		if q.then != nil {
			delete(qs.open, id)
		}
	}
}

// askAgain asks in a new epoch what has no answer yet.
func (qs *queries) askAgain() {
	for _, id := range slices.Sorted(maps.Keys(qs.open)) {
		qs.ask(qs.open[id])
	}
}

// fail ends those that a program waits for. No answer is for them any more: it can
// come before the program has taken note.
func (qs *queries) fail(err error) {
	for id, q := range qs.open {
		if q.then == nil {
			q.err = err
			close(q.done)
			delete(qs.open, id)
		}
	}
}

// test is [Engine.Test].
func (qs *queries) test(cancel <-chan struct{}, r *locks.Request) (*locks.Conflict, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if err := qs.member(cancel, nil, r); err != nil {
		return nil, err
	}
	if r.Mode == 0 {
		return qs.ownLock(r), nil
	}
	if found := qs.conflicts(r.Key, r.Mode, r.Range, &r.Owner, 1); len(found) > 0 {
		return &found[0], nil
	}
	if qs.closed { // meanwhile
		return nil, qs.over()
	}
	q := &query{id: qs.id(), key: r.Key, mode: r.Mode, rng: r.Range, done: make(chan struct{})}
	if qs.phase == active {
		qs.ask(q)
	}
	if !q.isDone() {
		qs.open[q.id] = q
		qs.mu.Unlock()
		select {
		case <-q.done:
		case <-cancel:
		}
		qs.mu.Lock()
		delete(qs.open, q.id)
		if !q.isDone() {
			return nil, locks.ErrInterrupted
		}
	}
	if q.err != nil || len(q.found) == 0 {
		return nil, q.err
	}
	c := slices.MinFunc(q.found, func(a, b locks.Conflict) int {
		return cmp.Or(cmp.Compare(a.Range.Start, b.Range.Start), cmp.Compare(a.Node, b.Node))
	})
	return &c, nil
}

// ownLock is what the owner of r holds of its range, the lowest; nil if that
// is nothing.
func (qs *queries) ownLock(r *locks.Request) *locks.Conflict {
	en := qs.entries.all[r.Key]
	if en == nil || en.owners[r.Owner] == nil {
		return nil
	}
	o := en.owners[r.Owner]
	lo, hi := o.window(r.Range)
	for t := range o.slice(lo, hi) {
		if t.Range.Overlaps(r.Range) {
			return &locks.Conflict{Mode: t.Mode, Range: o.extent(t), PID: t.req.Program.PID}
		}
	}
	return nil
}

// ask sends q to the members that may know.
func (qs *queries) ask(q *query) {
	var who []locks.NodeID
	if en := qs.entries.all[q.key]; en != nil {
		who = qs.barriers.suspects(en, q.mode, q.rng)
	} else {
		// Nobody here has ever asked: anybody may have a silent lock.
		for _, m := range qs.view.Members {
			if m != qs.view.Self {
				who = append(who, m)
			}
		}
	}
	qs.askThese(q, who)
}

// askThen asks who of the members holds what is in the way of t, and has then done
// if nobody does.
func (qs *queries) askThen(t *ticket, who []locks.NodeID, then func()) {
	q := &query{id: qs.id(), key: t.entry.key, mode: t.req.Mode, rng: t.req.Range}
	q.then = func() {
		if len(q.found) == 0 {
			then()
		}
	}
	qs.open[q.id] = q
	qs.askThese(q, who)
}

func (qs *queries) askThese(q *query, who []locks.NodeID) {
	q.missing, q.found = map[locks.NodeID]bool{}, nil
	for _, m := range who {
		q.missing[m] = true
		qs.o.Transport.Send(qs.view.Epoch, m, queryFrame(q))
	}
	if len(who) == 0 {
		qs.complete(q)
	}
}

// complete: nobody is missing any more.
func (qs *queries) complete(q *query) {
	delete(qs.open, q.id)
	if q.then != nil {
		q.then()
		return
	}
	close(q.done)
}

func (qs *queries) answered(q *query, from locks.NodeID, found []locks.Conflict) {
	if !q.missing[from] {
		return
	}
	delete(q.missing, from)
	for _, c := range found {
		c.Node = from
		q.found = append(q.found, c)
	}
	if len(q.missing) == 0 {
		qs.complete(q)
	}
}

// conflicts is inTheWay as other nodes and programs are told of it, the lowest
// first, as many of them as are asked for. A lock of an exclusive algorithm is
// told of as what it amounts to.
// REQUIRES: mu held. Of very many it lets go of it in between; what it returns
// was held at some moment of the call.
func (qs *queries) conflicts(k locks.Key, mode locks.Mode, r locks.Range, except *locks.OwnerID, most int) []locks.Conflict {
	en := qs.entries.all[k]
	if en == nil || en.free(mode) {
		return nil
	}
	l, looked := lowest{most: most}, 0
	rest := func() {
		if looked++; looked%maxAtOnce == 0 {
			qs.mu.breathe()
		}
	}
	for t := range en.withHandle() {
		if rest(); (except == nil || t.req.Owner != *except) && en.stands(t, mode, r) {
			l.add(en.conflict(t, t.Range))
		}
	}
	for id, o := range en.owners {
		if rest(); except != nil && id == *except {
			continue
		}
		var last locks.Range // that was told of
		for t := range en.inWay(o, mode, r) {
			if last.Contains(t.Range) {
				continue
			}
			last = o.extent(t)
			if !l.add(en.conflict(t, last)) || !en.alg.Shared {
				break // the next ones begin behind it, or are told of as the same
			}
		}
	}
	return l.found
}

// lowest keeps the conflicts that begin first, each once, in order.
type lowest struct {
	most  int
	found []locks.Conflict
}

// add reports whether one that begins behind c could be among them.
func (l *lowest) add(c locks.Conflict) bool {
	i, again := slices.BinarySearchFunc(l.found, c, func(a, b locks.Conflict) int {
		return cmp.Or(cmp.Compare(a.Range.Start, b.Range.Start), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.Range.End, b.Range.End), cmp.Compare(a.Mode, b.Mode))
	})
	if !again {
		if i == l.most {
			return false
		}
		l.found = slices.Insert(l.found[:min(len(l.found), l.most-1)], i, c)
	}
	return true
}

// maxExtent is how many pieces, taken through different open files, are told of
// as the one lock that they are.
const maxExtent = 1024

// extent is posix.Extent of t, which o holds.
func (o *owner) extent(t *ticket) locks.Range {
	i := o.search(func(x *ticket) bool { return x.Range.Start >= t.Range.Start })
	before := func(yield func(posix.Piece) bool) {
		for j := i - 1; j >= max(i-maxExtent, 0) && yield(o.at(j).Piece); j-- {
		}
	}
	return posix.Extent(t.Piece, before, pieces(o.slice(i+1, min(i+1+maxExtent, o.len()))))
}

func pieces(ts iter.Seq[*ticket]) iter.Seq[posix.Piece] {
	return func(yield func(posix.Piece) bool) {
		for t := range ts {
			if !yield(t.Piece) {
				return
			}
		}
	}
}

// maxSearched is how many owners are looked at to tell one who is denied a lock
// by whom.
const maxSearched = 4096

// answer tells a member what of this node stands in the way of what it asks for.
// Of many this node lets others go on meanwhile, so it is not done in the order
// of what the member says: that does not matter for the answer.
func (qs *queries) answer(from locks.NodeID, f frame) {
	reply := func() {
		epoch := qs.view.Epoch
		found := qs.conflicts(f.key, f.mode, f.rng, nil, maxConflicts)
		if qs.phase == active && qs.view.Epoch == epoch {
			qs.o.Transport.Send(epoch, from, holdersFrame(f.id, found))
		}
	}
	en, epoch := qs.entries.all[f.key], qs.view.Epoch
	if en == nil || few(en) {
		reply()
		return
	}
	qs.outboxes.background(func() {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		if qs.phase == active && qs.view.Epoch == epoch {
			reply()
		}
	})
}

// few reports whether conflicts looks at what is held of en without letting go of
// base.mu.
func few(en *entry) bool {
	n := len(en.owners) + len(en.handles)
	for _, ts := range en.underway {
		n += len(ts)
	}
	return n < maxAtOnce
}
