package engine

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// lent is what this node delegates to another one, in one epoch: see delegation.go.
type lent struct {
	*base
	entries  *entries
	stepper  *stepper
	borrowed *borrowed

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
	// opened is when a file was opened last of which nothing was known. It outlives
	// an epoch.
	opened locks.Moment
}

// reset is called at the end of an epoch.
func (l *lent) reset() {
	l.to, l.excepted, l.listing, l.untold, l.recalled, l.returned = "", nil, false, nil, false, nil
}

// begin has the machine of a new entry begin as what this node delegates
// requires.
func (l *lent) begin(en *entry) {
	if l.covers(en) {
		en.machine.(locks.Delegable).Delegate(l.to)
	}
}

// covers reports whether this node delegates the file of en to another one.
func (l *lent) covers(en *entry) bool {
	_, ok := en.delegable()
	if !ok || l.phase != active || l.to == "" {
		return false
	}
	_, excepted := l.excepted[en.key]
	return !excepted
}

// opens is called when a program has made en known here, to open its file.
// clean: what is cached of the file was known to be good.
func (l *lent) opens(en *entry, clean bool) {
	if !l.concerns(en) {
		return
	}
	if !clean {
		l.opened = l.Moment()
	}
	if l.covers(en) && !l.recalled {
		l.recalled = true
		l.tellMember(l.to, []byte{frameRecall})
	}
}

// lends reports whether this node delegates, or is about to.
func (l *lent) lends() bool { return l.to != "" || l.listing }

// receive takes what the node that is delegated to, or wishes that, says.
func (l *lent) receive(from locks.NodeID, f *frame) error {
	switch {
	case f.kind == frameReturn && l.to != from:
		return fmt.Errorf("this node does not delegate to it")
	case f.kind == frameReturn:
		return l.takeBack(f)
	case l.to == from:
		return fmt.Errorf("this node delegates to it already")
	}
	l.answer(from)
	return nil
}

// A node that delegates lists the files that it excepts, and there may be 65,000
// of them. That is done in parts. Until it is over nothing is delegated, so that
// what becomes known here meanwhile, or is dropped, is just one exception more.

// exceptionsAtOnce is how many exceptions are in a message, and how many files
// that are kept when a delegation ends. Tests make it smaller.
var exceptionsAtOnce = 512

// answer delegates to n, or refuses.
// REQUIRES: mu held. It may let go of it in between.
func (l *lent) answer(n locks.NodeID) {
	if l.lends() || l.borrowed.wishes() || !l.entries.uniform() ||
		len(l.entries.all)+l.entries.clean.len() > maxExcepted ||
		l.Moment()-l.opened < locks.Moment(l.o.Delegations.Quiet) {
		l.tellMember(n, []byte{frameRefuse})
		return
	}
	l.listing, l.excepted = true, map[locks.Key]struct{}{}
	list, token, ok := l.list(n)
	if !ok {
		return // the epoch is over
	}
	l.to, l.listing, l.recalled, l.returned = n, false, false, nil
	l.tellMember(n, keysFrames(frameDelegate, max(token, l.entries.least()), list)...)
	l.o.Log.Debug("delegated the files that this node does not use", "to", n)
}

// list tells n what is excepted, but for the rest, which it returns, and
// a token that is at least that of every grant of class Open that this node knows
// of. It is false if the epoch ends meanwhile.
func (l *lent) list(n locks.NodeID) (rest []locks.Key, token locks.Token, ok bool) {
	epoch := l.view.Epoch
	over := func() bool { return l.mu.breathe() && (l.phase != active || l.view.Epoch != epoch) }
	for k, en := range l.entries.all {
		l.except(k)
		if token = max(token, en.machine.Token()); over() {
			return nil, 0, false
		}
	}
	for k := range l.entries.clean.keys() {
		if l.except(k); over() {
			return nil, 0, false
		}
	}
	if len(l.untold) <= exceptionsAtOnce { // so that a run can be repeated; nobody needs it
		slices.SortFunc(l.untold, locks.Key.Compare)
	}
	for len(l.untold) > exceptionsAtOnce {
		l.tellMember(n, keysFrame(frameDelegate, true, l.entries.least(), l.untold[:exceptionsAtOnce]))
		if l.untold = l.untold[exceptionsAtOnce:]; over() {
			return nil, 0, false
		}
	}
	rest, l.untold = l.untold, nil
	return rest, token, true
}

// except notes that k is known here, or was, if exceptions are being listed.
func (l *lent) except(k locks.Key) {
	if !l.listing || k.Class != locks.Open {
		return
	}
	if _, again := l.excepted[k]; !again {
		l.excepted[k] = struct{}{}
		l.untold = append(l.untold, k)
	}
}

// exclude has k be no part of what this node delegates any more.
func (l *lent) exclude(k locks.Key) { l.excepted[k] = struct{}{} }

// defaults reports whether a machine of en that is made anew begins as this one
// is, since this node delegates. While what is kept is being listed none is
// dropped: it may be on the list.
func (l *lent) defaults(en *entry) bool {
	return l.covers(en) && l.returned == nil && en.machine.(locks.Delegable).Redundant(l.to)
}

// takeBack ends what this node delegates, with the last frame of what the
// delegate keeps.
// REQUIRES: mu held. It may let go of it in between.
func (l *lent) takeBack(f *frame) error {
	over := l.parts()
	if i := slices.IndexFunc(f.keys, func(k locks.Key) bool { return k.Class != locks.Open }); i >= 0 {
		return fmt.Errorf("%v was not delegated", f.keys[i])
	}
	if err := l.entries.raiseFloor(f.token); err != nil {
		return err
	}
	if l.returned == nil {
		l.returned = map[locks.Key]bool{}
	}
	for _, k := range f.keys {
		l.returned[k] = true
		if l.entries.entry(k, "", "") == nil {
			return fmt.Errorf("no algorithm serves %v", k)
		}
	}
	if f.more {
		return nil
	}
	by, kept := l.to, l.returned
	l.to, l.excepted, l.returned = "", nil, nil
	// The delegate has written files of which this node has not heard.
	l.entries.unseen()
	var err error
	for _, en := range l.entries.snapshot() {
		if over() {
			return err
		}
		m, ok := en.delegable()
		if !ok || l.entries.all[en.key] != en {
			continue
		}
		if !kept[en.key] {
			l.stepper.step(en, func(turn *locks.Turn) {
				if x := m.Returned(by, f.token, turn); x != nil {
					err = x
				}
			})
		}
		l.entries.tidy(en)
	}
	return err
}
