package engine

import (
	"container/list"
	"time"

	"dmxfs/locks"
	"dmxfs/locks/posix"
)

// entry is what the engine has of one key: its machine, and the programs
// behind the tickets. All of it is guarded by Engine.mu.
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
	// class Open by open file; processes the same for processes, by owner. Both
	// are nil at first. serial counts threads and owners that were new here;
	// behind is of those that wait. See behind.go.
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

	// gate holds the opens that do not join yet; joined counts those that have
	// joined while another node waits. passed is how often tickets went before
	// their turn lately, at last at passedAt. See gate.go.
	gate     []*ticket
	joined   int
	passed   int
	passedAt time.Time

	// back is what is known to guess that the key will be used again; nil if
	// nothing.
	back *askBack

	// parked are the tickets that wait, but for tries; nil if there was none.
	parked map[*ticket]struct{}

	waits    map[locks.HandleID]int // tickets that wait, by what they came through
	messages int                    // sent and received, ever
	idle     *list.Element          // its place in Engine.idle while it has no ticket
	since    time.Time              // of the last use
}

// owner is what one owner of a key has, in classes Flock and Posix.
type owner struct {
	id locks.OwnerID
	heldList
}

// ticket is a request that waits, or a piece of what it was granted.
type ticket struct {
	posix.Piece
	entry *entry
	req   *request
	// held: the machine knows it as held.
	held     bool
	parked   bool // it is in Engine.parked
	underway bool // it is in entry.underway
	token    locks.Token
	// tenure of the grant.
	tenure locks.Tenure
	// since is when it was asked for first, if it was interrupted meanwhile,
	// and stamp the place that it had then. asks: the machine knows it.
	since time.Time
	stamp locks.Stamp
	asks  bool
	// done is closed when the waiting is over; err is why, if without a
	// grant. It is nil when nobody waits.
	done chan struct{}
	err  error
	// due is when sweep looks at it next: then the journal is told of the
	// wait, later it may move to the front, or a try has waited long enough.
	due  time.Time
	told bool
	step time.Duration // from one overtake to the next
	// probe is when it next looks whether it is part of a deadlock.
	probe     time.Time
	probeStep time.Duration
	// spared is until when it is no victim: another one is being told.
	spared time.Time
}

// request is what a program asked for. Its tickets share it.
type request struct {
	id uint64
	locks.Request
	asked    time.Time
	granted  time.Time
	messages int    // of the entry when it was asked
	pieces   int    // tickets that are left of it
	broken   string // why an admin takes it away, see Condemn
}

// entry finds or makes the entry of k. path may be empty when it isn't known.
func (e *Engine) entry(k locks.Key, path, algorithm string) *entry {
	en := e.entries[k]
	if en == nil {
		if algorithm == "" {
			algorithm = e.pinned[k]
		}
		if algorithm == "" {
			algorithm = e.o.Rule(path)
		}
		alg := e.o.Algorithms[algorithm]
		if alg == nil {
			return nil
		}
		e.made++
		en = &entry{
			key:     k,
			made:    e.made,
			alg:     alg,
			tickets: map[locks.TicketID]*ticket{},
			waits:   map[locks.HandleID]int{},
		}
		if k.Class == locks.Open {
			en.handles, en.opened = map[locks.HandleID]*ticket{}, map[locks.OwnerID]int{}
		} else {
			en.owners = map[locks.OwnerID]*owner{}
			en.through = map[locks.HandleID]*tally{}
		}
		if !e.clean.take(k) {
			en.stale = 1
		}
		en.machine = alg.New(locks.Config{Key: k, View: e.view, Token: e.floor, Seed: e.id(), Breathe: e.breathe})
		if e.stated {
			en.machine.State() // as the contract of State wants it
		}
		e.delegate(en)
		e.entries[k] = en
		e.deleg.except(k)
		e.settle(en)
	}
	if path != "" {
		en.path = path
	}
	return en
}

// bear is called when r has made en known here. If it is sure that nobody else
// can have written the file, since r's program has just made it, nothing that
// is cached of it here is old.
//
// By rw, whoever wants to write it must have asked this node, which would have
// made an entry before r did. It would be there still, or have been dropped
// since, by itself or with its epoch. (By the exclusive algorithms some nodes
// are not asked.)
func (e *Engine) bear(en *entry, r *locks.Request) {
	if r.Born != 0 && en.alg.Shared && e.phase == active && e.began < r.Born && e.forgot < r.Born {
		en.stale = en.fresh
	}
}

// settle puts en on the list of idle entries, or takes it off.
func (e *Engine) settle(en *entry) {
	switch busy := len(en.tickets) > 0; {
	case busy && en.idle != nil:
		e.idle.Remove(en.idle)
		en.idle = nil
	case !busy && en.idle == nil:
		en.since = time.Now()
		en.idle = e.idle.PushBack(en)
		if e.idle.Len() == 1 {
			e.wakeFor(en.since.Add(e.o.Expire))
		}
	}
}

// drop forgets an idle entry, if its machine can be made anew without harm.
func (e *Engine) drop(en *entry) bool {
	if en.busy() || en.dirty {
		return false
	}
	if !en.machine.Idle() {
		if !e.defaults(en) {
			return false
		}
		en.stale++ // the delegate may write it without a word
	} else if e.delegates(en) {
		// Made anew it would begin with the delegate's permission, which this one
		// was given back; so the delegate was told of the file, and asks.
		e.deleg.excepted[en.key] = struct{}{}
	}
	e.remove(en)
	return true
}

// busy reports whether more than the machine of en is still needed.
func (en *entry) busy() bool {
	return len(en.tickets) > 0 || len(en.outbox) > 0 || len(en.barrier) > 0 || en.closing != nil
}

// remove forgets an entry whose machine can be made anew.
func (e *Engine) remove(en *entry) {
	e.deleg.except(en.key)
	e.floor = max(e.floor, en.machine.Token())
	if en.stale == en.fresh {
		e.clean.put(en.key)
	} else {
		e.forgot = e.Moment()
	}
	if en.idle != nil {
		e.idle.Remove(en.idle)
	}
	delete(e.entries, en.key)
}

// giveUp drops en before its time, if nobody here uses it: the number of a file
// that was removed may be that of a new one under another rule by now. What is
// refused instead leaves a machine elsewhere that waits for an answer.
func (e *Engine) giveUp(en *entry) bool {
	if len(en.tickets) > 0 || e.phase != active {
		return false
	}
	e.endAskingBack(en)
	for more := true; more; {
		e.step(en, func(turn *locks.Turn) {
			en.machine.Expire(turn)
			more = turn.More
		})
	}
	return e.drop(en)
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
		en.owners[id] = o
		en.serial++
	}
	return o
}
