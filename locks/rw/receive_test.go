package rw

import (
	"errors"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

var trio = []locks.NodeID{"n0", "n1", "n2"}

func trioMachine(epoch locks.Epoch) *machine {
	return newMachine(locks.Config{View: &locks.View{Epoch: epoch, Self: "n0", Members: trio}})
}

// What a peer says against the protocol is an error, and changes nothing: a
// daemon must not be brought to forget what it gave.
func TestReceiveRefusesWhatBreaksTheProtocol(t *testing.T) {
	a := locks.Range{Start: 0, End: 1}
	floor := locks.TokenFloor(3)
	ask := func(id locks.TicketID, round uint64, try bool) *request {
		return &request{tag: tag{id, round}, sn: 5, n: 1, mode: locks.Write, rng: a, try: try}
	}
	for _, c := range []struct {
		name string
		from locks.NodeID
		msg  locks.Message
		want string
	}{
		{"from nobody", "n9", ask(1, 1, false), "not another member"},
		{"from itself", "n0", ask(1, 1, false), "not another member"},
		{"of another algorithm", "n1", strange{}, "another algorithm"},
		{"asked twice by one tag", "n1", ask(7, 2, false), "owed an answer"},
		{"asked again by an earlier round", "n1", ask(7, 1, false), "owed an answer"},
		{"a try after a wait", "n1", ask(7, 3, true), "owed an answer"},
		{"answer to nothing", "n1", &reply{tag: tag{9, 1}, yes: true, token: floor}, "no request with that tag"},
		{"no to nothing", "n1", &reply{tag: tag{9, 1}}, "no request with that tag"},
		{"no to a wait", "n1", &reply{tag: tag{1, 1}}, "neither a try nor withdrawn"},
		{"token of an earlier epoch", "n1", &reply{tag: tag{1, 1}, yes: true, token: floor - 1}, "not of epoch 3"},
		{"token of a later epoch", "n1", &reply{tag: tag{1, 1}, yes: true, token: locks.TokenFloor(4)}, "not of epoch 3"},
		{"clock for nothing", "n1", &clock{tag{9, 1}, 8}, "no request with that tag"},
		{"release of what was not given", "n1", &release{locks.RangesOf(a), floor}, "given only {}"},
		{"release with an old token", "n2", &release{locks.RangesOf(a), floor - 1}, "not of epoch 3"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m := trioMachine(3)
			var out locks.Turn
			out.Reset(true)
			// n2 was given A; then ticket 1 asks n1 and n2 for it, and n1 asks n0.
			if err := m.Receive("n2", ask(3, 1, false), &out); err != nil {
				t.Fatal(err)
			}
			m.Acquire(locks.Ticket{ID: 1, Mode: locks.Write, Range: a, Stamp: locks.Stamp{SN: 1, Site: "n0", N: 1}}, &out)
			if err := m.Receive("n1", ask(7, 2, false), &out); err != nil {
				t.Fatal(err)
			}
			was := m.String()
			out.Reset(true)
			err := m.Receive(c.from, c.msg, &out)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if got := m.String(); got != was || len(out.Lines()) > 0 {
				t.Errorf("the state was\n%s, and is\n%s\nafter %q", was, got, out.Lines())
			}
		})
	}
}

