package engine

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/posix"
)

// entry is what the engine has of one key: its machine, and the programs
// behind the tickets. All of it is guarded by base.mu.
type entry struct {
	key     locks.Key
	made    uint64 // which of the entries that the engine ever made it is
	path    string
	alg     *locks.Algorithm
	machine locks.Machine
	tickets map[locks.TicketID]*ticket
	owners  map[locks.OwnerID]*owner
	// through counts what owners hold that they took through an open file, in
	// class Posix only.
	through map[locks.HandleID]*tally
	// takers counts what threads hold that they have taken, by owner, and in
	// class Open by open file; processes the same for processes, by owner. serial counts threads and owners that were new here;
	// behind is of those that wait. See waiters.go.
	takers    map[locks.Thread]*tally
	processes map[process]*tally
	serial    uint64
	behind    behind
	// held is how many tickets are held, and written how many of them are for
	// writing; opened counts them by owner, in class Open only.
	held, written int
	opened        map[locks.OwnerID]int
	// handles finds the ticket of an open file, in class Open only.
	handles map[locks.HandleID]*ticket

	// stale grows when a peer may have begun to write; fresh is its value
	// at the last Refresh. They are equal when what is cached is good.
	stale, fresh uint64
	// dirty: W was held here since the last Flush. gave: something held was
	// given up since State has last looked.
	dirty  bool
	gave   bool
	outbox []parcel
	// flushing: a goroutine works on the outbox.
	flushing bool

	// underway are the tickets that were granted, and of which their programs
	// have not been told, see deliver.go; nil if there was none.
	underway map[uint64][]*ticket

	// barrier are the members that hold something from before the algorithm
	// of the key changed, see change.go; nobody is granted anything meanwhile.
	barrier map[locks.NodeID]bool

	// aside is what the machine holds and no owner has any more, see later.go.
	aside []aside

	// closing: locks may be on their way out. nil if none is. See closing.go.
	closing *closing

	// gate bounds who goes before its turn, see gate.go.
	gate gate

	// back is what is known to guess that the key will be used again; nil if
	// nothing.
	back *askBack

	// line is what the ledger has of it; nil if it never had any. writing counts who
	// writes the file out for State.
	line    *line
	writing int32

	// parked are the tickets that wait, but for tries; nil if there was none.
	parked map[*ticket]struct{}

	waits    map[locks.HandleID]int // tickets that wait, by what they came through
	messages int                    // sent and received, ever
	idle     *list.Element          // its place in entries.idle while it has no ticket
	since    time.Time              // of the last use
}

// isOpen reports whether an owner has one lock for each open file, which no other one changes.
func (en *entry) isOpen() bool { return en.key.Class == locks.Open }

// Maps are made when they are needed: most files are only known because another node uses them.

func (en *entry) add(t *ticket) {
	if en.tickets == nil {
		en.tickets = map[locks.TicketID]*ticket{}
	}
	en.tickets[t.ID] = t
}

func (en *entry) setOwner(o *owner) {
	if en.owners == nil {
		en.owners = map[locks.OwnerID]*owner{}
	}
	en.owners[o.id] = o
}

func (en *entry) setHandle(h locks.HandleID, t *ticket) {
	if en.handles == nil {
		en.handles = map[locks.HandleID]*ticket{}
	}
	en.handles[h] = t
}

// owner is what one owner of a key has, in classes Flock and Posix.
type owner struct {
	id     locks.OwnerID
	askers []*asker // the last ones
	heldList
}

// ticket is a request that waits, or a piece of what it was granted. There may be
// 250,000 of one file, so it is small: what only those need that wait is in a
// waiting of their own. It is shared by all others.
type ticket struct {
	posix.Piece
	entry *entry
	req   *request
	token locks.Token
	// tenure of the grant.
	tenure locks.Tenure
	*waiting
	// held: the machine knows it as held.
	held     bool
	parked   bool   // it is parked in waiters
	underway bool   // it is in entry.underway
	asks     bool   // the machine knows it
	told     bool   // the journal knows that it waits
	line     uint32 // of the ledger; 0: it has none
	era      uint32 // of the line
}

// waiting is what there is to know of a ticket while it waits.
type waiting struct {
	// since is when it was asked for first, if it was interrupted meanwhile,
	// and stamp the place that it had then.
	since time.Time
	stamp locks.Stamp
	// done is closed when the waiting is over; err is why, if without a
	// grant. It is nil when nobody waits.
	done chan struct{}
	err  error
	// due is when sweep looks at it next: then the journal is told of the
	// wait, later it may move to the front, or a try has waited long enough.
	due time.Time
	// unsure is since when this node has not been sure that it is a member, or the members
	// agree on a view, as far as a try is concerned; zero: it is.
	unsure time.Time
	step   time.Duration // from one overtake to the next
	look   time.Duration // from one look that it did not overtake at to the next
	// probe is when it next looks whether it is part of a deadlock.
	probe     time.Time
	probeStep time.Duration
	// spared is until when it is no victim: another one is being told.
	spared time.Time
}

// notWaiting is the waiting of tickets that have none of their own. It never
// changes.
var notWaiting waiting

// newTicket is a ticket of req that does not wait.
func newTicket(en *entry, req *request, p posix.Piece) *ticket {
	return &ticket{Piece: p, entry: en, req: req, waiting: &notWaiting}
}

// own is the waiting of t, to be changed.
func (t *ticket) own() *waiting {
	if t.waiting == nil || t.waiting == &notWaiting {
		t.waiting = &waiting{}
	}
	return t.waiting
}

// fail has the waiting of t end with err.
func (t *ticket) fail(err error) {
	t.own().err = err
	t.end()
}

// end tells the program of t that the waiting is over.
func (t *ticket) end() {
	if t.done != nil {
		close(t.done)
	}
}

