package main

import (
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
)

// Each row of `dmxfs peers` has a cell for each head, and a member its version.
func TestPeerRows(t *testing.T) {
	v := admin.Peers{
		Self:    "a",
		Members: []admin.Peer{{ID: "a", Host: "h", State: "live", Version: "0.1.0+feed"}, {ID: "b", Host: "i", State: "silent"}},
		Joining: []admin.Joiner{{ID: "c"}}, Gone: []admin.Gone{{ID: "d"}}, Revoked: []string{"e"},
	}
	rows := peerRows(v, time.Now())
	at := slices.Index(peerHeads, "VERSION")
	if got := rows[0][at] + " " + rows[1][at]; got != "0.1.0+feed -" {
		t.Errorf("versions: %s", got)
	}
	for _, r := range rows {
		if len(r) != len(peerHeads) {
			t.Errorf("%q: %d cells, want %d", r, len(r), len(peerHeads))
		}
	}
}
