package baseline

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// Liu is the read/write algorithm of Liu et al. for whole files, mended: reads
// are silent, writes are announced to all. The paper's ideas are kept (a
// concurrent REQUEST counts as a REPLY; CREPLY to the next writer), with the
// rules without which they are not safe:
//
//   - One announced write per node. What comes after it at that node has no
//     stamp until it is over. So reads for which a write does not wait have
//     greater stamps than every write known there.
//   - A REQUEST says whether its node still has stamped reads (rd). If so, it
//     is a permission only for writes that go before it.
//   - All that is not later than floor is over: writes enter in the order of
//     their stamps, so the last one says it for all.
//   - Every message says which request of the receiver the sender has permitted
//     (allows); a REQUEST also says which one its sender knew of (knew).
//     Whether two are concurrent is decided by that, not by who came first.
//   - A REPLY repeats the sender's own open REQUEST, which it may overtake.
//
// A write costs at most 3(N-1) messages: REQUEST, REPLY, and CREPLY or RELEASE.
// A read costs none.
var Liu = Algorithm{Name: "liu", Shared: true, New: func(v *locks.View) Machine { return newLiu(v) }}

type liu struct {
	group
	high  uint64 // the largest SN seen
	sub   uint64 // the paper's SNr
	floor stamp  // all writes up to here are over
	last  stamp  // the last write of this node that is over

	// The announced write of this node, if writing.
	own           stamp
	ticket        locks.TicketID
	writing, inCS bool
	ownReads      bool    // reads were there when it was announced
	allowed       []bool  // by whom
	ownKnew       []stamp // what was said of that to whom

	rq      []stamp // the write of each that is announced and not known to be over
	rqReads []bool  // with its rd
	seen    []stamp // the latest write ever heard of
	given   []stamp // the latest write permitted
	owed    []stamp // the write to which a REPLY is due

	queue []locks.Ticket // without a stamp yet
	reads []liuRead      // with a stamp
}

type liuRead struct {
	ticket locks.TicketID
	s      stamp
	active bool
}

func newLiu(v *locks.View) *liu {
	g := newGroup(v)
	stamps := func() []stamp { return make([]stamp, g.n()) }
	return &liu{
		group: g, allowed: make([]bool, g.n()), ownKnew: stamps(), rqReads: make([]bool, g.n()),
		rq: stamps(), seen: stamps(), given: stamps(), owed: stamps(),
	}
}

// Acquire queues a ticket.
func (m *liu) Acquire(t locks.Ticket, out *locks.Turn) {
	m.queue = append(m.queue, t)
	m.pump(out)
}

// Replace ends a read or the write.
func (m *liu) Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn) {
	for i, r := range m.reads {
		if len(old) == 1 && r.ticket == old[0] && r.active {
			mustRelease(old, parts, true, r.ticket)
			m.reads = slices.Delete(m.reads, i, i+1)
			m.pump(out)
			return
		}
	}
	mustRelease(old, parts, m.inCS, m.ticket)
	m.writing, m.inCS = false, false
	m.last = m.own
	m.raise(m.own)
	next, nobody := -1, true
	for k, s := range m.rq {
		if !s.none() && (nobody || s.before(m.rq[next])) {
			next, nobody = k, false
		}
	}
	for k := range m.members {
		if k == m.self || !m.owed[k].none() { // a REPLY that is owed brings the news
			continue
		}
		switch {
		case k == next:
			m.given[k] = m.rq[k]
			m.tell(k, liuCReply, out)
		case m.rq[k].none() || m.rqReads[k]:
			m.tell(k, liuRelease, out)
		}
	}
	m.pump(out)
}

func (m *liu) Expire(*locks.Turn) {}

// clock hears of an SN.
func (m *liu) clock(sn uint64) {
	if sn > m.high {
		m.high, m.sub = sn, 0
	}
}

// raise: all writes up to s are over.
func (m *liu) raise(s stamp) {
	m.clock(s.sn)
	if s.over(m.floor) {
		return
	}
	m.floor = s
	for k := range m.members {
		m.forget(k, s)
	}
}

