package member_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

func testConfig(name string) member.Config {
	n := uint64(0)
	return member.Config{
		Params: member.Default(), Cluster: testCluster,
		Self:   member.Member{Node: member.Node{Peer: name}},
		Random: func() uint64 { n++; return n },
		Made:   func() string { return "" },
	}
}

func TestAddressesAreClipped(t *testing.T) {
	many := []string{"/bad\n", strings.Repeat("x", member.MaxAddr+1)}
	for range 3 * member.MaxAddrs {
		many = append(many, "/ip4/10.0.0.1/tcp/1")
	}
	if got := member.ClipAddrs(many); len(got) != member.MaxAddrs || got[0] != "/ip4/10.0.0.1/tcp/1" {
		t.Errorf("%q", got)
	}
	c := testConfig("a")
	c.Self.Addrs = many
	if _, err := member.New(c); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	for want, change := range map[string]func(c *member.Config){
		"delta":      func(c *member.Config) { c.Params.Delta = 1 },
		"cluster":    func(c *member.Config) { c.Cluster = "x" },
		"peer ID":    func(c *member.Config) { c.Self.Peer = "a/b" },
		"listings":   func(c *member.Config) { c.Self.Cache = c.Params.CacheMax + 1 },
		"random":     func(c *member.Config) { c.Random = nil },
		"wall clock": func(c *member.Config) { c.Made = nil },
		"policy":     func(c *member.Config) { c.Policy = &member.Policy{Hash: "\n"} },
		"was replaced, or it was killed": func(c *member.Config) {
			c.Succeeds, c.Heir = member.Node{Peer: "a", Inc: 1}, &member.Heir{Of: member.Node{Peer: "a", Inc: 1}}
		},
		"nothing proves": func(c *member.Config) { c.Heir = &member.Heir{Of: member.Node{Peer: "a", Inc: 1}} },
		"held by another host (b)": func(c *member.Config) {
			c.Self.Boot, c.Self.Lock = "boot", member.LockFile{Ino: 1}
			c.Heir = &member.Heir{Of: member.Node{Peer: "a", Inc: 1}, Claimed: []member.Node{{Peer: "b", Inc: 1}}}
		},
		"goes on with": func(c *member.Config) {
			c.Self.Boot, c.Self.Lock = "boot", member.LockFile{Ino: 1}
			c.Heir = &member.Heir{}
		},
	} {
		c := testConfig("a")
		change(&c)
		if _, err := member.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if _, err := member.New(testConfig("a")); err != nil {
		t.Error(err)
	}
}

// pair is two members of one view, as far as b has been told: its heartbeats
// are made by hand.
func pair(t *testing.T) (m *member.Machine, peer, self member.Node, step func(now int64, in member.Input) *member.Output) {
	t.Helper()
	m, err := member.New(testConfig("a"))
	if err != nil {
		t.Fatal(err)
	}
	var out member.Output
	step = func(now int64, in member.Input) *member.Output {
		m.Step(now, in, &out)
		return &out
	}
	step(10_000, member.Start{})
	self, peer = m.Self(), member.Node{Peer: "b", Inc: 77}
	v := &member.View{
		Cluster: testCluster, Epoch: 5, Nonce: 1, By: peer, Reason: member.ReasonJoin, Timing: member.Default().Timing,
		Members: []member.Member{{Node: self}, {Node: peer}},
	}
	o := step(10_000, member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: member.ViewMsg{View: v}}})
	if o.Freeze == nil || o.LiveUntil != 0 || len(o.Send) != 0 {
		t.Fatalf("no freeze, or something is said before it:\n%v", o)
	}
	o = step(10_001, member.Frozen{Seq: o.Freeze.Seq})
	if len(o.Send) == 0 || m.Epoch() != 5 {
		t.Fatalf("not installed:\n%v", o)
	}
	// The look that was under way since the start, and one that counts.
	o = step(10_002, member.Done{Op: member.LookOp{}, Look: member.Look{Began: 10_000}})
	if o.Storage == nil {
		t.Fatalf("no look after the installation:\n%v", o)
	}
	step(10_003, member.Done{Op: o.Storage, Look: member.Look{Began: 10_002, Newest: 5, Known: true}})
	return m, peer, self, step
}

