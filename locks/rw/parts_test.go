package rw

import (
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// While State lets others go on, an owner may make one piece of two: one of which
// begins where State has been, and ends where it has not.
func TestStateTellsOfWhatIsJoinedMeanwhile(t *testing.T) {
	for _, at := range []int{partSize - 2, partSize - 1, partSize, 2*partSize - 1} {
		var m *machine
		breaths := 0
		// Ticket i has byte 2*i, but for one that touches the one before it.
		where := func(i int) locks.Range {
			x := uint64(2 * i)
			if i == at+1 {
				x--
			}
			return locks.Range{Start: x, End: uint64(2*i) + 1}
		}
		m = newMachine(locks.Config{
			View: &locks.View{Epoch: 3, Self: "n0", Members: []locks.NodeID{"n0"}},
			Breathe: func() {
				if breaths++; breaths == 1 && m.frozen {
					var out locks.Turn
					all := locks.Range{Start: where(at).Start, End: where(at + 1).End}
					m.Replace([]locks.TicketID{locks.TicketID(at + 1), locks.TicketID(at + 2)},
						[]locks.Part{{ID: 1 << 20, Mode: locks.Write, Range: all}}, &out)
				}
			},
		})
		var out locks.Turn
		out.Reset(true)
		for i := range 3 * partSize {
			m.Acquire(locks.Ticket{ID: locks.TicketID(i + 1), Owner: 1, Mode: locks.Write, Range: where(i)}, &out)
		}
		if len(out.Done) != 3*partSize {
			t.Fatalf("%d granted", len(out.Done))
		}
		breaths = 0
		r := wire.NewReader(m.State())
		r.Max(maxClock)
		said := r.Ranges()
		if err := r.End(); err != nil || breaths == 0 {
			t.Fatalf("%v, %d breaths", err, breaths)
		}
		for i := range 3 * partSize {
			if !said.Contains(where(i)) {
				t.Errorf("%d: %v is written, and not announced", at, where(i))
			}
		}
	}
}

// What an owner lost at once, and gives up in parts, may begin where a piece of it
// begins that it has got since.
func TestStateTellsOfAllThatBeginAtOneByte(t *testing.T) {
	m := newMachine(locks.Config{View: &locks.View{Epoch: 3, Self: "n0", Members: []locks.NodeID{"n0"}}})
	var out locks.Turn
	out.Reset(true)
	get := func(id int, r locks.Range) {
		m.Acquire(locks.Ticket{ID: locks.TicketID(id), Owner: 1, Mode: locks.Write, Range: r}, &out)
	}
	for i := range partSize {
		get(i+1, locks.Range{Start: uint64(2 * i), End: uint64(2*i) + 1})
	}
	last := uint64(2 * (partSize - 1))
	get(partSize+1, locks.Range{Start: last, End: last + 100})
	r := wire.NewReader(m.State())
	r.Max(maxClock)
	if said := r.Ranges(); r.End() != nil || !said.Contains(locks.Range{Start: last, End: last + 100}) {
		t.Errorf("announced is %v", said[len(said)-3:])
	}
}

// The reads between two writes share one SN, and a clock that was heard of is
// passed.
func TestStamps(t *testing.T) {
	var s stamps
	get := func(m locks.Mode) locks.Stamp { return s.stamp(locks.Ticket{Mode: m}) }
	got := []locks.Stamp{get(locks.Read), get(locks.Read), get(locks.Write), get(locks.Read)}
	s.hear(9)
	s.hear(4)
	again := s.stamp(locks.Ticket{Mode: locks.Write, Stamp: locks.Stamp{SN: 3, N: 7}})
	got = append(got, again, get(locks.Write))
	for i, want := range []locks.Stamp{{SN: 1, N: 1}, {SN: 1, N: 2}, {SN: 1, N: 3}, {SN: 2, N: 4}, {SN: 3, N: 7}, {SN: 10, N: 8}} {
		if got[i] != want {
			t.Errorf("stamp %d is %v, want %v", i, got[i], want)
		}
	}
	if x := s.tick(); x != 11 || s.high != 11 {
		t.Errorf("the clock goes to %d, %d", x, s.high)
	}
}

func TestTokens(t *testing.T) {
	ts := tokens{last: locks.TokenFloor(2) + 5}
	ts.begin(2)
	if got := ts.next(); got != locks.TokenFloor(2)+6 {
		t.Errorf("token %v", got)
	}
	for _, x := range []locks.Token{locks.TokenFloor(2) - 1, locks.TokenFloor(3)} {
		if ts.learn(x, 2) == nil || ts.Token() != locks.TokenFloor(2)+6 {
			t.Errorf("%v is taken for a token of epoch 2: %v", x, ts.Token())
		}
	}
	if err := ts.learn(locks.TokenFloor(3)-1, 2); err != nil || ts.Token() != locks.TokenFloor(3)-1 {
		t.Errorf("%v, %v", err, ts.Token())
	}
	ts.begin(3)
	if got := ts.Token(); got != locks.TokenFloor(3) {
		t.Errorf("epoch 3 begins with %v", got)
	}
}

// Two nodes that say yes to each other at the same time have both given, and
// neither has.
func TestAnswersThatCross(t *testing.T) {
	here, there := &peer{id: "n1"}, &peer{id: "n0"} // what each of n0 and n1 has of the other
	a := &ask{rank: rank{id: 1}, round: 1, mode: locks.Write, rng: locks.Whole}
	b := &ask{rank: rank{id: 2}, round: 1, mode: locks.Write, rng: locks.Whole}
	here.asks, there.asks = []*ask{a}, []*ask{b}
	whole := func(t tag) *claim { return &claim{mode: locks.Write, rng: locks.Whole, pending: &pending{tag: t}} }
	if here.give(whole(b.tag())) || there.give(whole(a.tag())) {
		t.Error("handed over what nobody had")
	}
	hereOpen, thereOpen := here.open(locks.Whole), there.open(locks.Whole)
	here.close(a)
	there.close(b)
	if !here.gain(a, thereOpen) || !there.gain(b, hereOpen) {
		t.Error("what the other one was given is not stale")
	}
	for _, p := range []*peer{here, there} {
		if !p.auth.Empty() || !p.given.Empty() {
			t.Errorf("%s: may write %v, has given %v", p.id, p.auth, p.given)
		}
	}
}

// Who blocks whom: what is held, and what goes before and does not itself wait
// for the owner.
func TestBlockers(t *testing.T) {
	cs := claims{}
	add := func(id locks.TicketID, o locks.OwnerID, m locks.Mode, sn uint64) *claim {
		c := &claim{id: id, owner: o, mode: m, rng: locks.Whole, pending: &pending{rank: rank{id: id, stamp: locks.Stamp{SN: sn, Site: "n0"}}}}
		cs.tickets.add(c)
		return c
	}
	held := add(1, 1, locks.Read, 1)
	cs.held.add(held)
	write := add(2, 2, locks.Write, 2) // waits for it
	read := add(3, 3, locks.Read, 3)   // stands behind the write
	upgrade := add(4, 1, locks.Write, 4)
	for _, c := range []*claim{write, read, upgrade} {
		cs.waiting.add(c)
	}
	asked := &claim{id: 9, mode: locks.Write, rng: locks.Whole, pending: &pending{rank: rank{id: 9, stamp: locks.Stamp{SN: 1, Site: "n1"}}, from: &peer{}}}
	if b := cs.blocker(write); b != held {
		t.Errorf("the write is blocked by %v", b)
	}
	if b := cs.blocker(read); b != write {
		t.Errorf("the read is blocked by %v", b)
	}
	if b := cs.blocker(upgrade); b != read {
		t.Errorf("the upgrade is blocked by %v: not by the write, which waits for its owner", b)
	}
	cs.owed.insert(asked)
	if b := cs.blocker(read); b != write {
		t.Errorf("the read is blocked by %v, and not by the last that goes before it", b)
	}
	cs.waiting.leave(write)
	if b := cs.blocker(read); b != asked {
		t.Errorf("the read is blocked by %v, and not by the request", b)
	}
	if b := cs.blocker(asked); b != held {
		t.Errorf("the request is blocked by %v", b)
	}
	cs.held.remove(held)
	if b := cs.blocker(asked); b != nil {
		t.Errorf("the request is blocked by %v", b)
	}
	if cs.waiting.owners[2] != 0 || cs.waiting.owners[1] != 1 {
		t.Errorf("%v wait", cs.waiting.owners)
	}
}
