package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"dmxfs/locks"
	"dmxfs/locks/posix"
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
	done    chan struct{} // closed when nothing is missing, or on failure
	err     error
	// then, if not nil, is called instead of closing done.
	then func()
}

func (q *query) fail(err error) {
	if q.then == nil && q.err == nil && !q.isDone() {
		q.err = err
		close(q.done)
	}
}

func (q *query) isDone() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// restartQueries: the epoch is over, and with it the answers; they are asked
// for again in the next one.
func (e *Engine) restartQueries() {
	clear(e.seen)
	clear(e.cycles)
	for id, q := range e.queries {
		q.missing, q.found = nil, nil
		if q.then != nil {
			delete(e.queries, id)
		}
	}
}

// Test is F_GETLK: it returns a lock that would make r wait, the one with the
// lowest offset of those that were held at some moment of the call, or nil.
// It asks the other members when they could have one.
//
// With r.Mode 0 it is F_OFD_GETLK with F_UNLCK: the lock of r.Owner itself that
// has the lowest offset on r.Range.
func (e *Engine) Test(cancel <-chan struct{}, r *locks.Request) (*locks.Conflict, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.member(cancel, nil, r); err != nil {
		return nil, err
	}
	if r.Mode == 0 {
		return e.ownLock(r), nil
	}
	if found := e.conflicts(r.Key, r.Mode, r.Range, &r.Owner, 1); len(found) > 0 {
		return &found[0], nil
	}
	if e.closed { // meanwhile
		return nil, errClosed
	}
	q := &query{id: e.id(), key: r.Key, mode: r.Mode, rng: r.Range, done: make(chan struct{})}
	if e.phase == active {
		e.ask(q)
	}
	if !q.isDone() {
		e.queries[q.id] = q
		e.mu.Unlock()
		select {
		case <-q.done:
		case <-cancel:
		}
		e.mu.Lock()
		delete(e.queries, q.id)
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
func (e *Engine) ownLock(r *locks.Request) *locks.Conflict {
	en := e.entries[r.Key]
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
func (e *Engine) ask(q *query) {
	var who []locks.NodeID
	if en := e.entries[q.key]; en != nil {
		who = e.suspects(en, q.mode, q.rng)
	} else {
		// Nobody here has ever asked: anybody may have a silent lock.
		for _, m := range e.view.Members {
			if m != e.view.Self {
				who = append(who, m)
			}
		}
	}
	e.askThese(q, who)
}

func (e *Engine) askThese(q *query, who []locks.NodeID) {
	q.missing, q.found = map[locks.NodeID]bool{}, nil
	for _, m := range who {
		q.missing[m] = true
		e.o.Transport.Send(e.view.Epoch, m, queryFrame(q))
	}
	if len(who) == 0 {
		e.complete(q)
	}
}

// complete: nobody is missing any more.
func (e *Engine) complete(q *query) {
	delete(e.queries, q.id)
	if q.then != nil {
		q.then()
		return
	}
	close(q.done)
}

func (e *Engine) answered(q *query, from locks.NodeID, found []locks.Conflict) {
	if !q.missing[from] {
		return
	}
	delete(q.missing, from)
	for _, c := range found {
		c.Node = from
		q.found = append(q.found, c)
	}
	if len(q.missing) == 0 {
		e.complete(q)
	}
}

// inTheWay yields the held tickets of this node that stand in the way of mode on
// r, those of except left out, in no order.
func (en *entry) inTheWay(mode locks.Mode, r locks.Range, except *locks.OwnerID) iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		if en.free(mode) {
			return
		}
		for t := range en.withHandle() {
			if (except == nil || t.req.Owner != *except) && en.stands(t, mode, r) && !yield(t) {
				return
			}
		}
		for id, o := range en.owners {
			if except != nil && id == *except {
				continue
			}
			for t := range en.inWay(o, mode, r) {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// withHandle yields what is held through open files, in class Open, and what is
// on its way.
func (en *entry) withHandle() iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		for _, t := range en.handles {
			if !yield(t) {
				return
			}
		}
		for _, ts := range en.underway {
			for _, t := range slices.Clone(ts) { // some may arrive meanwhile
				if !yield(t) {
					return
				}
			}
		}
	}
}

// free reports whether nothing that is held stands in the way of mode, whatever
// the range, as at a glance.
func (en *entry) free(mode locks.Mode) bool {
	return !en.apart() && mode == locks.Read && en.written == 0
}

// apart reports whether what is held of en excludes everything else, whatever
// its range and mode.
func (en *entry) apart() bool { return !en.alg.Shared || len(en.barrier) > 0 }

// inWay yields what o holds that stands in the way of mode on r, by offset.
func (en *entry) inWay(o *owner, mode locks.Mode, r locks.Range) iter.Seq[*ticket] {
	if en.apart() {
		return o.slice(0, o.len())
	}
	only := locks.Mode(0)
	if mode == locks.Read {
		only = locks.Write
	}
	lo, hi := o.window(r)
	return func(yield func(*ticket) bool) {
		for t := range o.some(lo, hi, only) {
			if en.stands(t, mode, r) && !yield(t) {
				return
			}
		}
	}
}

// stands reports whether t, which is held, stands in the way of mode on r.
func (en *entry) stands(t *ticket, mode locks.Mode, r locks.Range) bool {
	return en.apart() || t.Range.Overlaps(r) && (t.Mode == locks.Write || mode == locks.Write)
}

// conflicts is inTheWay as other nodes and programs are told of it, the lowest
// first, as many of them as are asked for. A lock of an exclusive algorithm is
// told of as what it amounts to.
// REQUIRES: e.mu held. Of very many it lets go of it in between; what it returns
// was held at some moment of the call.
func (e *Engine) conflicts(k locks.Key, mode locks.Mode, r locks.Range, except *locks.OwnerID, most int) []locks.Conflict {
	en := e.entries[k]
	if en == nil || en.free(mode) {
		return nil
	}
	l, looked := lowest{most: most}, 0
	rest := func() {
		if looked++; looked%maxAtOnce == 0 {
			e.mu.breathe()
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

// conflict is t as it is told of. rng is the range of the lock that it is a
// piece of.
func (en *entry) conflict(t *ticket, rng locks.Range) locks.Conflict {
	if !en.alg.Shared {
		return locks.Conflict{Mode: locks.Write, Range: locks.Whole, PID: t.req.Program.PID}
	}
	return locks.Conflict{Mode: t.Mode, Range: rng, PID: t.req.Program.PID}
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

// holders says in words what stands in the way of req.
func (e *Engine) holders(en *entry, req *request) string {
	if len(en.owners) > maxSearched {
		return "one of many"
	}
	for t := range en.inTheWay(req.Mode, req.Range, &req.Owner) {
		return describe(t.req.Program)
	}
	return "another node"
}

// maxSearched is how many owners are looked at to tell one who is denied a lock
// by whom.
const maxSearched = 4096

// answer tells a member what of this node stands in the way of what it asks for.
// Of many this node lets others go on meanwhile, so it is not done in the order
// of what the member says: that does not matter for the answer.
func (e *Engine) answer(from locks.NodeID, f frame) {
	reply := func() {
		epoch := e.view.Epoch
		found := e.conflicts(f.key, f.mode, f.rng, nil, maxConflicts)
		if e.phase == active && e.view.Epoch == epoch {
			e.o.Transport.Send(epoch, from, holdersFrame(f.id, found))
		}
	}
	en, epoch := e.entries[f.key], e.view.Epoch
	if en == nil || few(en) {
		reply()
		return
	}
	e.background(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.phase == active && e.view.Epoch == epoch {
			reply()
		}
	})
}

// few reports whether conflicts looks at what is held of en without letting go of
// Engine.mu.
func few(en *entry) bool {
	n := len(en.owners) + len(en.handles)
	for _, ts := range en.underway {
		n += len(ts)
	}
	return n < maxAtOnce
}

func (en *entry) sortedTickets() []*ticket {
	ts := slices.Collect(maps.Values(en.tickets))
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	return ts
}
