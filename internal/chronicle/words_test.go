package chronicle

import (
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// Who is no member may break nothing.
func TestOnlyMembersBreakLocks(t *testing.T) {
	t.Parallel()
	v := &member.View{Members: []member.Member{{Node: member.Node{Peer: "A", Inc: 1}}, {Node: member.Node{Peer: "B", Inc: 1}}}}
	for id, want := range map[string]bool{"A": true, "B": true, "C": false, "": false} {
		if name, ok := MemberName(v, id); ok != want || ok != (name != "") {
			t.Errorf("%q: %q %v", id, name, ok)
		}
		if _, ok := MemberName(nil, id); ok {
			t.Errorf("%q is a member of nothing", id)
		}
	}
}
