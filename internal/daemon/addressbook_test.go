package daemon

import (
	"slices"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/p2p"
)

// What is read of the shared directory every few seconds does not grow with
// the records in it.
func TestOnlyRecordsOfThoseWhoAreMissingAreRead(t *testing.T) {
	a, b, c, d := peer.ID("a"), peer.ID("b"), peer.ID("c"), peer.ID("d")
	got := missing([]p2p.PeerInfo{
		{ID: a, Wanted: true, Connected: true}, {ID: b, Wanted: true}, {ID: c, Connected: true}, {ID: d},
	})
	if want := []string{b.String()}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