// request is what a program asked for, see [locks.Request]. Its tickets share it.
type request struct {
	id uint64
	*asker
	Handle   locks.HandleID
	Range    locks.Range
	Patience int64
	asked    time.Time
	granted  time.Time
	broken   string // why an admin takes it away, see Condemn
	Mode     locks.Mode
	Try      bool
	Blind    bool
	messages uint32 // of the entry when it was asked; it may have passed the end
	pieces   int32  // tickets that are left of it
}

// asker is who asks, and for what file. Many requests share it.
type asker struct {
	Key     locks.Key
	Path    string
	Owner   locks.OwnerID
	Program locks.Program
}

// asked is a request with the ticket that is mostly made of it, and its only one.
type asked struct {
	request
	ticket
}

// newAsked is r as the engine will keep it. It is made before the engine is taken:
// who allocates may have to help the garbage collector first.
func newAsked(r *locks.Request) *asked {
	return &asked{request: request{
		Handle: r.Handle, Range: r.Range, Patience: r.Patience, Mode: r.Mode, Try: r.Try, Blind: r.Blind}}
}

// of is the request, which is asked now.
func (a *asked) of(id uint64, en *entry, r *locks.Request) *request {
	req := &a.request
	req.id, req.asked, req.messages = id, time.Now(), uint32(en.messages)
	by := asker{r.Key, r.Path, r.Owner, r.Program}
	if req.asker = en.owners[r.Owner].known(&by); req.asker == nil {
		mine := by
		req.asker = &mine
	}
	return req
}

// all is a ticket for all of the request.
func (a *asked) all(id uint64, en *entry) *ticket {
	r := &a.request
	a.ticket = ticket{entry: en, req: r, waiting: &notWaiting, Piece: posix.Piece{
		Part: locks.Part{ID: locks.TicketID(id), Mode: r.Mode, Range: r.Range}, Handle: r.Handle}}
	r.pieces = 1
	return &a.ticket
}

// cost is how many messages en has cost since r was asked.
func (r *request) cost(en *entry) int { return int(uint32(en.messages) - r.messages) }

// maxAskers is how many askers are at hand of an owner, which may have many threads.
const maxAskers = 8

// known is an asker of o that is like a; nil if it has none.
func (o *owner) known(a *asker) *asker {
	if o == nil {
		return nil
	}
	for _, x := range o.askers {
		if *x == *a {
			return x
		}
	}
	return nil
}

// knows has the asker of what o has got be at hand for the next request.
func (o *owner) knows(a *asker) {
	if slices.Contains(o.askers, a) {
		return
	}
	if len(o.askers) == maxAskers {
		o.askers = slices.Delete(o.askers, 0, 1)
	}
	o.askers = append(o.askers, a)
}

// busy reports whether more than the machine of en is still needed.
func (en *entry) busy() bool {
	return len(en.tickets) > 0 || len(en.outbox) > 0 || len(en.barrier) > 0 || en.closing != nil
}

// writes reports whether a program may write under a lock of mode m: also
// under one for reading, if that keeps out everybody else.
func (en *entry) writes(m locks.Mode) bool { return m == locks.Write || !en.alg.Shared }

// holdsWrite reports whether a program of this node may write under the key.
func (en *entry) holdsWrite() bool {
	if !en.alg.Shared {
		return en.held > 0
	}
	return en.written > 0
}

func (en *entry) owner(id locks.OwnerID) *owner {
	o := en.owners[id]
	if o == nil {
		o = &owner{id: id}
		en.setOwner(o)
		en.serial++
	}
	return o
}

func (en *entry) holds() bool { return en.held > 0 }

// holdsBy reports whether something of the key is held through h.
func (en *entry) holdsBy(h locks.HandleID) bool {
	switch en.key.Class {
	case locks.Flock:
		o := en.owners[locks.OwnerID(h)]
		return o != nil && o.len() > 0
	case locks.Posix:
		return en.through[h] != nil
	default:
		t := en.handles[h]
		return t != nil && t.held
	}
}

// ownersThrough are the owners that took something through h, with others.
func (en *entry) ownersThrough(h locks.HandleID) (ids []locks.OwnerID) {
	if en.key.Class == locks.Flock {
		return []locks.OwnerID{locks.OwnerID(h)} // the owner of a flock is the open file
	}
	for _, id := range en.through[h].sorted() {
		ids = append(ids, locks.OwnerID(id))
	}
	return ids
}

// awaited reports whether a program of this node waits for a lock of en.
func (en *entry) awaited() bool { return len(en.waits) > 0 }

// delegable is the machine of en, if delegations are about it.
func (en *entry) delegable() (locks.Delegable, bool) {
	m, ok := en.machine.(locks.Delegable)
	return m, ok && en.key.Class == locks.Open
}

// owns reports whether the owner of t, which is held, still has it.
func (en *entry) owns(t *ticket) bool {
	if en.isOpen() {
		return en.handles[t.Handle] == t
	}
	o := en.owners[t.req.Owner]
	if o == nil {
		return false
	}
	lo, hi := o.window(t.Range)
	for x := range o.slice(lo, hi) {
		if x == t {
			return true
		}
	}
	return false
}

// replaces reports whether the owner of r has a piece that r covers.
func (en *entry) replaces(r *request) bool {
	o := en.owners[r.Owner]
	if o == nil {
		return false
	}
	i := o.search(func(t *ticket) bool { return t.Range.Start >= r.Range.Start })
	return i < o.len() && r.Range.Contains(o.at(i).Range)
}

func (en *entry) sortedTickets() []*ticket {
	ts := slices.Collect(maps.Values(en.tickets))
	slices.SortFunc(ts, func(a, b *ticket) int { return cmp.Compare(a.ID, b.ID) })
	return ts
}
