package engine

import (
	"fmt"
	"slices"
	"time"

	"dmxfs/locks"
)

// A program that makes thousands of files asks for thousands of locks that
// nobody else has ever heard of. So a node where that happens asks the others
// to leave it all of class Open that they know nothing of. They are its
// delegators, and it is their delegate, until one of them wants to open a file
// itself: the delegations of NFSv4 (RFC 8881, section 10), for all files that
// are not in use instead of for one.
//
// A node k that delegates to i tells it the files that are excepted: those of
// which it has a machine, or knows that what it has cached of them is good. As
// long as it delegates
//
//   - each machine that k makes for another file begins with the permission for
//     i to write (Delegable.Delegate). So k asks i before it reads, and recalls
//     the delegation when one of its own programs opens such a file;
//   - k drops machines of such files that are as it would make them;
//   - what is said to be true of rw in package rw holds with that: where k has
//     no machine, it stands for one that was just made.
//
// When all others have delegated to i, it makes a machine for a program that
// opens a file to write with the permissions of all (Delegable.Delegated): no
// message is sent. That is true if k's machine, which may exist by now, has i's
// permission. It has, unless the file is excepted; or i has sent k something
// about it since, as only that takes a permission of i from k's books. Both
// kinds are in told. When such a file has been idle, its machine is dropped as
// silently.
//
// So nobody but i writes a file that k does not know of, and i writes no file
// that k does know of without k's knowledge: what k has cached stays good. But
// when it is over there are files that i may have written, and k has not heard
// of (Engine.forgot).
//
// To return it, i drops what it can and lists, for each delegator, what it
// keeps from it; also what it has said but not sent, as that waits for a
// write-out. The delegator makes machines for those of the list that it does not
// have, and takes the permission of i off all that are not on it.
//
// No two nodes delegate to each other, since a node that has asked, and has not
// got and returned all that came of it, refuses; and one that delegates does not
// ask. The number of a removed file can be that of a new one at any time, so
// that two nodes that each make files could have the same key.
//
// All of it ends with the epoch, before which everything is written out and
// told. There is none while more than one algorithm is in use: by the exclusive
// ones who has a name of the file with another rule would not be asked.

// DelegationLimits are when delegations are asked for, given and returned. Zero
// stands for the default.
type DelegationLimits struct {
	// After: so many files that were opened for writing within a second, and
	// not known here before, make a node ask. Default 16.
	After int
	// Quiet: a node delegates if none of its own programs has opened a file
	// of which it knew nothing for so long. Default 500 ms.
	Quiet time.Duration
	// Unused: what has not been of use for so long is returned. Default 5 s.
	Unused time.Duration
	// Pause is how long a node does not ask again when it was refused, or has
	// returned what it got. It is twice as long each time, up to MaxPause,
	// as long as nothing comes of it. Default 250 ms, and 8 s.
	Pause, MaxPause time.Duration
}

func (l *DelegationLimits) setDefaults() {
	for _, x := range []struct {
		p *time.Duration
		d time.Duration
	}{
		{&l.Quiet, 500 * time.Millisecond}, {&l.Unused, 5 * time.Second},
		{&l.Pause, 250 * time.Millisecond}, {&l.MaxPause, 8 * time.Second},
	} {
		if *x.p == 0 {
			*x.p = x.d
		}
	}
	if l.After == 0 {
		l.After = 16
	}
}

const (
	// maxExcepted bounds the files that a delegator excepts.
	maxExcepted = 1 << 16
	// maxTold bounds told.
	maxTold = 1 << 18
	// worthwhile is how many times a delegation must be of use, so that the
	// next one is asked for soon.
	worthwhile = 64
)

// delegations are those of one node in one epoch.
type delegations struct {
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
	// giving: what was delegated is being returned, see return.go; since are the
	// keys that members were told something of meanwhile, nil while all is shed.
	giving bool
	since  map[locks.Key]struct{}

	// to is the node to which this one delegates, or empty, all but excepted.
	// recalled: it was told to return it. returned are the keys that it has
	// listed, nil if it has not begun to. listing: the exceptions are being listed,
	// for one to which this node will delegate; untold are those that it was not
	// told of yet.
	to       locks.NodeID
	excepted map[locks.Key]struct{}
	listing  bool
	untold   []locks.Key
	recalled bool
	returned map[locks.Key]bool
}

