package engine

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// entries are what this node has of files: one entry for each key that is in use
// here or for which its machine has something to say, and what is known of others.
type entries struct {
	*base
	alarm  *alarm
	ledger *ledger
	lent   *lent

	all  map[locks.Key]*entry
	made uint64 // entries, ever
	// clean holds the keys without an entry of which this node knows that
	// nobody else wrote since its last grant.
	clean *recent
	// forgot is when an entry was dropped last that others may have written.
	forgot locks.Moment
	// floor is at least the token of every machine that was dropped.
	floor locks.Token
	// idle lists entries without a ticket, the longest idle first.
	idle *list.List
	// pinned are the algorithms of keys of which members told that they hold
	// something. See change.go.
	pinned map[locks.Key]string
}

func newEntries(b *base, a *alarm, lg *ledger) *entries {
	return &entries{base: b, alarm: a, ledger: lg, all: map[locks.Key]*entry{}, pinned: map[locks.Key]string{},
		clean: newRecent(maxClean), idle: list.New()}
}

// entry finds or makes the entry of k. path may be empty when it isn't known.
func (es *entries) entry(k locks.Key, path, algorithm string) *entry {
	en := es.all[k]
	if en == nil {
		if algorithm == "" {
			algorithm = es.pinned[k]
		}
		if algorithm == "" {
			algorithm = es.o.Rule(path)
		}
		alg := es.o.Algorithms[algorithm]
		if alg == nil {
			return nil
		}
		es.made++
		en = &entry{key: k, made: es.made, alg: alg}
		if !es.clean.take(k) {
			en.stale = 1
		}
		en.machine = alg.New(locks.Config{Key: k, View: es.view, Token: es.floor, Seed: es.id(), Breathe: es.breathe})
		if es.stated {
			en.machine.State() // as the contract of State wants it
		}
		es.lent.begin(en)
		es.all[k] = en
		es.lent.except(k)
		es.settle(en)
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
func (es *entries) bear(en *entry, r *locks.Request) {
	if en.alg.Shared && es.born(r) {
		en.stale = en.fresh
	}
}

// born reports whether nobody else can have had a lock of r's file, by rw.
func (es *entries) born(r *locks.Request) bool {
	return r.Born != 0 && es.phase == active && es.began < r.Born && es.forgot < r.Born
}

// settle puts en on the list of idle entries, or takes it off.
func (es *entries) settle(en *entry) {
	switch busy := len(en.tickets) > 0; {
	case busy:
		es.unlist(en)
	case !busy && en.idle == nil:
		es.ledger.idle(en)
		en.since = time.Now()
		en.idle = es.idle.PushBack(en)
		if es.idle.Len() == 1 {
			es.alarm.wakeFor(en.since.Add(es.o.Expire))
		}
	}
}

// unlist takes en off the list of idle entries.
func (es *entries) unlist(en *entry) {
	if en.idle != nil {
		es.idle.Remove(en.idle)
		en.idle = nil
	}
}

// stay makes en the youngest of the idle entries.
func (es *entries) stay(en *entry, now time.Time) {
	en.since = now
	es.idle.MoveToBack(en.idle)
}

// drop forgets an idle entry, if its machine can be made anew without harm.
func (es *entries) drop(en *entry) bool {
	if en.busy() || en.dirty {
		return false
	}
	if !en.machine.Idle() {
		if !es.lent.defaults(en) {
			return false
		}
		en.stale++ // the delegate may write it without a word
	} else if es.lent.covers(en) {
		// Made anew it would begin with the delegate's permission, which this one
		// was given back; so the delegate was told of the file, and asks.
		es.lent.exclude(en.key)
	}
	es.remove(en)
	return true
}

// tidy drops en, or lists it as idle, if it has no ticket.
func (es *entries) tidy(en *entry) {
	if len(en.tickets) == 0 && !es.drop(en) {
		es.settle(en)
	}
}

// remove forgets an entry whose machine can be made anew.
func (es *entries) remove(en *entry) {
	es.ledger.forget(en)
	es.lent.except(en.key)
	es.floor = max(es.floor, en.machine.Token())
	if en.stale == en.fresh {
		es.clean.put(en.key)
	} else {
		es.unseen()
	}
	if en.idle != nil {
		es.idle.Remove(en.idle)
	}
	delete(es.all, en.key)
}

// takeAll forgets all, and returns the entries that there were.
func (es *entries) takeAll() map[locks.Key]*entry {
	all := es.all
	es.all = map[locks.Key]*entry{}
	clear(es.pinned)
	es.idle.Init()
	es.clean.clear()
	return all
}

// pin has k served by an algorithm, whatever the rules say, until unpin.
func (es *entries) pin(k locks.Key, algorithm string) { es.pinned[k] = algorithm }

func (es *entries) unpin() { clear(es.pinned) }

// unseen notes that others may have written files by now that have no entry.
func (es *entries) unseen() { es.forgot = es.Moment() }

// snapshot lists the entries that there are when it is called, and no others, as
// sorted does. Of many it lets go of mu meanwhile: some may be gone by then.
// REQUIRES: mu held.
func (es *entries) snapshot() []*entry {
	if len(es.all) <= maxAtOnce {
		return es.sorted()
	}
	ens, last := make([]*entry, 0, len(es.all)), es.made
	for _, en := range es.all {
		if en.made <= last {
			ens = append(ens, en)
		}
		es.mu.breathe()
	}
	es.mu.Unlock()
	slices.SortFunc(ens, func(a, b *entry) int { return a.key.Compare(b.key) })
	es.mu.Lock()
	return ens
}

// sorted lists the entries in the order of their keys, so that a run can be
// repeated.
func (es *entries) sorted() []*entry {
	ens := make([]*entry, 0, len(es.all))
	for _, en := range es.all {
		ens = append(ens, en)
	}
	slices.SortFunc(ens, func(a, b *entry) int { return a.key.Compare(b.key) })
	return ens
}

// forget drops an entry without tickets.
func (es *entries) forget(en *entry) {
	es.ledger.forget(en)
	es.floor = max(es.floor, en.machine.Token())
	es.unlist(en)
	delete(es.all, en.key)
}

func (es *entries) pathOf(k locks.Key) string {
	if en := es.all[k]; en != nil {
		return en.path
	}
	return ""
}

// uniform reports whether one algorithm serves all files.
func (es *entries) uniform() bool {
	if es.o.Uniform == nil {
		return false
	}
	alg := es.o.Uniform()
	if alg == "" {
		return false
	}
	for _, pinned := range es.pinned {
		if pinned != alg {
			return false
		}
	}
	return true
}

// raiseFloor makes tokens of machines to come greater than t.
func (es *entries) raiseFloor(t locks.Token) error {
	if t < locks.TokenFloor(es.view.Epoch) || t >= locks.TokenFloor(es.view.Epoch+1) {
		return fmt.Errorf("token %v is not of epoch %d", t, es.view.Epoch)
	}
	es.floor = max(es.floor, t)
	return nil
}

// least is a token of this epoch that is at least that of every machine that was
// dropped.
func (es *entries) least() locks.Token { return max(es.floor, locks.TokenFloor(es.view.Epoch)) }
