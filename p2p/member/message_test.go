package member_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks/wire"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var testCluster = strings.Repeat("c", 32)

func testView() *member.View {
	return &member.View{
		Cluster: testCluster, Epoch: 42, Nonce: 7, By: member.Node{Peer: "a", Inc: 1}, Reason: member.ReasonDrop,
		Made: "2026-11-21T15:00:00Z",
		Members: []member.Member{
			{Node: member.Node{Peer: "a", Inc: 1}, Host: "alpha", Addrs: []string{"/ip4/10.0.0.1/tcp/4001", "/dns/é"}, Version: "1.0", Boot: "b1", Lock: member.LockFile{Dev: 3, Ino: 4}},
			{Node: member.Node{Peer: "b", Inc: 2}, Addrs: []string{}, Cache: 20_000},
		},
		Dropped: []member.Dropped{{Node: member.Node{Peer: "c", Inc: 3}, Why: `silent for "5250" ms`}},
		Revoked: []string{"x", "y"},
		Policy:  member.Policy{Hash: "h", TOML: "[[rule]]\n\tglob = \"**/*.db\"\n", Replaced: []string{"g"}},
		Timing:  member.Default().Timing,
		FileID:  "inode 7",
	}
}

func testMessages() []member.Envelope {
	a, b := member.Node{Peer: "a", Inc: 1}, member.Node{Peer: "b", Inc: 1 << 63}
	rec := testView().Members[0]
	var list []member.Envelope
	for _, m := range []member.Message{
		member.HB{T: 1, Heard: 2, Prom: 3, Delay: 4, Ask: true},
		member.HB{T: 1 << 60, GotSync: true},
		member.ViewMsg{View: testView()},
		member.Hello{Ready: true, Member: rec, Policy: "h", Timing: member.Fast().Timing, FileID: "inode 7"},
		member.Hello{Member: member.Member{Node: a}},
		member.Welcome{},
		member.Refused{Code: member.RefusedPolicy, Text: "another policy"},
	} {
		list = append(list, member.Envelope{From: a, To: b, Epoch: 42, Msg: m})
	}
	return list
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, e := range testMessages() {
		b, err := member.Encode(e)
		if err != nil {
			t.Fatalf("%v: %v", e, err)
		}
		got, err := member.Decode("a", "b", testCluster, b)
		if err != nil {
			t.Errorf("%v: %v", e, err)
			continue
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%v became %v", e, got)
		}
		for n := range len(b) {
			if _, err := member.Decode("a", "b", testCluster, b[:n]); err == nil {
				t.Errorf("%v: the first %d of %d bytes were accepted", e, n, len(b))
			}
		}
		if _, err := member.Decode("a", "b", testCluster, append(b, 0)); err == nil {
			t.Errorf("%v: a byte too many was accepted", e)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, e := range map[string]member.Envelope{
		"HELLO for another node": {From: member.Node{Peer: "a", Inc: 1}, Epoch: 1,
			Msg: member.Hello{Member: member.Member{Node: member.Node{Peer: "b", Inc: 1}}}},
		"no incarnation": {From: member.Node{Peer: "a"}, Epoch: 1, Msg: member.Welcome{}},
		"too many addresses": {From: member.Node{Peer: "a", Inc: 1}, Epoch: 1,
			Msg: member.Hello{Member: member.Member{Node: member.Node{Peer: "a", Inc: 1}, Addrs: make([]string, member.MaxAddrs+1)}}},
		"long host": {From: member.Node{Peer: "a", Inc: 1}, Epoch: 1,
			Msg: member.Hello{Member: member.Member{Node: member.Node{Peer: "a", Inc: 1}, Host: strings.Repeat("x", member.MaxName+1)}}},
		"no code":         {From: member.Node{Peer: "a", Inc: 1}, Epoch: 1, Msg: member.Refused{}},
		"long text":       {From: member.Node{Peer: "a", Inc: 1}, Epoch: 1, Msg: member.Refused{Code: 1, Text: strings.Repeat("x", member.MaxWhy+1)}},
		"epoch too great": {From: member.Node{Peer: "a", Inc: 1}, Epoch: member.MaxEpoch + 1, Msg: member.Welcome{}},
	} {
		b, err := member.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := member.Decode("a", "b", testCluster, b); !errors.Is(err, wire.ErrForm) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, wire.ErrForm)
		}
	}
	b, _ := member.Encode(testMessages()[2])
	if _, err := member.Decode("a", "b", strings.Repeat("d", 32), b); !errors.Is(err, member.ErrForeign) {
		t.Errorf("a view of another cluster: %v", err)
	}
	if _, err := member.Decode("a", "b", testCluster, make([]byte, member.MaxMessage+1)); err == nil {
		t.Error("a message over the limit was accepted")
	}
}

func FuzzDecode(f *testing.F) {
	for _, e := range testMessages() {
		b, err := member.Encode(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := member.Decode("a", "b", testCluster, b)
		if err != nil {
			return
		}
		again, err := member.Encode(e)
		if err != nil {
			t.Fatalf("%v was decoded, and cannot be encoded: %v", e, err)
		}
		if _, view := e.Msg.(member.ViewMsg); !view && !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
		if e2, err := member.Decode("a", "b", testCluster, again); err != nil || !reflect.DeepEqual(e, e2) {
			t.Errorf("%v became %v, %v", e, e2, err)
		}
		_ = e.String()
	})
}

// The largest view that is within the bounds must fit a file and a message.
func TestLargestViewFits(t *testing.T) {
	text := func(n int) string { return strings.Repeat(`"`, n) } // twice as long in JSON
	name := func(i int) string {
		return strings.Repeat("p", member.MaxName-3) + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)})
	}
	v := &member.View{
		Cluster: testCluster, Epoch: member.MaxEpoch, Nonce: 1, By: member.Node{Peer: name(0), Inc: 1}, Reason: member.ReasonUnreadable,
		Made: text(member.MaxName), Policy: member.Policy{Hash: text(member.MaxName), TOML: text(member.MaxPolicy)}, Timing: member.Default().Timing, Unsure: true,
	}
	for range member.MaxReplaced {
		v.Policy.Replaced = append(v.Policy.Replaced, text(member.MaxName))
	}
	for i := range member.MaxMembers {
		m := member.Member{
			Node: member.Node{Peer: name(i), Inc: 1}, Host: text(member.MaxName), Version: text(member.MaxName),
			Boot: text(member.MaxName), Lock: member.LockFile{Dev: 1<<64 - 1, Ino: 1<<64 - 1}, Cache: 3600_000,
		}
		for range member.MaxAddrs {
			m.Addrs = append(m.Addrs, text(member.MaxAddr))
		}
		v.Members = append(v.Members, m)
		v.Dropped = append(v.Dropped, member.Dropped{Node: member.Node{Peer: name(i), Inc: 2}, Why: text(member.MaxWhy)})
	}
	for i := range member.MaxRevoked {
		v.Revoked = append(v.Revoked, name(i))
	}
	b, err := member.Encode(member.Envelope{From: v.By, To: v.By, Epoch: v.Epoch, Msg: member.ViewMsg{View: v}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := member.Decode(v.By.Peer, v.By.Peer, testCluster, b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(e.Msg.(member.ViewMsg).View, v) {
		t.Error("the view is not the same")
	}
	t.Logf("%d bytes of at most %d", len(b), member.MaxMessage)
}