// Three nodes could tell one another of ever later clocks, so a ticket follows
// only so often before the engine lets it overtake again.
func TestOvertakesByItselfOnlySoOften(t *testing.T) {
	m := trioMachine(3)
	var out locks.Turn
	out.Reset(true)
	m.Acquire(locks.Ticket{ID: 1, Mode: locks.Write, Range: locks.Whole}, &out)
	for range 2 {
		out.Reset(true)
		m.Overtake(1, &out)
		for followed := 0; ; followed++ {
			r, ok := (*request)(nil), false
			if len(out.Send) > 0 {
				r, ok = out.Send[0].Msg.(*request)
			}
			if !ok {
				if followed != 3 { // the Overtake, and once for each of two peers
					t.Errorf("it asked %d times, want 3", followed)
				}
				break
			}
			if followed > 3 {
				t.Fatal("no end")
			}
			out.Reset(true)
			if err := m.Receive("n1", &clock{r.tag, r.over + 10}, &out); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestReceiveRefusesAllBetweenEpochs(t *testing.T) {
	m := trioMachine(3)
	var out locks.Turn
	m.State()
	err := m.Receive("n1", &cancel{tag{1, 1}}, &out)
	if err == nil || !strings.Contains(err.Error(), "after the end of epoch 3") {
		t.Errorf("error %v", err)
	}
}

type strange struct{}

func (strange) Append(b []byte) []byte { return b }
func (strange) String() string         { return "STRANGE" }

// States that contradict each other, or what is held here, stop the key: there
// may be two holders, and nobody can tell which one is right.
func TestRestoreRefusesContradictions(t *testing.T) {
	a, b := locks.Range{Start: 0, End: 1}, locks.Range{Start: 1, End: 2}
	writes := func(rs ...locks.Range) []byte { return wire.Ranges(wire.Uint(nil, uint64(4)), locks.Collect(rs)) }
	for _, c := range []struct {
		name   string
		mode   locks.Mode // of what is held on a, or 0
		states map[locks.NodeID][]byte
		want   string
	}{
		{"nothing is held", 0, map[locks.NodeID][]byte{"n1": writes(a), "n2": writes(b)}, ""},
		{"a write is held", locks.Write, map[locks.NodeID][]byte{"n0": writes(a), "n1": writes(b)}, ""},
		{"a read is held", locks.Read, map[locks.NodeID][]byte{"n1": writes(b)}, ""},
		{"two write", 0, map[locks.NodeID][]byte{"n1": writes(a, b), "n2": writes(b)}, "both n1 and n2 write [1,2)"},
		{"one writes what is written here", locks.Write, map[locks.NodeID][]byte{"n0": writes(a), "n1": writes(a)}, "both n0 and n1 write [0,1)"},
		{"one writes what is read here", locks.Read, map[locks.NodeID][]byte{"n1": writes(a)}, "ticket 1 holds [0,1) here"},
		{"not announced", locks.Write, map[locks.NodeID][]byte{"n0": writes(b)}, "[0,1) is written here, but that was not announced"},
		{"a clock that cannot be", 0, map[locks.NodeID][]byte{"n1": wire.Ranges(wire.Uint(nil, uint64(maxClock+1)), locks.RangesOf(a))}, "state of n1: message has a malformed field"},
		{"cut short", 0, map[locks.NodeID][]byte{"n1": {4}}, "state of n1: message is cut short"},
		{"too long", 0, map[locks.NodeID][]byte{"n1": append(writes(a), 0)}, "state of n1: message goes on"},
		{"no member", 0, map[locks.NodeID][]byte{"n9": writes(a)}, "n9, which is not a member"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			v := &locks.View{Epoch: 4, Self: "n0", Members: trio}
			m := newMachine(locks.Config{View: &locks.View{Epoch: 3, Self: "n0", Members: trio[:1]}})
			var out locks.Turn
			out.Reset(true)
			if c.mode != 0 {
				m.Acquire(locks.Ticket{ID: 1, Mode: c.mode, Range: a}, &out)
			}
			m.State()
			was := m.String()
			out.Reset(true)
			err := m.Restore(v, c.states, &out)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Check(); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if got := m.String(); got != was || len(out.Lines()) > 0 {
				t.Errorf("the state was\n%s, and is\n%s", was, got)
			}
		})
	}
}

// A bug of the caller is not carried on with.
func TestPreconditions(t *testing.T) {
	a, ab := locks.Range{Start: 0, End: 1}, locks.Range{Start: 0, End: 2}
	for name, f := range map[string]func(*machine, *locks.Turn){
		"acquire an ID twice":    func(m *machine, out *locks.Turn) { m.Acquire(locks.Ticket{ID: 1, Mode: locks.Read, Range: a}, out) },
		"acquire no bytes":       func(m *machine, out *locks.Turn) { m.Acquire(locks.Ticket{ID: 9, Mode: locks.Read}, out) },
		"acquire without a mode": func(m *machine, out *locks.Turn) { m.Acquire(locks.Ticket{ID: 9, Range: a}, out) },
		"acquire beyond the end": func(m *machine, out *locks.Turn) {
			m.Acquire(locks.Ticket{ID: 9, Mode: locks.Read, Range: locks.Range{End: locks.MaxOffset + 1}}, out)
		},
		"cancel what is held":    func(m *machine, out *locks.Turn) { m.Cancel(1, out) },
		"cancel nothing":         func(m *machine, out *locks.Turn) { m.Cancel(9, out) },
		"overtake nothing":       func(m *machine, out *locks.Turn) { m.Overtake(9, out) },
		"stamp of nothing":       func(m *machine, out *locks.Turn) { m.Stamp(9) },
		"replace nothing":        func(m *machine, out *locks.Turn) { m.Replace([]locks.TicketID{9}, nil, out) },
		"replace what waits":     func(m *machine, out *locks.Turn) { m.Replace([]locks.TicketID{3}, nil, out) },
		"replace a ticket twice": func(m *machine, out *locks.Turn) { m.Replace([]locks.TicketID{1, 1}, nil, out) },
		"replace of two owners":  func(m *machine, out *locks.Turn) { m.Replace([]locks.TicketID{1, 2}, nil, out) },
		"replace by more bytes": func(m *machine, out *locks.Turn) {
			m.Replace([]locks.TicketID{1}, []locks.Part{{ID: 1, Mode: locks.Read, Range: ab}}, out)
		},
		"replace by a stronger one": func(m *machine, out *locks.Turn) {
			m.Replace([]locks.TicketID{1}, []locks.Part{{ID: 1, Mode: locks.Write, Range: a}}, out)
		},
		"replace by one twice": func(m *machine, out *locks.Turn) {
			m.Replace([]locks.TicketID{1}, []locks.Part{{ID: 1, Mode: locks.Read, Range: a}, {ID: 9, Mode: locks.Read, Range: a}}, out)
		},
		"replace by another's ID": func(m *machine, out *locks.Turn) {
			m.Replace([]locks.TicketID{1}, []locks.Part{{ID: 2, Mode: locks.Read, Range: a}}, out)
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			m := trioMachine(1)
			var out locks.Turn
			out.Reset(true)
			m.Acquire(locks.Ticket{ID: 1, Owner: 1, Mode: locks.Read, Range: a}, &out)
			m.Acquire(locks.Ticket{ID: 2, Owner: 2, Mode: locks.Read, Range: a}, &out)
			m.Acquire(locks.Ticket{ID: 3, Owner: 3, Mode: locks.Write, Range: a}, &out)
			was := m.String()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				if m.String() != was {
					t.Errorf("the state was\n%s, and is\n%s", was, m)
				}
			}()
			f(m, &out)
		})
	}
}

