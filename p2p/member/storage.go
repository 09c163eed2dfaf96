package member

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"dmxfs/locks"
)

// disk is what the machine keeps of the shared storage.
type disk struct {
	busy    Op          // the one operation under way
	due     int64       // when a look is due
	wrote   bool        // the last operation was not a look
	began   int64       // the start of the last look that did not fail
	seen    bool        // there was one
	newest  locks.Epoch // in that
	prune   bool        // this node made the view: it cleans up
	asks    []UnaskOp   // of this node, that may be there: each with how to remove it
	answers []Challenge
	done    map[Node]Inc // the ask of a node that was answered last

	errs    [3]string   // what is wrong with reading, linking and writing; empty if nothing
	bad     *bad        // the newest view cannot be read
	stray   locks.Epoch // a file among the views that is none
	missing int64       // the start of the first look that did not show the own view; 0: the last one did
}

// bad is a view that the listing shows and that cannot be read.
type bad struct {
	epoch locks.Epoch
	err   error
	age   int64 // waking time since it was first seen
	from  int64 // when that was
}

func (b *bad) Error() string { return fmt.Sprintf("view %d: %v", b.epoch, b.err) }

// lostLimit is how long, in milliseconds, a member's own view may be missing
// from the listings before it gives up.
const lostLimit = 30_000

func (d *disk) wake(m *Machine) {
	if d.bad != nil {
		d.bad.age += m.awake(d.bad.from)
	}
}

// above reports that there is a view above v that cannot be read: whatever this
// node proposes on v would lose.
func (d *disk) above(v *View) bool { return d.bad != nil && d.bad.epoch > v.Epoch }

// storage starts the next operation, if none is under way and one is due.
func (m *Machine) storage() {
	d := &m.disk
	if d.busy != nil {
		return
	}
	p := m.prop
	interval := m.p.Look
	if m.st == StateOut {
		interval = m.p.LookOut
	}
	look := func() {
		op := LookOp{Known: m.top().Epoch, Asks: m.st != StateOut}
		if m.join.ask != nil {
			op.For = m.join.ask.c.Node
		}
		d.due = m.now + interval
		d.busy = op
	}
	// Neither looks nor writes may starve when each takes longer than it should.
	lookFirst := d.wrote && m.now >= d.due
	switch {
	case p != nil && p.stage == stageLink && m.now >= p.at:
		d.busy = LinkOp{View: p.view, File: p.file}
	case p != nil && p.stage != stageLink && m.now >= p.at:
		look()
	case lookFirst:
		look()
	case len(d.answers) > 0 && m.st != StateOut:
		c := d.answers[0]
		d.answers = d.answers[1:]
		d.busy = AnswerOp{Answer{To: c.Node, Nonce: c.Nonce, Node: m.me, Host: m.cfg.Self.Host, Addrs: m.cfg.Self.Addrs, Epoch: m.v.Epoch, Own: c.Own}}
	case m.st == StateOut && m.join.ask != nil && !m.join.ask.posted:
		d.busy = m.postAsk()
	case m.now >= d.due:
		look()
	case m.oldAsk() >= 0:
		i := m.oldAsk()
		d.busy = d.asks[i]
		d.asks = slices.Delete(d.asks, i, i+1)
	case d.prune && p == nil:
		d.prune = false
		if e := m.v.Epoch; uint64(e) > m.p.Keep {
			d.busy = PruneOp{Below: e - locks.Epoch(m.p.Keep)}
		} else {
			d.busy = PruneOp{} // old asks and the like
		}
	}
	if d.busy != nil {
		_, isLook := d.busy.(LookOp)
		d.wrote = !isLook
	}
	m.out.Storage = d.busy
}

// postAsk is the operation that posts the ask. One that is not Own stands in
// the place of the last one.
func (m *Machine) postAsk() AskOp {
	c, d := m.join.ask.c, &m.disk
	if !c.Own {
		d.asks = slices.DeleteFunc(d.asks, func(u UnaskOp) bool { return !u.Own })
	}
	d.asks = append(d.asks, UnaskOp{Node: c.Node, Own: c.Own})
	return AskOp{c}
}

// oldAsk is the place in disk.asks of one that is not needed any more, or -1.
func (m *Machine) oldAsk() int {
	return slices.IndexFunc(m.disk.asks, func(u UnaskOp) bool {
		a := m.join.ask
		return a == nil || u.Own && (u.Node != a.c.Node || !a.c.Own)
	})
}

