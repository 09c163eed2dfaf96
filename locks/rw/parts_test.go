package rw

import (
	"testing"

	"dmxfs/locks"
	"dmxfs/locks/wire"
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