func TestDecodeRefusesWhatMeansNothing(t *testing.T) {
	a := locks.Range{Start: 0, End: 1}
	for _, c := range []struct {
		name string
		msg  locks.Message
	}{
		{"a clock that cannot be", &request{sn: maxClock + 1, mode: locks.Read, rng: a}},
		{"an overtake beyond all clocks", &request{over: maxClock + 1, mode: locks.Read, rng: a}},
		{"a clock that tells one that cannot be", &clock{high: maxClock + 1}},
		{"no mode", &request{rng: a}},
		{"no bytes", &request{mode: locks.Read}},
		{"a try that says what its owner holds", &request{mode: locks.Read, rng: a, try: true, own: holds{any: locks.RangesOf(a)}}},
		{"what is written is not held", &request{mode: locks.Read, rng: a, own: holds{write: locks.RangesOf(a)}}},
		{"a release of nothing", &release{}},
	} {
		b := c.msg.Append(nil)
		if m, err := decode(b); !errors.Is(err, wire.ErrForm) {
			t.Errorf("%s: %v, %v", c.name, m, err)
		}
	}
	for _, b := range [][]byte{nil, {0}, {9}, {kindCancel, 1}, {kindCancel, 1, 1, 1}} {
		if m, err := decode(b); err == nil {
			t.Errorf("%x is %v", b, m)
		}
	}
}

// FuzzDecode: nothing panics, and what is accepted is canonical.
func FuzzDecode(f *testing.F) {
	a, all := locks.Range{Start: 0, End: 1}, locks.Whole
	for _, m := range []locks.Message{
		&request{tag: tag{7, 1}, sn: 3, n: 4, over: 9, mode: locks.Write, rng: all,
			own: holds{any: locks.Ranges{a, {Start: 5, End: 9}}, write: locks.Ranges{a}}},
		&request{tag: tag{1 << 60, 2}, sn: 1, n: 1, mode: locks.Read, rng: a, try: true},
		&reply{tag: tag{7, 1}, yes: true, token: locks.TokenFloor(3) + 9, open: []tag{{1, 2}, {3, 4}}},
		&reply{tag: tag{7, 1}},
		&cancel{tag{7, 1}},
		&release{ranges: locks.Ranges{a, {Start: 3, End: locks.MaxOffset}}, token: 5},
		&clock{tag{7, 1}, 12},
	} {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			if !errors.Is(err, wire.ErrForm) && !errors.Is(err, wire.ErrShort) && !errors.Is(err, wire.ErrTrailing) {
				t.Errorf("%x: error of an unknown kind: %v", b, err)
			}
			return
		}
		if again := m.Append(nil); string(again) != string(b) {
			t.Errorf("%x is %v, and encoded again %x", b, m, again)
		}
		// A machine bears whatever can be decoded.
		machine := trioMachine(3)
		var out locks.Turn
		out.Reset(true)
		if err := machine.Receive("n1", m, &out); err == nil {
			if err := machine.Check(); err != nil {
				t.Errorf("after %v: %v", m, err)
			}
		}
	})
}

// FuzzRestore: no state panics, and what is accepted keeps the invariants.
func FuzzRestore(f *testing.F) {
	f.Add([]byte{4, 1, 0, 1})
	f.Add([]byte{4, 2, 0, 1, 3, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := trioMachine(3)
		var out locks.Turn
		out.Reset(true)
		m.Acquire(locks.Ticket{ID: 1, Mode: locks.Read, Range: locks.Range{Start: 2, End: 3}}, &out)
		m.State()
		v := &locks.View{Epoch: 4, Self: "n0", Members: trio}
		if err := m.Restore(v, map[locks.NodeID][]byte{"n1": b}, &out); err != nil {
			return
		}
		if err := m.Check(); err != nil {
			t.Errorf("%x: %v", b, err)
		}
	})
}
