package member_test

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

func oldView(members ...string) *member.View {
	v := &member.View{
		Cluster: strings.Repeat("c", 32), Epoch: 7, By: member.Node{Peer: "z", Inc: 9}, Nonce: 3, Reason: member.ReasonJoin, Made: "yesterday",
		Timing: member.Default().Timing, FileID: "inode 1",
	}
	for _, m := range members {
		v.Members = append(v.Members, member.Member{Node: member.Node{Peer: m, Inc: 9}, Host: "host-" + m, Version: "0.0.9+feed"})
	}
	return v
}

// A node whose messages the members would not understand is told who runs what,
// before it says anything.
func TestOtherProtocolIsRefusedWithWords(t *testing.T) {
	for _, p := range []int{0, member.Protocol - 1, member.Protocol + 1} {
		tell(t, 3, options{}, func(s *scene) {
			v := oldView("y", "z")
			v.Protocol = p
			if err := s.store.Link(s.now, v); err != nil {
				t.Fatal(err)
			}
			n := s.startOn("a", s.newHost(), func(c *member.Config) { c.Self.Version = "1.2.3" })
			s.until(2000, "an end", func() bool { return n.end != nil })
			s.expect(n.end != nil && n.end.Code == member.EndNewer, "EndNewer, not %v", n.end)
			for _, w := range []string{"host-y (y) runs dmxfs 0.0.9+feed, host-z (z) runs", "dmxfs 1.2.3 here speaks 2", "run the same version", "unmount"} {
				s.expect(n.end != nil && strings.Contains(n.end.Text, w), "%q in %v", w, n.end)
			}
			s.expect(s.sent == 0 && s.check.views == 0, "no message, no view")
		})
	}
}

// A view of none but itself is no reason: its version was changed.
func TestOwnViewOfAnotherProtocol(t *testing.T) {
	tell(t, 3, options{}, func(s *scene) {
		if err := s.store.Link(s.now, oldView("a")); err != nil {
			t.Fatal(err)
		}
		s.check.free = true
		n := s.startOn("a", s.newHost(), nil)
		s.until(20_000, "it to go on", n.granting)
		s.expect(n.m.View().Protocol == member.Protocol, "a view of protocol %d", member.Protocol)
	})
}

// Of a view that a version does not understand it says who made it, if it can.
func TestViewsOfNewerVersionsNameThem(t *testing.T) {
	b, err := member.EncodeView(oldView("y", "z"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(b), "\n")
	_, err = member.ParseView(file(1, strings.Replace(body, `"epoch"`, `"quorum":3,"epoch"`, 1)), "")
	if err == nil || !strings.Contains(err.Error(), `unknown field "quorum" (host-y (y) runs dmxfs 0.0.9+feed, host-z (z) runs`) {
		t.Error(err)
	}
	_, err = member.ParseView(file(1, strings.Replace(body, `"host-y"`, `"host\ny","quorum":3`, 1)), "")
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
}
