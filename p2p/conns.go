package p2p

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"
)

// connected is told of each new connection, before any stream comes on it.
func (h *Host) connected(ev Events, c network.Conn) {
	h.evMu.Lock()
	defer h.evMu.Unlock()
	p := c.RemotePeer()
	h.mu.Lock()
	h.conns[p]++
	n := h.conns[p]
	h.mu.Unlock()
	h.log.Debug("connected", "peer", p, "addr", c.RemoteMultiaddr(), "dir", c.Stat().Direction, "conns", n)
	if h.gater.offline.Load() || h.gater.mayConnect(p) != nil { // since while the connection was made
		_ = c.Close()
	}
	if n > 1 {
		select {
		case h.crowd <- p:
		default:
		}
	}
	ev.Opened(p)
}

// disconnected is told of the end of each connection.
func (h *Host) disconnected(ev Events, c network.Conn) {
	h.evMu.Lock()
	defer h.evMu.Unlock()
	p := c.RemotePeer()
	h.mu.Lock()
	h.conns[p]--
	n := h.conns[p]
	if n == 0 {
		delete(h.conns, p)
	}
	h.mu.Unlock()
	h.log.Debug("disconnected", "peer", p, "addr", c.RemoteMultiaddr(), "conns", n)
	if n == 0 {
		ev.Closed(p)
	}
}

// accept finds out what an inbound stream is for, and serves it.
func (h *Host) accept(ev Events, s network.Stream) {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		_ = s.Reset()
		return
	}
	h.serve.Add(1)
	h.mu.Unlock()
	defer h.serve.Done()
	p := s.Conn().RemotePeer()
	_ = s.SetDeadline(time.Now().Add(openTimeout))
	proto, _, err := h.muxer.Negotiate(s)
	if err != nil {
		h.log.warnOnce("negotiate:"+string(p), "refused a stream of a peer: it speaks no protocol of this version of dmxfs",
			"peer", p, "addr", s.Conn().RemoteMultiaddr(), "err", err)
		_ = s.Reset()
		return
	}
	_ = s.SetDeadline(time.Time{})
	ev.Accept(p, proto, hostStream{s})
	_ = s.Close() // no harm if it was closed or reset
}

// Open opens a stream on the newest connection to p: when one side has lost a
// connection that the other still believes in, the newest is the true one.
func (h *Host) Open(ctx context.Context, p peer.ID, proto protocol.ID) (Stream, error) {
	sw, err := h.running()
	if err != nil {
		return nil, err
	}
	var best network.Conn
	for _, c := range sw.ConnsToPeer(p) {
		if !c.IsClosed() && (best == nil || c.Stat().Opened.After(best.Stat().Opened)) {
			best = c
		}
	}
	if best == nil {
		return nil, ErrNotConnected
	}
	s, err := best.NewStream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	err = multistream.SelectProtoOrFail(proto, s)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Reset()
		var not multistream.ErrNotSupported[protocol.ID]
		if errors.As(err, &not) {
			err = fmt.Errorf("%w: %s at %s does not speak %s", ErrProtocol, p, best.RemoteMultiaddr(), proto)
		}
		return nil, err
	}
	return hostStream{s}, nil
}

// Conns are the connections to p, the oldest first.
func (h *Host) Conns(p peer.ID) []Conn {
	sw, err := h.running()
	if err != nil {
		return nil
	}
	var conns []Conn
	for _, c := range sw.ConnsToPeer(p) {
		st := c.Stat()
		conns = append(conns, Conn{c.RemoteMultiaddr().String(), st.Direction == network.DirInbound, st.Opened})
	}
	return conns
}

// Revoke puts peers in the place of the revoked ones, and ends the connections
// to them.
func (h *Host) Revoke(peers []peer.ID) {
	h.gater.setRevoked(peers)
	sw, err := h.running()
	if err != nil {
		return
	}
	for _, p := range peers {
		_ = sw.ClosePeer(p)
	}
}

// SetOnline says whether anybody may be connected. Without, all connections end,
// nobody is dialed, and who dials this node is turned away before it could see
// who this is.
func (h *Host) SetOnline(on bool) {
	h.gater.offline.Store(!on)
	sw, err := h.running()
	if err != nil || on {
		return
	}
	for _, c := range sw.Conns() {
		_ = c.Close()
	}
}

// hostStream is a Stream on libp2p.
type hostStream struct{ network.Stream }

func (s hostStream) Remote() string { return s.Conn().RemoteMultiaddr().String() }
