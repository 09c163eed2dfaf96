package fusefs

import (
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// place is where a request is read to: a slot of [Requests], or a buffer.
type place struct {
	in        []byte
	slot      slot
	b         *[]byte
	elsewhere bool // it is counted as one that is in no slot, though it should be
}

// newPlace is where r reads the next request to.
func newPlace(c *conn, r *reader) (p place) {
	if m := c.requests; m != nil {
		ok := r.large.slotHead != nil
		if ok {
			p.slot, r.large = r.large, slot{}
		} else {
			p.slot, ok = m.take(largeArea)
		}
		if ok {
			p.slot.reads()
			p.in = p.slot.data
			return p
		}
		m.h.elsewhere.Add(1)
		p.elsewhere = true
	}
	p.b = c.large.Get().(*[]byte)
	p.in = (*p.b)[pageSize-writeHead:]
	return p
}

// leave gives p back. A slot is kept for the next request of r.
func (p *place) leave(c *conn, r *reader) {
	switch s := &p.slot; {
	case s.slotHead == nil:
	case s.large && r.large.slotHead == nil:
		s.phase.Store(phaseFree)
		r.large = *s
	case !s.large && r.small.slotHead == nil:
		s.phase.Store(phaseFree)
		r.small = *s
	default:
		s.giveBack()
	}
	p.slot = slot{}
	if p.b != nil {
		c.large.Put(p.b)
		p.b = nil
	}
	if p.elsewhere {
		p.elsewhere = false
		c.requests.h.elsewhere.Add(-1)
	}
}

// settle is called when the request in was read to p. If it is small it is taken to
// where it needs little room: it may wait for a lock, for hours, and with thousands of
// others.
func (p *place) settle(c *conn, r *reader, in []byte) []byte {
	small := head(in).Opcode != opWrite && len(in) <= pageSize
	switch {
	case p.slot.slotHead != nil && small:
		in = p.setAside(r, in)
	case p.slot.slotHead != nil:
		p.slot.took(len(in))
	case small:
		in = slices.Clone(in)
		c.large.Put(p.b)
		p.b = nil
	}
	c.point.at(in, atTaken)
	return in
}

// setAside copies a request into a small slot, if there is one.
func (p *place) setAside(r *reader, in []byte) []byte {
	x, ok := r.small, r.small.slotHead != nil
	if r.small = (slot{}); !ok {
		x, ok = p.slot.m.take(smallArea)
	}
	if !ok {
		p.slot.took(len(in))
		return in
	}
	in = x.data[:copy(x.data, in)]
	x.renew()
	x.took(len(in))
	p.slot.phase.Store(phaseFree)
	r.large, p.slot = p.slot, x
	return in
}

// givesBack gives back the slots that r has kept for its next request.
func (r *reader) givesBack() {
	r.large.giveBack()
	r.small.giveBack()
}

// answersIn is where an answer without data is made, so that it is noted; nil: it is not.
func (s *slot) answersIn(small bool) []byte {
	if s == nil || s.slotHead == nil || !small {
		return nil
	}
	return s.answer[:]
}

const (
	opForget      = 2
	opBatchForget = 42
)

// before is called before a request is handled. A FORGET counts as done: who dies now
// leaves a count that is too high, and not one that is too low.
func (s *slot) before(in []byte) {
	if op := head(in).Opcode; op == opForget || op == opBatchForget {
		s.done(0)
	}
}

// notes notes an answer of n bytes, which is written next.
func (s *slot) notes(c *conn, in []byte, n int) {
	s.done(n)
	if c.owes.Load() > 0 {
		c.readers.tells(head(in).Unique)
	}
	c.point.at(in, atDone)
}

// The points of a request, as tests call them.
const (
	atTaken    = "taken"
	atAsked    = "asked" // the others; see findOut
	atBegun    = "begun"
	atCalled   = "called"
	atMade     = "made"
	atOpened   = "opened"
	atDone     = "done"
	atAnswered = "answered"
)

// point is what tests end the process by, or nil.
type point func(op uint32, where string)

func (p point) at(in []byte, where string) {
	if p != nil {
		p(head(in).Opcode, where)
	}
}

// of is the reader that answers a request, or nil.
func (rs *readers) of(request uint64) *reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.serving[request]
}

// tells does what was to be done when the answer of a request is noted.
func (rs *readers) tells(request uint64) {
	rs.mu.Lock()
	r := rs.serving[request]
	var after []func()
	if r != nil {
		after, r.after = r.after, nil
	}
	rs.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// told is called when a request tells h of a failure. That it was told is written down
// only when the answer is noted: whoever makes it again must find the failure.
func (l *ledger) told(in *fuse.InHeader, h *handle) {
	if l == nil {
		return
	}
	rs := l.conn.readers
	rs.mu.Lock()
	r := rs.serving[in.Unique]
	if r != nil && r.slot.slotHead != nil {
		l.conn.owes.Add(1)
		r.after = append(r.after, func() {
			l.knows(h)
			l.conn.owes.Add(-1)
		})
		rs.mu.Unlock()
		return
	}
	rs.mu.Unlock()
	l.knows(h)
}

// keep puts what the process before this one has left into the memory of this one.
func (l *leftOver) keep(c *conn, unlocks uint64) {
	if c.requests == nil {
		return
	}
	c.requests.h.unlocks.Store(unlocks)
	for i := range l.requests {
		x := &l.requests[i]
		area := smallArea
		if head(x.Bytes).Opcode == opWrite || len(x.Bytes) > pageSize {
			area = largeArea
		}
		s, ok := c.requests.take(area)
		if !ok {
			c.requests.h.elsewhere.Add(1)
			x.elsewhere = true
			continue
		}
		s.reads()
		copy(s.data, x.Bytes)
		if x.Interrupted {
			s.interrupted.Store(1)
		}
		if x.Handle != 0 {
			s.reserve(x.Key, x.Handle)
		}
		if s.took(len(x.Bytes)); x.past != nil {
			s.steps[0] = x.past.step
			s.phase.Store(x.past.phase)
		}
		x.slot = s
	}
	for i := range c.answers {
		a := &c.answers[i]
		s, ok := c.requests.take(smallArea)
		if !ok {
			c.requests.h.elsewhere.Add(1)
			a.elsewhere = true
			continue
		}
		s.reads()
		copy(s.data, a.request)
		head(s.data).Length = uint32(len(a.request)) // not all of it, if it is long
		s.took(len(a.request))
		copy(s.answer[:], a.bytes)
		s.done(len(a.bytes))
		a.slot = s
	}
}

// answerAgain writes the answers that the process before this one has noted, and perhaps
// written: then the kernel does not know their requests any more.
func answerAgain(c *conn) {
	for i := range c.answers {
		a := &c.answers[i]
		_ = c.file.write(a.bytes)
		if a.slot.giveBack(); a.elsewhere {
			c.requests.h.elsewhere.Add(-1)
		}
	}
	c.answers = nil
}

// leftAnswer is an answer that a process which was killed has noted.
type leftAnswer struct {
	request   []byte // or its begin
	bytes     []byte
	slot      slot
	elsewhere bool
}