func TestTenureNeedsEveryPart(t *testing.T) {
	m, peer, self, step := pair(t)
	hb := func(now int64, h member.HB) *member.Output {
		return step(now, member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: h}})
	}
	if o := hb(10_010, member.HB{T: 1, Heard: 10_001}); o.LiveUntil > 10_010 {
		t.Errorf("live until %d without a promise", o.LiveUntil)
	}
	// What it cannot have heard is no promise.
	if o := hb(10_010, member.HB{T: 2, Heard: 90_000, Prom: 90_000}); o.LiveUntil > 10_010 {
		t.Errorf("live until %d by a promise of the future", o.LiveUntil)
	}
	// A promise for another incarnation of this node is none.
	other := self
	other.Inc++
	if o := step(10_010, member.Received{Envelope: member.Envelope{From: peer, To: other, Epoch: 5, Msg: member.HB{T: 3, Heard: 10_001, Prom: 10_001}}}); o.LiveUntil > 10_010 {
		t.Errorf("live until %d by a message for another incarnation", o.LiveUntil)
	}
	o := hb(10_010, member.HB{T: 4, Heard: 10_001, Prom: 10_001})
	if want := int64(10_001 + 5000); o.LiveUntil != want {
		t.Errorf("live until %d, want %d: the promise counts from the sending", o.LiveUntil, want)
	}
	if o.Granting {
		t.Error("granting without the state of the other")
	}
	o = step(10_011, member.SyncArrived{From: peer, Epoch: 4})
	if o.TakeSync || o.Granting {
		t.Error("a state of another epoch is taken")
	}
	o = step(10_011, member.SyncArrived{From: peer, Epoch: 5})
	if !o.TakeSync || o.Synced != 5 || !o.Granting {
		t.Errorf("not granting with all of it:\n%v", o)
	}
	if o = step(10_012, member.SyncArrived{From: peer, Epoch: 5}); o.TakeSync || o.Synced != 0 {
		t.Error("a state is taken twice")
	}
	// Old and repeated promises change nothing.
	if o = hb(10_013, member.HB{T: 4, Heard: 10_001, Prom: 9_000}); o.LiveUntil != 15_001 {
		t.Errorf("live until %d after an old promise", o.LiveUntil)
	}
	if o = step(15_001, member.Tick{}); o.Granting {
		t.Error("granting at the end of the tenure")
	}
	if s := m.Status(); s.Live || s.Why == "" {
		t.Errorf("status %+v", s)
	}
}

// A promise is given only to a peer that reports hearing this node.
func TestPromiseNeedsBothWays(t *testing.T) {
	_, peer, self, step := pair(t)
	prom := func(o *member.Output) int64 {
		for _, e := range o.Send {
			if h, ok := e.Msg.(member.HB); ok && e.To == peer {
				return h.Prom
			}
		}
		return -1
	}
	in := func(h member.HB) member.Input {
		return member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: h}}
	}
	if p := prom(step(10_010, in(member.HB{T: 50, Ask: true}))); p != 0 {
		t.Errorf("promised %d to a peer that hears nothing", p)
	}
	if p := prom(step(10_020, in(member.HB{T: 60, Heard: 10_010, Ask: true}))); p != 60 {
		t.Errorf("promised %d, want 60", p)
	}
	if p := prom(step(11_521, in(member.HB{T: 70, Heard: 10_010, Ask: true}))); p != 60 {
		t.Errorf("promised %d to a peer that has not heard this node for R, want 60 still", p)
	}
}

// Silence is waking time: a tick counts Cap at most, and the one in which the
// silence began what passed since then, Cap - Tick at most. So neither a stop
// nor a jump of the clock makes a node suspect the others.
func TestSilenceIsWakingTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		ticks []int64 // after the promise at 10,130; ticks were every 100 before
		want  int64
	}{
		{"in the middle of a tick", []int64{10_200}, 70},
		{"and one more", []int64{10_200, 10_300}, 170},
		{"a late tick", []int64{10_200, 10_450}, 70 + 200},
		{"a stop", []int64{10_200, 30_000}, 70 + 200},
		{"a stop at once", []int64{30_000}, 100},
		{"a jump within the first tick", []int64{10_200 + 12_000, 10_300 + 12_000}, 100 + 100},
	} {
		m, peer, self, step := pair(t)
		step(10_100, member.Tick{})
		step(10_120, member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: member.HB{T: 50}}})
		step(10_130, member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: member.HB{T: 60, Heard: 10_120}}})
		for _, at := range c.ticks {
			step(at, member.Tick{})
		}
		if got := m.Status().Peers[0].Silent; got != c.want {
			t.Errorf("%s: silent for %d ms, want %d", c.name, got, c.want)
		}
	}
}

func TestAnswersToAskAreLimited(t *testing.T) {
	_, peer, self, step := pair(t)
	sent := 0
	for i := range int64(100) {
		o := step(10_010, member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: member.HB{T: 50 + i, Ask: true}}})
		sent += len(o.Send)
	}
	if sent != 10 {
		t.Errorf("%d answers to 100 heartbeats at once, want 10", sent)
	}
}

func TestNothingAfterTheEnd(t *testing.T) {
	m, peer, self, step := pair(t)
	step(10_020, member.Leave{})
	var o *member.Output
	for now := int64(10_100); now < 20_000; now += 100 {
		if o = step(now, member.Tick{}); o.End != nil {
			break
		}
	}
	if o.End == nil || m.State() != member.StateEnded {
		t.Fatal("no end")
	}
	for _, in := range []member.Input{
		member.Tick{}, member.Leave{}, member.Frozen{Seq: 9}, member.SyncArrived{From: peer, Epoch: 5},
		member.Done{Op: member.LookOp{}}, member.Fenced{Node: peer}, member.Dead{Node: peer, How: "x"},
		member.Received{Envelope: member.Envelope{From: peer, To: self, Epoch: 5, Msg: member.HB{T: 1}}},
	} {
		if o := step(20_000, in); o.String() != "" || o.LiveUntil != 0 || o.Granting {
			t.Errorf("%v: %v", in, o)
		}
	}
}

