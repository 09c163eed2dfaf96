package p2ptest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// keepAlive is how long an end of a connection bears silence at least; at most
// it is twice as long.
const keepAlive = time.Second

// conn is a connection: two ends, and a flow from each to the other.
type conn struct {
	n    *Network
	ends [2]*end
}

// end is what one endpoint sees of a connection.
type end struct {
	c       *conn
	e       *Endpoint
	other   *end
	peer    peer.ID // of the other endpoint
	inbound bool
	opened  time.Time
	ctx     context.Context // ends with this end
	cancel  context.CancelCauseFunc
	flow    flow // to the other end

	mu      sync.Mutex
	streams map[uint64]*stream
	next    uint64 // number of the next stream: odd from the dialer, even from the other
	closed  bool
}

// segment is a piece of a flow.
type segment struct {
	at     time.Time // not delivered before
	kind   segmentKind
	stream uint64
	proto  protocol.ID
	data   []byte
}

type segmentKind int

const (
	openSegment segmentKind = iota
	acceptSegment
	dataSegment
	closeSegment // this direction of a stream ends
	resetSegment
)

// connect makes a connection. It reports false if one of the two has ended.
func connect(dialer, other *Endpoint) bool {
	c := &conn{n: dialer.n}
	now := time.Now()
	for i, e := range []*Endpoint{dialer, other} {
		x := &end{c: c, e: e, opened: now, streams: make(map[uint64]*stream), inbound: i == 1}
		e.mu.Lock()
		base := e.ctx
		e.mu.Unlock()
		x.ctx, x.cancel = context.WithCancelCause(base)
		x.flow.wake = make(chan struct{}, 1)
		c.ends[i] = x
	}
	a, b := c.ends[0], c.ends[1]
	a.other, a.peer, a.next = b, other.id, 1
	b.other, b.peer, b.next = a, dialer.id, 2
	c.n.mu.Lock()
	c.n.conns[c] = struct{}{}
	c.n.mu.Unlock()
	for _, x := range c.ends {
		if !x.e.add(x) || !x.e.start(x.pump) || !x.e.start(x.watch) {
			a.close(errBroken)
			b.close(errBroken)
			return false
		}
	}
	return true
}

func (c *conn) between(a, b peer.ID) bool {
	x, y := c.ends[0].e.id, c.ends[1].e.id
	return x == a && y == b || x == b && y == a
}

// flow is what was sent and has not arrived.
type flow struct {
	mu   sync.Mutex
	q    []segment
	last time.Time // at of the last one: the order is kept
	wake chan struct{}
}

func (x *end) send(s segment) {
	at := time.Now().Add(x.c.n.transit(x.e.id, x.peer))
	x.flow.mu.Lock()
	if at.Before(x.flow.last) {
		at = x.flow.last
	}
	x.flow.last = at
	s.at = at
	x.flow.q = append(x.flow.q, s)
	x.flow.mu.Unlock()
	select {
	case x.flow.wake <- struct{}{}:
	default:
	}
}

// pump carries what this end sends to the other one. It ends with either.
func (x *end) pump() {
	for {
		x.flow.mu.Lock()
		var s segment
		ok := len(x.flow.q) > 0
		if ok {
			s = x.flow.q[0]
			x.flow.q[0] = segment{}
			x.flow.q = x.flow.q[1:]
		}
		x.flow.mu.Unlock()
		if !ok {
			select {
			case <-x.flow.wake:
				continue
			case <-x.ctx.Done():
				return
			case <-x.other.ctx.Done():
				return
			}
		}
		if d := time.Until(s.at); d > 0 {
			t := time.NewTimer(d)
			select {
			case <-t.C:
			case <-x.ctx.Done():
				t.Stop()
				return
			}
		}
		for {
			open, changed := x.c.n.open(x.e.id, x.peer)
			if open {
				break
			}
			select {
			case <-changed:
			case <-x.ctx.Done():
				return
			}
		}
		x.other.deliver(s)
	}
}

// watch gives this end up when one of the two directions was cut for too long,
// since then no sign of life comes back.
func (x *end) watch() {
	n := x.c.n
	patience := n.patience()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for cut := false; ; {
		to, _ := n.open(x.e.id, x.peer)
		from, changed := n.open(x.peer, x.e.id)
		switch {
		case to && from:
			cut = false
		case !cut:
			cut = true
			patience = n.patience()
			timer.Reset(patience)
		}
		var silent <-chan time.Time
		if cut {
			silent = timer.C
		}
		select {
		case <-changed:
		case <-silent:
			x.shut(errors.New("p2ptest: keepalive timeout"))
			return
		case <-x.ctx.Done():
			return
		}
	}
}

// deliver takes what the other end has sent.
func (x *end) deliver(s segment) {
	if s.kind == openSegment {
		x.accept(s)
		return
	}
	x.mu.Lock()
	st := x.streams[s.stream]
	x.mu.Unlock()
	if st == nil {
		return // given up here
	}
	switch s.kind {
	case acceptSegment:
		close(st.accepted)
	case dataSegment:
		st.in.put(s.data)
	case closeSegment:
		st.in.finish()
	case resetSegment:
		st.fail(errReset)
	}
}

func (x *end) accept(s segment) {
	st := newStream(x, s.stream)
	x.other.mu.Lock()
	if opener := x.other.streams[s.stream]; opener != nil {
		st.meet(&opener.in)
		opener.meet(&st.in)
	}
	x.other.mu.Unlock()
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return
	}
	x.streams[s.stream] = st
	x.mu.Unlock()
	x.send(segment{kind: acceptSegment, stream: s.stream})
	x.e.mu.Lock()
	ev := x.e.ev
	x.e.mu.Unlock()
	if !x.e.start(func() {
		ev.Accept(x.peer, s.proto, st)
		_ = st.Close()
	}) {
		_ = st.Reset()
	}
}

func (x *end) openStream(proto protocol.ID) (*stream, error) {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil, errBroken
	}
	id := x.next
	x.next += 2
	st := newStream(x, id)
	x.streams[id] = st
	x.mu.Unlock()
	x.send(segment{kind: openSegment, stream: id, proto: proto})
	return st, nil
}

// shut is close, and lets the other end know as soon as the link lets it.
func (x *end) shut(err error) {
	from, to, other := x.e.id, x.peer, x.other
	x.close(err)
	other.e.start(func() {
		if x.c.n.travel(other.ctx, from, to) == nil {
			other.close(errBroken)
		}
	})
}

// close is the end of the connection for this endpoint.
func (x *end) close(err error) {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return
	}
	x.closed = true
	streams := x.streams
	x.streams = nil
	x.mu.Unlock()
	x.cancel(err)
	for _, s := range streams {
		s.fail(err)
	}
	x.e.remove(x)
	x.c.n.mu.Lock()
	defer x.c.n.mu.Unlock()
	x.other.mu.Lock()
	gone := x.other.closed
	x.other.mu.Unlock()
	if gone {
		delete(x.c.n.conns, x.c)
	}
}