// forget drops what is open of k's writes up to s.
func (m *liu) forget(k int, s stamp) {
	if m.rq[k].over(s) {
		m.rq[k] = stamp{}
	}
	if m.owed[k].over(s) {
		m.owed[k] = stamp{}
	}
}

// Receive takes what every message says first, and then its own part.
func (m *liu) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	k, err := m.peer(from)
	if err != nil {
		return err
	}
	x, ok := msg.(*liuMsg)
	if !ok {
		return fmt.Errorf("unknown message %v", msg)
	}
	m.raise(x.floor)
	if m.writing && x.allows == m.own {
		m.allowed[k] = true
	}
	m.seen[k] = later(m.seen[k], x.last)
	m.clock(x.last.sn)
	m.forget(k, x.last)
	if !x.s.none() {
		m.request(k, x)
	}
	m.pump(out)
	return nil
}

// request hears of a write of k.
func (m *liu) request(k int, x *liuMsg) {
	p := x.s
	if p.over(m.seen[k]) {
		return // heard of before
	}
	m.seen[k] = p
	m.clock(p.sn)
	m.owed[k], m.rq[k] = stamp{}, stamp{}
	over := p.over(m.floor)
	if !over {
		m.rq[k], m.rqReads[k] = p, x.reads
	}
	switch {
	case !m.writing || x.knew == m.own:
		// It knew of the write of this node, if there is one: permission for
		// that comes by itself.
		if !over {
			m.owed[k] = p
		}
	default: // concurrent
		if over || p.before(m.own) || !x.reads {
			m.allowed[k] = true // its REQUEST is its permission
		}
		if over {
			return
		}
		if p.before(m.own) && m.ownReads {
			m.owed[k] = p
		} else {
			m.given[k] = p // the REQUEST of this node is its permission
		}
	}
}

// pump does all that can be done.
func (m *liu) pump(out *locks.Turn) {
	for len(m.queue) > 0 && !m.writing {
		t := m.queue[0]
		m.queue = slices.Delete(m.queue, 0, 1)
		m.sub++
		s := stamp{m.high + 1, m.self, m.sub}
		if t.Mode == locks.Read {
			m.reads = append(m.reads, liuRead{ticket: t.ID, s: s})
		} else {
			m.announce(s, t.ID, out)
		}
	}
	for i := range m.reads {
		if r := &m.reads[i]; !r.active && !m.behind(r.s) {
			r.active = true
			grant(r.ticket, out)
		}
	}
	for k, p := range m.owed {
		if !p.none() && !(m.writing && m.own.before(p)) && !m.reading(p) {
			m.owed[k] = stamp{}
			m.given[k] = p
			m.tell(k, liuReply, out)
		}
	}
	if m.writing && !m.inCS && len(m.reads) == 0 && m.allAllow() && !m.behind(m.own) {
		m.inCS = true
		grant(m.ticket, out)
	}
}

func (m *liu) announce(s stamp, id locks.TicketID, out *locks.Turn) {
	m.high, m.sub = s.sn, 0
	m.own, m.ticket, m.writing = s, id, true
	m.ownReads = len(m.reads) > 0
	clear(m.allowed)
	copy(m.ownKnew, m.seen)
	for k := range m.members {
		if k != m.self {
			m.tell(k, liuRequest, out)
		}
	}
}

// behind reports whether a write that is not over goes before s.
func (m *liu) behind(s stamp) bool {
	return slices.ContainsFunc(m.rq, func(p stamp) bool { return !p.none() && p.before(s) })
}

// reading reports whether a read keeps the write p from being permitted.
func (m *liu) reading(p stamp) bool {
	return slices.ContainsFunc(m.reads, func(r liuRead) bool { return r.active || r.s.before(p) })
}

func (m *liu) allAllow() bool {
	for k, ok := range m.allowed {
		if !ok && k != m.self {
			return false
		}
	}
	return true
}