// An admin's wish given to a machine that cannot fulfil it is answered.
func TestWishOutside(t *testing.T) {
	m, err := member.New(testConfig("a"))
	if err != nil {
		t.Fatal(err)
	}
	var out member.Output
	m.Step(1000, member.Start{}, &out)
	m.Step(1000, member.SetPolicy{Wish: member.Wish{ID: 3, Deadline: 9000}}, &out)
	if len(out.Answers) != 1 || out.Answers[0].ID != 3 || out.Answers[0].Err == nil {
		t.Errorf("answers %v", out.Answers)
	}
}

// A daemon that goes on in the place of its former self knows the view that this was in
// also where the listing of the storage is older, as it may be for a while.
func TestASuccessorKnowsItsViewBeforeTheStorageShowsIt(t *testing.T) {
	c := testConfig("a")
	former := member.Node{Peer: "a", Inc: 7}
	in := &member.View{Cluster: testCluster, Epoch: 3, Timing: c.Params.Timing, Members: []member.Member{{Node: former}}}
	c.Former, c.Succeeds, c.SucceedsIn = []member.Inc{7}, former, in
	m, err := member.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var out member.Output
	m.Step(1000, member.Start{Saved: member.Saved{Was: true, Epoch: 3}}, &out)
	old := *in
	old.Epoch = 2
	for now := int64(1000); now < 60_000; now += c.Params.Tick {
		switch op := out.Storage.(type) {
		case member.LinkOp:
			if op.View.Epoch != 4 || op.View.Has(former) || !op.View.Has(m.Self()) {
				t.Errorf("it links %v", op.View)
			}
			return
		case member.LookOp:
			m.Step(now, member.Done{Op: op, Look: member.Look{Began: now, Newest: 2, View: &old}}, &out)
		default:
			m.Step(now, member.Tick{}, &out)
		}
		if out.End != nil {
			t.Fatal(out.End.Text)
		}
	}
	t.Error("it does not take the place of its former self")
}

// The same seed makes the same run, byte for byte: nothing depends on the order
// of a map, or on the time of day.
func TestDeterminism(t *testing.T) {
	long.NoRace(t)
	for seed := range int64(20) {
		a := schedule(randomOptions(seed), true).w.trace
		b := schedule(randomOptions(seed), true).w.trace
		if !slices.Equal(a, b) {
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("seed %d, line %d:\n%s\n%s", seed, i, a[i], b[i])
				}
			}
			t.Fatalf("seed %d: %d and %d lines", seed, len(a), len(b))
		}
	}
}

// BenchmarkHeartbeat is one heartbeat received, in a cluster of 100: at its
// largest a node takes 200 a second.
func BenchmarkHeartbeat(b *testing.B) { benchmarkHB(b, false) }

// BenchmarkHeartbeatCoded has the decoding with it.
func BenchmarkHeartbeatCoded(b *testing.B) { benchmarkHB(b, true) }

func benchmarkHB(b *testing.B, coded bool) {
	m, peers, step := benchCluster(b, 100)
	now := int64(20_000)
	for b.Loop() {
		now++
		p := peers[now%int64(len(peers))]
		e := member.Envelope{From: p, To: m.Self(), Epoch: 5, Msg: member.HB{T: now, Heard: now - 1, Prom: now - 1, GotSync: true}}
		if coded {
			buf, err := member.Encode(e)
			if err != nil {
				b.Fatal(err)
			}
			if e, err = member.Decode(p.Peer, "self", testCluster, buf); err != nil {
				b.Fatal(err)
			}
		}
		step(now, member.Received{Envelope: e})
	}
}

// BenchmarkTick is one tick of a node in a cluster of 100; every fifth sends
// 99 heartbeats.
func BenchmarkTick(b *testing.B) {
	_, _, step := benchCluster(b, 100)
	now := int64(20_000)
	for b.Loop() {
		now += 100
		step(now, member.Tick{})
	}
}

func benchCluster(b *testing.B, n int) (*member.Machine, []member.Node, func(now int64, in member.Input)) {
	m, err := member.New(testConfig("self"))
	if err != nil {
		b.Fatal(err)
	}
	var out member.Output
	step := func(now int64, in member.Input) { m.Step(now, in, &out) }
	step(10_000, member.Start{})
	v := &member.View{Cluster: testCluster, Epoch: 5, By: m.Self(), Reason: member.ReasonJoin, Timing: member.Default().Timing}
	var peers []member.Node
	for i := range n - 1 {
		p := member.Node{Peer: "p" + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)}), Inc: 1}
		peers = append(peers, p)
		v.Members = append(v.Members, member.Member{Node: p})
	}
	v.Members = append(v.Members, member.Member{Node: m.Self()})
	step(10_000, member.Received{Envelope: member.Envelope{From: peers[0], To: m.Self(), Epoch: 5, Msg: member.ViewMsg{View: v}}})
	step(10_000, member.Frozen{Seq: out.Freeze.Seq})
	if m.Epoch() != 5 {
		b.Fatal("not installed")
	}
	return m, peers, step
}
