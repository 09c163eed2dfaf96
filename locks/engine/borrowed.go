package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// The end of a delegation concerns all that the delegate and the delegator know,
// which may be very many files. So it comes to each file at a moment of its own, as
// if each had a message of its own, and others go on in between:
//
//   - The delegate sheds what it can, and then looks at each file for what it keeps
//     from the delegators. What it tells them of a file after that, by which it may
//     come to keep something, reaches them before the end of the list; so these
//     files are on the list as well, whatever is kept of them (since).
//   - The delegator begins nothing anew as what it delegates, and then takes the
//     delegate's permission off one machine after the other. What the delegate sends
//     behind the list waits meanwhile: it is received in order.
//     It may delegate anew: what it knows is excepted then.

// borrowed is what other members have delegated to this node, in one epoch: see
// delegation.go.
type borrowed struct {
	*base
	alarm    *alarm
	entries  *entries
	outboxes *outboxes
	lent     *lent

	// asked are the members whose answer is missing, from those that have
	// delegated to this node. all: these are all others, and it makes use of it.
	// later are those that are asked when the first one has, see refused.
	asked, from map[locks.NodeID]bool
	later       []locks.NodeID
	all         bool
	uses        int // how often it did
	// told are the keys that a delegator has excepted, or was told of since.
	// nil if this node has not asked.
	told map[locks.Key]struct{}
	// giving: what was delegated is being returned; since are the keys that members
	// were told something of meanwhile, nil while all is shed.
	giving bool
	since  map[locks.Key]struct{}

	times delegationTimes
}

// delegationTimes outlive an epoch.
type delegationTimes struct {
	firsts int          // files that were opened for writing first
	since  locks.Moment // the first of these
	used   locks.Moment // when a delegation was of use last
	next   locks.Moment // nothing is asked for before
	// refused is who refused last: it is asked before all others, who would have
	// to list their exceptions for nothing.
	refused locks.NodeID
	pause   time.Duration
}

// wait sets how long nothing is asked for, after a delegation, or the wish for
// one, that was of use so often.
func (t *delegationTimes) wait(now locks.Moment, uses int, l *DelegationLimits) {
	if uses >= worthwhile {
		t.pause = 0
	}
	t.next = now + locks.Moment(max(t.pause, l.Pause))
	t.pause = min(2*max(t.pause, l.Pause), l.MaxPause)
}

// reset is called at the end of an epoch.
func (b *borrowed) reset() {
	b.asked, b.from, b.later, b.all, b.uses, b.told, b.giving, b.since = nil, nil, nil, false, 0, nil, false, nil
}

// opens is called when a program has made en known here, to open its file in
// mode m.
func (b *borrowed) opens(en *entry, m locks.Mode) {
	if m != locks.Write || !b.concerns(en) {
		return
	}
	t, now := &b.times, b.Moment()
	if b.covers(en.key, m) {
		en.machine.(locks.Delegable).Delegated()
		t.used = now
		b.uses++
		return
	}
	if now-t.since > locks.Moment(time.Second) {
		t.firsts, t.since = 0, now
	}
	t.firsts++
	if t.firsts >= b.o.Delegations.After && now >= t.next {
		b.ask()
	}
}

// covers reports whether all others have delegated a file that becomes known with k, to be
// opened in mode m.
func (b *borrowed) covers(k locks.Key, m locks.Mode) bool {
	_, told := b.told[k]
	return b.all && !told && m == locks.Write && k.Class == locks.Open
}

// wishes reports whether this node has asked, and has not got and returned all that
// came of it.
func (b *borrowed) wishes() bool { return b.told != nil || len(b.asked)+len(b.from) > 0 }

// ask begins, if this node may ask.
func (b *borrowed) ask() {
	if b.lent.lends() || b.wishes() || !b.entries.uniform() {
		return
	}
	b.told, b.asked, b.from = map[locks.Key]struct{}{}, map[locks.NodeID]bool{}, map[locks.NodeID]bool{}
	var others, first []locks.NodeID
	for _, n := range b.view.Members {
		switch n {
		case b.view.Self:
		case b.times.refused:
			first = append(first, n)
		default:
			others = append(others, n)
		}
	}
	if len(first) == 0 {
		first, others = others, nil
	}
	b.later = others
	b.askFor(first)
}

// askFor asks members to delegate to this node.
func (b *borrowed) askFor(ns []locks.NodeID) {
	for _, n := range ns {
		b.asked[n] = true
		b.tellMember(n, []byte{frameWant})
	}
}

// mention notes that members are told something of k.
func (b *borrowed) mention(k locks.Key) {
	if k.Class != locks.Open {
		return
	}
	if b.told != nil {
		b.told[k] = struct{}{}
	}
	if b.since != nil {
		b.since[k] = struct{}{}
	}
}

