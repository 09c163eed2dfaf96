package p2p

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/locks"
)

// NodeID is the name of one incarnation of a peer:
//
//	12D3KooW….0123456789abcdef
//
// the peer ID, a dot, and the incarnation as 16 hexadecimal digits. Names of
// one peer sort by incarnation.
func NodeID(p peer.ID, incarnation uint64) locks.NodeID {
	return locks.NodeID(fmt.Sprintf("%s.%016x", p, incarnation))
}

// SplitNodeID is the inverse of [NodeID]. It accepts nothing that NodeID does
// not make.
func SplitNodeID(n locks.NodeID) (p peer.ID, incarnation uint64, err error) {
	name, hex, ok := strings.Cut(string(n), ".")
	if !ok {
		return "", 0, fmt.Errorf("p2p: node %q has no incarnation", n)
	}
	if p, err = peer.Decode(name); err != nil {
		return "", 0, fmt.Errorf("p2p: node %q: %w", n, err)
	}
	if incarnation, err = strconv.ParseUint(hex, 16, 64); err != nil {
		return "", 0, fmt.Errorf("p2p: node %q: %w", n, err)
	}
	if NodeID(p, incarnation) != n {
		return "", 0, fmt.Errorf("p2p: node %q is not in its canonical form", n)
	}
	return p, incarnation, nil
}
