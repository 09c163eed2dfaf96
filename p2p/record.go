package p2p

import (
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
	ma "github.com/multiformats/go-multiaddr"
)

// maxRecord is the limit of a peer record, in bytes.
const maxRecord = 16 << 10

var (
	// ErrStaleRecord: a newer record of the peer is known.
	ErrStaleRecord = errors.New("stale peer record")
	// ErrBadRecord: not a peer record, or not signed by the peer it is about.
	ErrBadRecord = errors.New("bad peer record")
)

// Record is this node's signed peer record (libp2p RFC 0003): its peer ID, its
// addresses now, and a sequence number. It is the same bytes until the
// addresses change; a later one has a greater number, by the clock of the host.
func (h *Host) Record() ([]byte, error) {
	addrs, err := h.OwnAddrs()
	if err != nil {
		return nil, err
	}
	addrs = addrs[:min(len(addrs), maxAddrs)]
	h.recordMu.Lock()
	defer h.recordMu.Unlock()
	if h.record != nil && slices.EqualFunc(addrs, h.recorded, ma.Multiaddr.Equal) {
		return h.record, nil
	}
	b, err := h.o.Identity.seal(addrs)
	if err != nil {
		return nil, err
	}
	h.record, h.recorded = b, addrs
	return b, nil
}

func (i Identity) seal(addrs []ma.Multiaddr) ([]byte, error) {
	env, err := record.Seal(peer.PeerRecordFromAddrInfo(peer.AddrInfo{ID: i.id, Addrs: addrs}), i.key)
	if err != nil {
		return nil, fmt.Errorf("p2p: peer record: %w", err)
	}
	b, err := env.Marshal()
	if err != nil {
		return nil, fmt.Errorf("p2p: peer record: %w", err)
	}
	return b, nil
}

// AddRecord takes the addresses of a peer from its signed record, and returns
// whose record it is. Errors are [ErrBadRecord] and [ErrStaleRecord], the
// latter with the peer. A record of this node itself is checked and left alone.
func (h *Host) AddRecord(b []byte) (peer.ID, error) {
	p, addrs, seq, err := openRecord(b)
	if err != nil || p == h.ID() {
		return p, err
	}
	if err := h.book.set(p, fromRecord, addrs, seq); err != nil {
		return p, fmt.Errorf("p2p: record of %s: %w", p, err)
	}
	return p, nil
}

func openRecord(b []byte) (peer.ID, []ma.Multiaddr, uint64, error) {
	if len(b) > maxRecord {
		return "", nil, 0, fmt.Errorf("p2p: %w: %d bytes, the limit is %d", ErrBadRecord, len(b), maxRecord)
	}
	var r peer.PeerRecord
	env, err := record.ConsumeTypedEnvelope(b, &r)
	if err != nil {
		return "", nil, 0, fmt.Errorf("p2p: %w: %w", ErrBadRecord, err)
	}
	if !r.PeerID.MatchesPublicKey(env.PublicKey) {
		return "", nil, 0, fmt.Errorf("p2p: %w: it is about %s, but that peer has not signed it", ErrBadRecord, r.PeerID)
	}
	return r.PeerID, r.Addrs, r.Seq, nil
}
