package p2p

import (
	"bufio"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// The member channel is for what is worth something only now: heartbeats that
// promise for some seconds, and views that are sent again until they are known.
const (
	// mailboxLen is how many messages may wait for one peer: the few that a
	// change of the view makes at once.
	mailboxLen = 4
	// mailAge is how old a message may get while it waits; a heartbeat that is
	// older would be late.
	mailAge = time.Second
)

// mailbox holds what waits to be sent to one peer. When it is full, the oldest
// message goes.
type mailbox struct {
	wake chan struct{} // something was put in

	mu sync.Mutex
	q  []letter
}

type letter struct {
	msg []byte
	at  time.Time
}

func (m *mailbox) put(msg []byte, now time.Time) {
	m.mu.Lock()
	if len(m.q) == mailboxLen {
		m.q = m.q[:copy(m.q, m.q[1:])]
	}
	m.q = append(m.q, letter{msg, now})
	m.mu.Unlock()
	notify(m.wake)
}

// take empties the mailbox into q, without what has become too old.
func (m *mailbox) take(q []letter, now time.Time) []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.q {
		if now.Sub(l.at) <= mailAge {
			q = append(q, l)
		}
	}
	clear(m.q)
	m.q = m.q[:0]
	return q
}

// memberChannel is the member channel to and from all peers.
type memberChannel struct {
	log     *limitedLog
	remotes *remotes
	streams *streams
	slots   *slots
	handle  func(from peer.ID, msg []byte)
	made    time.Time
}

// send is [Transport.SendMember].
func (c *memberChannel) send(to peer.ID, msg []byte) bool {
	r, connected := c.remotes.get(to)
	if !connected {
		if r != nil && r.slow.Load() {
			notify(r.kick)
		}
		return false
	}
	if len(msg) > MaxMember {
		c.log.warnOnce("member size", "a message to a peer is too long and was dropped", "peer", to, "bytes", len(msg), "limit", MaxMember)
		return false
	}
	r.mail.put(msg, time.Now())
	return true
}

// write is the goroutine that writes the member channel to r.
func (c *memberChannel) write(r *remote) {
	var s Stream
	closeStream := func() {
		if s != nil {
			_ = s.Reset()
			s = nil
		}
	}
	defer closeStream()
	var letters []letter
	var buf []byte
	for {
		select {
		case <-r.mail.wake:
		case <-r.ctx.Done():
			return
		}
		if r.reopen.Swap(false) {
			closeStream()
		}
		if s == nil {
			if s = c.open(r); s == nil {
				continue
			}
		}
		clear(letters)
		letters = r.mail.take(letters[:0], time.Now())
		buf = c.appendLetters(buf[:0], r, letters)
		if writeWithin(s, buf, mailAge) != nil {
			closeStream() // what was in it is lost; the next message opens another
		}
		if cap(buf) > keepBuf {
			buf = nil // after a view; heartbeats are short
		}
	}
}

// open opens the stream and greets. The other direction of a member
// stream is not used.
func (c *memberChannel) open(r *remote) Stream {
	s, err := c.streams.open(r.ctx, r, memberProtocol)
	if err == nil {
		if err = writeWithin(s, appendPreamble(nil, kindMember), mailAge); err != nil {
			_ = s.Reset()
		}
	}
	if err != nil {
		c.log.Debug("can't open the member channel", "peer", r.id, "err", err)
		return nil
	}
	return s
}

func (c *memberChannel) appendLetters(b []byte, r *remote, letters []letter) []byte {
	for _, l := range letters {
		now := time.Now()
		h := memberHead{Len: uint32(len(l.msg)), Sent: c.clock(now)}
		r.statMu.Lock()
		if h.Echo = r.echo; h.Echo != 0 {
			h.Held = uint64(now.Sub(r.echoAt).Microseconds())
		}
		r.statMu.Unlock()
		b = append(h.append(b), l.msg...)
	}
	return b
}

// serve reads the member channel of p.
func (c *memberChannel) serve(p peer.ID, s Stream) error {
	br := bufio.NewReaderSize(s, 4<<10)
	if err := readPreamble(br, kindMember); err != nil {
		return err
	}
	sl := c.slots.claim(slotKey{peer: p, kind: kindMember}, s)
	defer sl.release()
	r, _ := c.remotes.get(p)
	if r == nil {
		return fmt.Errorf("%w: the connection has just ended", ErrNotConnected)
	}
	_ = s.SetDeadline(time.Time{})
	for {
		h, msg, err := readMember(br)
		if err != nil {
			return err
		}
		if sl.ctx.Err() != nil {
			return context.Cause(sl.ctx)
		}
		now := time.Now()
		r.received(h, now, c.clock(now))
		c.handle(p, msg)
	}
}

// clock is at in microseconds. It begins with the time of day when the transport
// was made, so that an echo of what this node wrote before it started again
// still makes sense, and then runs evenly.
func (c *memberChannel) clock(at time.Time) uint64 {
	return uint64(c.made.UnixMicro() + at.Sub(c.made).Microseconds())
}

// received measures the round trip: from when this node wrote a message, to
// the peer, and back with the peer's next one, less the time it was held there.
// clock is now in the terms of the heads.
func (r *remote) received(h memberHead, now time.Time, clock uint64) {
	r.statMu.Lock()
	defer r.statMu.Unlock()
	r.heard = now
	r.echo, r.echoAt = h.Sent, now
	if h.Echo == 0 {
		return
	}
	// Unsigned on purpose: what is no time at all comes out huge.
	d := clock - h.Echo - h.Held
	if d > uint64(time.Minute/time.Microsecond) {
		return
	}
	rtt := max(time.Duration(d)*time.Microsecond, time.Microsecond)
	if r.rtt == 0 {
		r.rtt = rtt
	} else {
		r.rtt += (rtt - r.rtt) / 8
	}
}

// writeWithin writes b, or fails after d.
func writeWithin(s Stream, b []byte, d time.Duration) error {
	_ = s.SetWriteDeadline(time.Now().Add(d))
	_, err := s.Write(b)
	return err
}