// receive takes what a node says that was asked to delegate.
func (b *borrowed) receive(from locks.NodeID, f *frame) error {
	switch f.kind {
	case frameRefuse:
		if !b.asked[from] {
			return fmt.Errorf("it was not asked")
		}
		delete(b.asked, from)
		b.times.refused = from
		if b.told != nil { // else another one has refused already
			b.returnAll("refused", from)
		}
	case frameDelegate:
		if !b.asked[from] {
			return fmt.Errorf("it was not asked")
		}
		if err := b.entries.raiseFloor(f.token); err != nil {
			return err
		}
		if b.told != nil { // else another one has refused
			for _, k := range f.keys {
				b.mention(k)
			}
		}
		if f.more {
			return nil
		}
		delete(b.asked, from)
		b.from[from] = true
		switch {
		case b.told == nil: // another one has refused
			b.giveBack()
		case len(b.asked) == 0 && len(b.later) > 0:
			later := b.later
			b.later = nil
			b.askFor(later)
		case len(b.asked) == 0:
			b.all = true
			b.times.refused = ""
			b.times.used = b.Moment()
			b.alarm.wake()
			b.o.Log.Debug("the other members have delegated the files to this one that they do not use")
		}
	case frameRecall:
		if b.from[from] { // else it has been returned meanwhile
			b.returnAll("recalled", from)
		}
	}
	return nil
}

// shed reports whether en can be dropped without a word, since this node is the
// delegate of all, and no member was told of it. If all it takes is a
// write-out, that is begun.
func (b *borrowed) shed(en *entry) bool {
	m, ok := en.delegable()
	if !ok || b.phase != active || !b.all || en.busy() || !m.Redundant("") {
		return false
	}
	if _, told := b.told[en.key]; told {
		return false
	}
	if en.dirty && !b.outboxes.isClean(en.key) {
		b.outboxes.queue(en, true, nil)
		return false
	}
	en.dirty = false
	return true
}

// idle returns what is of no use any more, and else says when that
// will be so, if nothing happens; 0 if there is nothing to return.
func (b *borrowed) idle() time.Duration {
	if !b.all || b.phase != active {
		return 0
	}
	left := time.Duration(b.times.used-b.Moment()) + b.o.Delegations.Unused
	switch {
	case len(b.told) > maxTold:
		b.returnAll("too many exceptions", b.view.Self)
	case left <= 0:
		b.returnAll("not used", b.view.Self)
	default:
		return left
	}
	return 0
}

// returnAll returns what this node was delegated, or ends its wish, and asks
// for nothing more for a while.
// REQUIRES: mu held. It may let go of it in between.
func (b *borrowed) returnAll(why string, by locks.NodeID) {
	over := b.parts()
	if b.giving {
		return
	}
	b.o.Log.Debug("delegations are returned", "why", why, "by", by, "uses", b.uses)
	if b.all {
		b.giving = true
		for _, en := range b.entries.snapshot() {
			if over() {
				return
			}
			if b.entries.all[en.key] == en && b.shed(en) {
				b.entries.remove(en)
			}
		}
		b.giving = false
	}
	b.times.wait(b.Moment(), b.uses, &b.o.Delegations)
	b.all, b.uses, b.told, b.later = false, 0, nil, nil
	b.giveBack()
}

// giveBack tells those who have delegated to this node what it keeps.
// REQUIRES: mu held. It may let go of it in between.
func (b *borrowed) giveBack() {
	if b.giving {
		return // those that have delegated since come next
	}
	b.giving = true
	for len(b.from) > 0 {
		to := slices.Sorted(maps.Keys(b.from))
		if !b.giveBackTo(to) {
			return
		}
		for _, n := range to {
			delete(b.from, n)
		}
	}
	b.giving = false
}

// giveBackTo is giveBack for some of them. It is false if the epoch ends meanwhile.
func (b *borrowed) giveBackTo(to []locks.NodeID) bool {
	over, token := b.parts(), b.entries.least()
	b.since = map[locks.Key]struct{}{}
	keeps := make([][]locks.Key, len(to))
	for _, en := range b.entries.snapshot() {
		if over() {
			return false
		}
		m, ok := en.delegable()
		if !ok || b.entries.all[en.key] != en { // dropped: there was nothing to keep
			continue
		}
		token = max(token, en.machine.Token())
		for i, n := range to {
			// What is in the outbox has happened here, and will there.
			if len(en.outbox) > 0 || m.Keeps(n) {
				keeps[i] = append(keeps[i], en.key)
			}
			if len(keeps[i]) == exceptionsAtOnce {
				b.tellMember(n, keysFrame(frameReturn, true, b.entries.least(), keeps[i]))
				keeps[i] = nil
			}
		}
	}
	if over() {
		return false
	}
	since := slices.SortedFunc(maps.Keys(b.since), locks.Key.Compare)
	b.since = nil
	for i, n := range to {
		b.tellMember(n, keysFrames(frameReturn, max(token, b.entries.least()), append(keeps[i], since...))...)
	}
	return true
}
