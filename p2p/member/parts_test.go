package member

import (
	"errors"
	"testing"
)

// at is where a member of a view of a and b stands.
func at(t *testing.T) *position {
	t.Helper()
	n := uint64(1)
	b := &base{p: Default(), now: 10_000, lastTick: 10_000, out: new(Output)}
	b.cfg = Config{
		Params: b.p, Cluster: "0123456789abcdef0123456789abcdef",
		Self:   Member{Node: Node{Peer: "a"}, Boot: "boot", Lock: LockFile{Dev: 1, Ino: 2}},
		Random: func() uint64 { n++; return n },
		Made:   func() string { return "" },
	}
	p := &position{base: b, identity: &identity{base: b}, view: &View{}}
	p.draw(p.view)
	w := &View{Cluster: b.cfg.Cluster, Epoch: 5, By: p.me, Reason: ReasonJoin, Timing: b.p.Timing}
	w.add(p.record())
	w.add(Member{Node: Node{Peer: "b", Inc: 77}})
	p.join()
	p.follow(w, false)
	p.install()
	return p
}

func TestProposerBelievesALook(t *testing.T) {
	p := &proposer{position: at(t)}
	b := p.view.Members[1].Node
	p.propose(p.without(ReasonDrop, []Node{b}, func(Node) string { return "silent" }))
	if p.open == nil || !p.leavesOut(b) || p.leavesOut(p.me) {
		t.Fatalf("no proposal without %v: %+v", b, p.open)
	}
	link := LinkOp{View: p.open.view, File: p.open.file}
	p.linked(link, nil)
	if p.open == nil || p.open.stage != stageLooking {
		t.Fatalf("a link is believed without a look: %+v", p.open)
	}
	if w, _ := p.looked(Look{Newest: 5}); w != nil || p.open.stage != stageLooking || p.open.at != p.now+p.p.Retry {
		t.Errorf("after a look that does not show the link: %v, stage %d, at %d", w, p.open.stage, p.open.at)
	}
	// One that failed may be carried out still: it is tried again, and nothing is forgotten.
	p.linked(link, errors.New("input/output error"))
	p.looked(Look{Newest: 5})
	if p.open.stage != stageLink || !p.leavesOut(b) {
		t.Errorf("a link that failed is not tried again: stage %d", p.open.stage)
	}
	w, mine := p.looked(Look{Newest: 6, View: link.View})
	if w != link.View || !mine || !p.learned(w) || p.open != nil {
		t.Errorf("the link is not believed after a look: %v, mine %v, open %v", w, mine, p.open)
	}
}

func TestProposerLoses(t *testing.T) {
	p := &proposer{position: at(t)}
	p.propose(p.view.next(p.me, ReasonJoin))
	other := *p.open.view
	other.Nonce++
	w, mine := p.looked(Look{Newest: 6, View: &other})
	if w != &other || mine || p.learned(w) || p.open != nil {
		t.Errorf("the view of another: %v, mine %v, open %v", w, mine, p.open)
	}
}

func TestRuleDrop(t *testing.T) {
	pos := at(t)
	h := &heartbeats{position: pos}
	h.install()
	s := &silence{position: pos, heartbeats: h}
	y := h.order[0]
	limit, known := pos.p.Tenure+pos.p.Delta, pos.p.LookTenure+pos.p.lookMargin()
	for _, c := range []struct {
		silent, known int64
		heard         bool
		drop          bool
	}{
		{limit - 1, 2 * known, true, false},
		{limit + 1000, 0, true, true},
		{limit + 1000, known - 1, false, false}, // it may be live in a view before this one
		{limit + 1000, known + 1000, false, true},
	} {
		y.silent.ms, y.heard, pos.known.ms = c.silent, c.heard, c.known
		if gone, wait := s.members(); (len(gone) > 0 && !wait) != c.drop {
			t.Errorf("%+v: %v, wait %v", c, gone, wait)
		}
	}
}

func TestLeaseIsTheShortest(t *testing.T) {
	pos := at(t)
	h := &heartbeats{position: pos}
	h.install()
	sc := &scans{position: pos, at: 9_000}
	l := &lease{position: pos, scans: sc, heartbeats: h}
	if u := l.until(); u != 0 {
		t.Errorf("live until %d without a promise", u)
	}
	h.order[0].ten = 8_000
	if u, want := l.until(), min(8_000+pos.p.Tenure, 9_000+pos.p.LookTenure); u != want {
		t.Errorf("live until %d, want %d", u, want)
	}
	sc.at = 0
	if u, want := l.until(), pos.p.LookTenure; u != want {
		t.Errorf("live until %d after an old look, want %d", u, want)
	}
	pos.leave()
	if u := l.until(); u != 0 {
		t.Errorf("live until %d while it leaves", u)
	}
}

func TestProofOfDeathNeedsEveryPart(t *testing.T) {
	pos := at(t)
	pr := &proofs{position: pos, dead: map[Node]string{}}
	former := pos.record()
	former.Inc = 99
	pos.lives = append(pos.lives, former.Inc)
	for what, change := range map[string]func(*Member){
		"another boot":        func(m *Member) { m.Boot = "other" },
		"no lock":             func(m *Member) { m.Lock = LockFile{} },
		"another lock":        func(m *Member) { m.Lock.Ino++ },
		"another incarnation": func(m *Member) { m.Inc++ },
		"another peer":        func(m *Member) { m.Peer = "c" },
		"another address":     func(m *Member) { m.Addrs = []string{"/ip4/192.0.2.1/tcp/1"} },
		"":                    func(*Member) {},
	} {
		y := former
		change(&y)
		pos.view = &View{Members: []Member{y}}
		if how := pr.how(y.Node); (how != "") != (what == "") {
			t.Errorf("%q: proof %q", what, how)
		}
	}
}

func TestBackoffDoubles(t *testing.T) {
	b := &base{p: Default(), out: new(Output)}
	s := &memory{base: b}
	last := int64(0)
	for range 10 {
		s.joined()
		if d := s.pause(); d < last || d > b.p.BackoffMax {
			t.Fatalf("pause of %d ms after one of %d", d, last)
		} else {
			last = d
		}
	}
	if last != b.p.BackoffMax {
		t.Errorf("pause of %d ms at last, want %d", last, b.p.BackoffMax)
	}
	s.linked(7)
	s.linked(6)
	b.now = b.p.Served
	if s.served(0); s.saved != (Saved{Was: true, Epoch: 7}) || *b.out.Save != s.saved {
		t.Errorf("saved %+v", s.saved)
	}
}