// done takes the result of the operation under way.
func (m *Machine) done(in Done) {
	op := m.disk.busy
	m.disk.busy = nil
	switch op := op.(type) {
	case LookOp:
		m.noteStorage(reading, "the views cannot be read", in.Err)
		if in.Err != nil {
			m.lookFailed()
			return
		}
		m.looked(op, in.Look)
	case LinkOp:
		m.linked(op, in.Err)
	case AskOp:
		m.noteStorage(writing, "the ask of this node cannot be written", in.Err)
		a := m.join.ask
		if a == nil || a.c.Nonce != op.Challenge.Nonce {
			return // about another base
		}
		if in.Err == nil {
			a.posted, a.from = true, m.now
		} else {
			m.dropAsk()
			m.join.askAt = m.now + m.p.Retry
		}
	case AnswerOp:
		m.noteStorage(writing, "an answer cannot be written", in.Err)
	case PruneOp, UnaskOp:
		m.noteStorage(writing, "old files cannot be removed", in.Err)
	}
}

// The kinds of trouble with the storage. One can last while others work.
const (
	reading = iota
	linking
	writing
)

// noteStorage tells the log when trouble of a kind begins, and when it is over.
func (m *Machine) noteStorage(kind int, what string, err error) {
	last := &m.disk.errs[kind]
	switch {
	case err == nil && *last != "":
		m.note(Storage, Node{}, "", "the storage works again, after: %s", *last)
		*last = ""
	case err != nil && *last == "":
		m.note(Storage, Node{}, "", "%s: %v", what, err)
		*last = what + ": " + err.Error()
	case err != nil:
		*last = what + ": " + err.Error()
	}
}

// trouble is all that is wrong with the storage; empty if nothing is.
func (d *disk) trouble() string {
	list := slices.DeleteFunc(slices.Clone(d.errs[:]), func(s string) bool { return s == "" })
	if d.bad != nil {
		list = append(list, d.bad.Error())
	}
	return strings.Join(list, "; ")
}

// linked: the link was tried. Even if it worked it is believed only when a
// look that begins after it shows the view as the newest: the name may have
// been one that was pruned. If it failed it may have worked all the same, or
// work later, so that the same link is tried until a view of its epoch, or
// above, is known.
func (m *Machine) linked(op LinkOp, err error) {
	trouble := err
	if errors.Is(err, ErrExists) {
		trouble = nil
	}
	m.noteStorage(linking, fmt.Sprintf("view %d cannot be linked", op.View.Epoch), trouble)
	p := m.prop
	if p == nil || !p.view.same(op.View) {
		return // its outcome is known already
	}
	p.stage, p.at = stageLooking, m.now
	if err != nil {
		p.stage = stageUnknown
	}
	if m.bug.believeLink && err == nil {
		m.learn(p.view, true)
	}
	if m.bug.forgetUnknown && err != nil {
		m.prop = nil
	}
}

func (m *Machine) lookFailed() {
	m.disk.due = m.now + m.p.Retry
	if m.prop != nil && m.prop.stage != stageLink {
		m.prop.at = m.now + m.p.Retry
	}
}

// looked takes what a look saw.
func (m *Machine) looked(op LookOp, l Look) {
	m.disk.seen = true
	m.disk.newest = l.Newest
	m.disk.began = max(m.disk.began, l.Began)
	m.noteBad(l)
	m.noteStray(l)
	newer := l.View != nil && l.View.Epoch > m.top().Epoch
	p := m.prop
	switch {
	case p == nil:
		if newer {
			m.learn(l.View, false)
		}
	case newer && l.View.same(p.view):
		if l.Newest == l.View.Epoch {
			m.learn(l.View, true)
		} else {
			p.at = m.now + m.p.Retry // something above it cannot be read
		}
	case newer:
		m.learn(l.View, false) // it lost
	case p.stage != stageLink:
		// The listing is older than the link, or the link has not been
		// carried out, or what has the name cannot be read.
		p.at = m.now + m.p.Retry
		if p.stage == stageUnknown && l.Newest < p.view.Epoch {
			p.stage = stageLink
		}
	}
	if m.end {
		return
	}
	m.countLook(op, l)
	if m.end {
		return
	}
	m.noteAsks(l.Asks)
	m.onAnswers(l.Answers)
}

// countLook renews the look tenure, if the look showed that no view is above
// this node's. One that does not show this node's own view is of another
// directory, or older than it.
func (m *Machine) countLook(op LookOp, l Look) {
	if m.st == StateOut || m.next != nil || l.Newest > m.v.Epoch {
		return
	}
	// A listing may be S old, so that it need not show a view that is younger.
	if l.Known && op.Known == m.v.Epoch || l.Began < m.knownFrom+m.cfg.Self.Cache || m.bug.graceForLooks && m.known < m.cfg.Self.Cache+m.p.LookTenure {
		m.disk.missing = 0
		at := l.Began
		if m.bug.lookAtReply {
			at = m.now
		}
		m.lookAt = max(m.lookAt, at)
		return
	}
	if op.Known != m.v.Epoch {
		return
	}
	if m.disk.missing == 0 {
		m.disk.missing = l.Began
		m.note(Storage, Node{}, "", "view %d is missing from the shared storage: was .dmxfs removed, or another directory mounted there?", m.v.Epoch)
	}
	if l.Began-m.disk.missing >= lostLimit {
		m.finish(End{Code: EndLost, Text: fmt.Sprintf("view %d has been missing from the shared storage for %d s: was .dmxfs removed, or another directory mounted there?", m.v.Epoch, lostLimit/1000)})
	}
}