// delegationTimes outlive an epoch.
type delegationTimes struct {
	firsts int          // files that were opened for writing first
	since  locks.Moment // the first of these
	opened locks.Moment // when a file was opened last of which nothing was known
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

// Delegation tells whether all other members have delegated to this node, and
// to whom it delegates, which is empty if it does not.
func (e *Engine) Delegation() (all bool, to locks.NodeID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deleg.all, e.deleg.to
}

// uniform reports whether one algorithm serves all files.
func (e *Engine) uniform() bool {
	if e.o.Uniform == nil {
		return false
	}
	alg := e.o.Uniform()
	if alg == "" {
		return false
	}
	for _, pinned := range e.pinned {
		if pinned != alg {
			return false
		}
	}
	return true
}

// delegate has the machine of a new entry begin as what this node delegates
// requires.
func (e *Engine) delegate(en *entry) {
	if e.delegates(en) {
		en.machine.(locks.Delegable).Delegate(e.deleg.to)
	}
}

// delegates reports whether this node delegates the file of en to another one.
func (e *Engine) delegates(en *entry) bool {
	_, ok := en.delegable()
	if !ok || e.phase != active || e.deleg.to == "" {
		return false
	}
	_, excepted := e.deleg.excepted[en.key]
	return !excepted
}

// delegable is the machine of en, if delegations are about it.
func (en *entry) delegable() (locks.Delegable, bool) {
	m, ok := en.machine.(locks.Delegable)
	return m, ok && en.key.Class == locks.Open
}

// opens is called when a program has made en known here, to open its file in
// mode m. clean: what is cached of the file was known to be good.
func (e *Engine) opens(en *entry, m locks.Mode, clean bool) {
	machine, ok := en.delegable()
	if !ok || e.phase != active || len(e.view.Members) == 1 {
		return
	}
	d, t, now := &e.deleg, &e.delegTimes, e.Moment()
	if !clean {
		t.opened = now
	}
	if e.delegates(en) && !d.recalled {
		d.recalled = true
		e.tellMember(d.to, []byte{frameRecall})
	}
	if m != locks.Write {
		return
	}
	if _, told := d.told[en.key]; d.all && !told {
		machine.Delegated()
		t.used = now
		d.uses++
		return
	}
	if now-t.since > locks.Moment(time.Second) {
		t.firsts, t.since = 0, now
	}
	t.firsts++
	if t.firsts >= e.o.Delegations.After && now >= t.next {
		e.askForDelegations()
	}
}

func (e *Engine) tellMember(n locks.NodeID, frames ...[]byte) {
	for _, f := range frames {
		e.o.Transport.Send(e.view.Epoch, n, f)
	}
}

// askForDelegations begins, if this node may ask.
func (e *Engine) askForDelegations() {
	d := &e.deleg
	if d.to != "" || d.listing || d.told != nil || len(d.asked)+len(d.from) > 0 || !e.uniform() {
		return
	}
	d.told, d.asked, d.from = map[locks.Key]struct{}{}, map[locks.NodeID]bool{}, map[locks.NodeID]bool{}
	var others, first []locks.NodeID
	for _, n := range e.view.Members {
		switch n {
		case e.view.Self:
		case e.delegTimes.refused:
			first = append(first, n)
		default:
			others = append(others, n)
		}
	}
	if len(first) == 0 {
		first, others = others, nil
	}
	d.later = others
	e.askFor(first)
}

// askFor asks members to delegate to this node.
func (e *Engine) askFor(ns []locks.NodeID) {
	for _, n := range ns {
		e.deleg.asked[n] = true
		e.tellMember(n, []byte{frameWant})
	}
}

// mention notes that members are told something of k.
func (d *delegations) mention(k locks.Key) {
	if k.Class != locks.Open {
		return
	}
	if d.told != nil {
		d.told[k] = struct{}{}
	}
	if d.since != nil {
		d.since[k] = struct{}{}
	}
}

func (e *Engine) receiveDelegation(from locks.NodeID, f *frame) error {
	d := &e.deleg
	switch f.kind {
	case frameWant:
		if d.to == from {
			return fmt.Errorf("this node delegates to it already")
		}
		e.answerWish(from)
	case frameRefuse:
		if !d.asked[from] {
			return fmt.Errorf("it was not asked")
		}
		delete(d.asked, from)
		e.delegTimes.refused = from
		if d.told != nil { // else another one has refused already
			e.returnAll("refused", from)
		}
	case frameDelegate:
		if !d.asked[from] {
			return fmt.Errorf("it was not asked")
		}
		if err := e.raiseFloor(f.token); err != nil {
			return err
		}
		if d.told != nil { // else another one has refused
			for _, k := range f.keys {
				d.mention(k)
			}
		}
		if f.more {
			return nil
		}
		delete(d.asked, from)
		d.from[from] = true
		switch {
		case d.told == nil: // another one has refused
			e.giveBack()
		case len(d.asked) == 0 && len(d.later) > 0:
			later := d.later
			d.later = nil
			e.askFor(later)
		case len(d.asked) == 0:
			d.all = true
			e.delegTimes.refused = ""
			e.delegTimes.used = e.Moment()
			e.wake()
			e.o.Log.Debug("the other members have delegated the files to this one that they do not use")
		}
	case frameRecall:
		if d.from[from] { // else it has been returned meanwhile
			e.returnAll("recalled", from)
		}
	case frameReturn:
		if d.to != from {
			return fmt.Errorf("this node does not delegate to it")
		}
		return e.takeBack(f)
	}
	return nil
}

// raiseFloor makes tokens of machines to come greater than t.
func (e *Engine) raiseFloor(t locks.Token) error {
	if t < locks.TokenFloor(e.view.Epoch) || t >= locks.TokenFloor(e.view.Epoch+1) {
		return fmt.Errorf("token %v is not of epoch %d", t, e.view.Epoch)
	}
	e.floor = max(e.floor, t)
	return nil
}

// A node that delegates lists the files that it excepts, and there may be 65,000
// of them. That is done in parts. Until it is over nothing is delegated, so that
// what becomes known here meanwhile, or is dropped, is just one exception more.

// answerWish delegates to n, or refuses.
// REQUIRES: e.mu held. It may let go of it in between.
func (e *Engine) answerWish(n locks.NodeID) {
	d := &e.deleg
	if d.to != "" || d.listing || d.told != nil || len(d.asked)+len(d.from) > 0 || !e.uniform() ||
		len(e.entries)+e.clean.len() > maxExcepted ||
		e.Moment()-e.delegTimes.opened < locks.Moment(e.o.Delegations.Quiet) {
		e.tellMember(n, []byte{frameRefuse})
		return
	}
	d.listing, d.excepted = true, map[locks.Key]struct{}{}
	list, token, ok := e.listExceptions(n)
	if !ok {
		return // the epoch is over
	}
	d.to, d.listing, d.recalled, d.returned = n, false, false, nil
	e.tellMember(n, keysFrames(frameDelegate, max(token, e.least()), list)...)
	e.o.Log.Debug("delegated the files that this node does not use", "to", n)
}

// listExceptions tells n what is excepted, but for the rest, which it returns, and
// a token that is at least that of every grant of class Open that this node knows
// of. It is false if the epoch ends meanwhile.
func (e *Engine) listExceptions(n locks.NodeID) (rest []locks.Key, token locks.Token, ok bool) {
	d, epoch := &e.deleg, e.view.Epoch
	over := func() bool { return e.mu.breathe() && (e.phase != active || e.view.Epoch != epoch) }
	for k, en := range e.entries {
		d.except(k)
		if token = max(token, en.machine.Token()); over() {
			return nil, 0, false
		}
	}
	for k := range e.clean.keys() {
		if d.except(k); over() {
			return nil, 0, false
		}
	}
	if len(d.untold) <= exceptionsAtOnce { // so that a run can be repeated; nobody needs it
		slices.SortFunc(d.untold, locks.Key.Compare)
	}
	for len(d.untold) > exceptionsAtOnce {
		e.tellMember(n, keysFrame(frameDelegate, true, e.least(), d.untold[:exceptionsAtOnce]))
		if d.untold = d.untold[exceptionsAtOnce:]; over() {
			return nil, 0, false
		}
	}
	rest, d.untold = d.untold, nil
	return rest, token, true
}

// exceptionsAtOnce is how many exceptions are in a message, and how many files
// that are kept when a delegation ends. Tests make it smaller.
var exceptionsAtOnce = 512

// except notes that k is known here, or was, if exceptions are being listed.
func (d *delegations) except(k locks.Key) {
	if !d.listing || k.Class != locks.Open {
		return
	}
	if _, again := d.excepted[k]; !again {
		d.excepted[k] = struct{}{}
		d.untold = append(d.untold, k)
	}
}

// least is a token of this epoch that is at least that of every machine that was
// dropped.
func (e *Engine) least() locks.Token { return max(e.floor, locks.TokenFloor(e.view.Epoch)) }

// defaults reports whether a machine of en that is made anew begins as this one
// is, since this node delegates. While what is kept is being listed none is
// dropped: it may be on the list.
func (e *Engine) defaults(en *entry) bool {
	return e.delegates(en) && e.deleg.returned == nil && en.machine.(locks.Delegable).Redundant(e.deleg.to)
}

// shed reports whether en can be dropped without a word, since this node is the
// delegate of all, and no member was told of it. If all it takes is a
// write-out, that is begun.
func (e *Engine) shed(en *entry) bool {
	m, ok := en.delegable()
	if !ok || e.phase != active || !e.deleg.all || en.busy() || !m.Redundant("") {
		return false
	}
	if _, told := e.deleg.told[en.key]; told {
		return false
	}
	if en.dirty && !e.isClean(en.key) {
		e.queue(en, true, nil)
		return false
	}
	en.dirty = false
	return true
}

// idleDelegations returns what is of no use any more, and else says when that
// will be so, if nothing happens; 0 if there is nothing to return.
func (e *Engine) idleDelegations() time.Duration {
	if !e.deleg.all || e.phase != active {
		return 0
	}
	left := time.Duration(e.delegTimes.used-e.Moment()) + e.o.Delegations.Unused
	switch {
	case len(e.deleg.told) > maxTold:
		e.returnAll("too many exceptions", e.view.Self)
	case left <= 0:
		e.returnAll("not used", e.view.Self)
	default:
		return left
	}
	return 0
}