// noteBad keeps for how long the newest view could not be read. A view of
// another cluster, or of a newer dmxfs, is never taken over.
func (m *Machine) noteBad(l Look) {
	d := &m.disk
	if l.Bad == nil || l.Newest <= m.top().Epoch {
		d.bad = nil
		return
	}
	if d.bad == nil || d.bad.epoch != l.Newest {
		d.bad = &bad{epoch: l.Newest, from: m.now}
		m.note(Storage, Node{}, "", "view %d: %v", l.Newest, l.Bad)
	}
	d.bad.err = l.Bad
}

// noteStray tells the log of a file that somebody has put among the views.
func (m *Machine) noteStray(l Look) {
	if l.Stray != m.disk.stray && l.Stray != 0 {
		m.note(Storage, Node{}, "", "%s/%s is no view, and is passed over: remove it", ".dmxfs/views", ViewName(l.Stray))
	}
	m.disk.stray = l.Stray
}

// tryUnreadable gives up where the newest view can never be read, and builds on
// one that is damaged. It is called after every input.
func (m *Machine) tryUnreadable() {
	d := &m.disk
	if m.next != nil || !d.above(m.v) {
		return
	}
	code := EndCode(0)
	switch {
	case errors.Is(d.bad.err, ErrForeign):
		code = EndForeign
	case errors.Is(d.bad.err, ErrNewer):
		code = EndNewer
	}
	patience := m.p.LookTenure + m.p.lookMargin() + m.cfg.Self.Cache
	if code != 0 && m.st == StateOut {
		patience = 0
	}
	switch {
	case d.bad.age < patience:
	case code == EndNewer:
		m.finish(End{Code: code, Text: fmt.Sprintf("%v; this is %s: all hosts of a cluster run the same version", d.bad, ownVersion(m.cfg.Self.Version))})
	case code != 0:
		m.finish(End{Code: code, Text: d.bad.Error()})
	case m.st == StateLeaving:
		m.finishLeave(d.bad.Error())
	case m.st == StateMember:
		// Nobody here knows whether that view has this node, and who was
		// given its locks since. So it starts anew.
		m.out.Expelled = &Expelled{Epoch: d.bad.epoch, Why: d.bad.Error()}
		m.join = join{at: m.now + max(m.saved.Backoff, m.p.BackoffMin)}
		m.prop = nil
		m.outside(m.v)
	case m.cfg.HasFence:
		m.noteWaiting("%v: nobody can go on, since only it says who has to be fenced; stop all nodes, remove that file, and start again", d.bad)
	case m.prop != nil && m.prop.view.Epoch > d.bad.epoch: // under way
	case m.join.quit || m.now < m.join.at || !m.cfg.Bury.IsZero():
	default:
		m.takeOver()
	}
}

// takeOver proposes a view above one that cannot be read, of this node alone.
// Members of that one may be alive. They learn of this one, or lose their look
// tenure, while it holds back: see View.Unsure.
func (m *Machine) takeOver() {
	m.newInc()
	m.join.rebase()
	w := m.v.next(m.me, ReasonUnreadable)
	w.Epoch = m.disk.bad.epoch + 1
	for _, y := range m.v.Members {
		w.drop(y.Node, m.disk.bad.Error())
	}
	if len(m.v.Members) == 0 {
		w.Timing = m.p.Timing
	}
	w.add(m.self())
	m.bringFileID(w)
	m.propose(w)
}

// noteAsks answers newcomers that reach the storage but no member. Whether
// this node is live does not matter: it is there.
func (m *Machine) noteAsks(asks []Challenge) {
	if m.st == StateOut {
		return
	}
	d := &m.disk
	done := make(map[Node]Inc, len(asks))
	for _, c := range asks {
		twin := m.isTwin(c.Node)
		switch {
		case twin && (slices.Contains(m.lives, c.Node.Inc) || m.leave.then != nil): // its own of before, or it goes
			continue
		case !twin && m.v.Has(c.Node):
			continue
		}
		if d.done[c.Node] != c.Nonce {
			d.answers = append(d.answers, c)
			switch {
			case twin:
				m.noteTwin(c)
			case !c.Own:
				m.out.Meet = append(m.out.Meet, Contact{c.Node.Peer, c.Addrs})
			}
		}
		done[c.Node] = c.Nonce
	}
	d.done = done
}
