package exclusive_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/maekawa"
	"github.com/dmxfs/dmxfs/locks/rcv"
	"github.com/dmxfs/dmxfs/locks/ring"
	"github.com/dmxfs/dmxfs/locks/wire"
)

var algorithms = []locks.Algorithm{ring.Algorithm, maekawa.Algorithm, rcv.Algorithm}

// A bench is one machine and its turn.
type bench struct {
	locks.Machine
	out locks.Turn
}

func newBench(a locks.Algorithm, epoch locks.Epoch, members ...locks.NodeID) *bench {
	b := &bench{Machine: a.New(locks.Config{View: &locks.View{Epoch: epoch, Self: members[0], Members: members}})}
	b.out.Reset(true)
	return b
}

func (b *bench) acquire(id locks.TicketID, owner locks.OwnerID, try bool) {
	b.Acquire(locks.Ticket{ID: id, Owner: owner, Mode: locks.Read, Range: locks.Range{Start: 3, End: 4}, Try: try}, &b.out)
}

// granted are the tickets that were granted in this turn; denied, those that
// were denied. Both begin a new turn.
func (b *bench) granted() []locks.TicketID { return b.outcomes(true) }

func (b *bench) outcomes(granted bool) (ids []locks.TicketID) {
	for _, o := range b.out.Done {
		if o.Granted == granted {
			ids = append(ids, o.Ticket)
		}
	}
	b.out.Reset(b.out.MayEnter)
	return ids
}

// Whatever their modes and ranges, tickets of one owner are held together and
// those of two are not; tries meet what is held.
func TestOwnersExcludeEachOther(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.Name, func(t *testing.T) {
			b := newBench(a, 1, "n0")
			b.acquire(1, 1, false)
			b.acquire(2, 2, false)
			b.acquire(3, 1, true)
			if got := b.granted(); !slices.Equal(got, []locks.TicketID{1, 3}) {
				t.Errorf("granted %v, want those of owner 1", got)
			}
			b.acquire(4, 3, true)
			if got := b.outcomes(false); !slices.Equal(got, []locks.TicketID{4}) {
				t.Errorf("denied %v, want the try of owner 3", got)
			}
			local, remote := b.Blockers(2, 9)
			if !slices.Equal(local, []locks.TicketID{1, 3}) || len(remote) > 0 {
				t.Errorf("ticket 2 waits for %v and %v", local, remote)
			}
			b.Replace([]locks.TicketID{1}, nil, &b.out)
			if got := b.granted(); len(got) > 0 {
				t.Errorf("granted %v beside ticket 3", got)
			}
			b.Replace([]locks.TicketID{3}, []locks.Part{{ID: 5, Mode: locks.Read, Range: locks.Range{Start: 3, End: 4}}}, &b.out)
			if got := b.granted(); len(got) > 0 {
				t.Errorf("granted %v beside ticket 5", got)
			}
			b.Replace([]locks.TicketID{5}, nil, &b.out)
			if got := b.granted(); !slices.Equal(got, []locks.TicketID{2}) {
				t.Errorf("granted %v, want ticket 2", got)
			}
		})
	}
}

// A ticket that comes with an earlier stamp goes before those of its node that
// wait, and tries go before all.
func TestOrderOfANode(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.Name, func(t *testing.T) {
			b := newBench(a, 1, "n0")
			b.acquire(1, 1, false)
			b.acquire(2, 2, false)
			b.acquire(3, 3, false)
			first := b.Stamp(2)
			b.Cancel(2, &b.out)
			b.acquire(4, 4, false)
			b.Acquire(locks.Ticket{ID: 5, Owner: 2, Mode: locks.Write, Range: locks.Whole, Stamp: first}, &b.out)
			b.out.Reset(true)
			last := locks.TicketID(1)
			for _, want := range []locks.TicketID{5, 3, 4} {
				b.Replace([]locks.TicketID{last}, nil, &b.out)
				if got := b.granted(); !slices.Equal(got, []locks.TicketID{want}) {
					t.Errorf("granted %v, want %d", got, want)
				}
				last = want
			}
		})
	}
}

// The programs of a node have a turn each before a member that waits, and not
// those that came after it was heard of; and an owner that holds more is no
// way around that. Then the node asks again.
func TestAMemberIsNotKeptWaiting(t *testing.T) {
	b := newBench(ring.Algorithm, 1, "n0", "n1")
	b.acquire(1, 1, false)
	b.acquire(2, 2, false)
	home := b.out.Send[0].Msg // its own token, which has come round
	b.out.Reset(true)
	foreign := newBench(ring.Algorithm, 1, "n1", "n0")
	foreign.Machine = ring.Algorithm.New(locks.Config{View: &locks.View{Epoch: 1, Self: "n1", Members: []locks.NodeID{"n0", "n1"}}})
	if err := foreign.Receive("n0", home, &foreign.out); err != nil {
		t.Fatal(err)
	}
	receive := func(m locks.Message) {
		t.Helper()
		if err := b.Receive("n1", m, &b.out); err != nil {
			t.Fatal(err)
		}
	}
	receive(foreign.out.Send[0].Msg)
	if got := b.granted(); !slices.Equal(got, []locks.TicketID{1}) || b.Wanted() != 0 {
		t.Fatalf("granted %v, wanted %v", got, b.Wanted())
	}
	foreign.out.Reset(true)
	foreign.acquire(1, 1, false)
	receive(foreign.out.Send[0].Msg)
	if b.Wanted() != locks.Write {
		t.Error("not wanted, but n1 waits")
	}
	b.acquire(3, 3, false)
	b.acquire(4, 1, false)
	if got := b.granted(); !slices.Equal(got, []locks.TicketID{4}) {
		t.Errorf("granted %v, want the ticket of the owner that holds the lock", got)
	}
	b.Replace([]locks.TicketID{1, 4}, nil, &b.out)
	if got := b.granted(); !slices.Equal(got, []locks.TicketID{2}) {
		t.Errorf("granted %v, want ticket 2, which was first", got)
	}
	b.Replace([]locks.TicketID{2}, nil, &b.out)
	if lines := b.out.Lines(); len(b.out.Send) != 2 || !b.out.Handover || len(b.out.Done) > 0 {
		t.Errorf("%q, want the token of n1 and then the own one", lines)
	}
	if rs, _ := b.Permitted(0, 1); len(rs) > 0 || b.Wanted() != 0 {
		t.Errorf("rs %v, wanted %v", rs, b.Wanted())
	}
}

// States that contradict each other, or what is held here, stop the key.
func TestRestoreRefusesContradictions(t *testing.T) {
	holds := wire.Uint(nil, uint64(locks.TokenFloor(1)+2)) // the stamp of the first request
	for _, c := range []struct {
		name   string
		held   bool
		states map[locks.NodeID][]byte
		want   string
	}{
		{"nobody holds", false, nil, ""},
		{"another holds", false, map[locks.NodeID][]byte{"n1": holds}, ""},
		{"this holds", true, map[locks.NodeID][]byte{"n0": holds}, ""},
		{"two hold", false, map[locks.NodeID][]byte{"n1": holds, "n2": holds}, "both n1 and n2 hold the lock"},
		{"two hold, one here", true, map[locks.NodeID][]byte{"n0": holds, "n2": holds}, "both n0 and n2 hold the lock"},
		{"another holds what is held here", true, map[locks.NodeID][]byte{"n1": holds}, "held here, but that was not announced"},
		{"not announced", true, nil, "held here, but that was not announced"},
		{"no member", false, map[locks.NodeID][]byte{"n9": holds}, "n9, which is not a member"},
		{"cut short", false, map[locks.NodeID][]byte{"n1": {0x80}}, "state of n1: message is cut short"},
		{"too long", false, map[locks.NodeID][]byte{"n1": append(slices.Clone(holds), 0)}, "state of n1: message goes on"},
		{"no stamp", false, map[locks.NodeID][]byte{"n1": {0}}, "is not of an earlier epoch"},
		{"a stamp that cannot be", false, map[locks.NodeID][]byte{"n1": wire.Uint(nil, uint64(locks.TokenFloor(2)))}, "is not of an earlier epoch"},
	} {
		for _, a := range algorithms {
			t.Run(a.Name+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				b := newBench(a, 1, "n0")
				if c.held {
					b.acquire(1, 1, false)
				}
				said := b.State()
				if c.held != (len(said) > 0) {
					t.Fatalf("the state is %x", said)
				}
				was := b.String()
				b.out.Reset(true)
				view := &locks.View{Epoch: 2, Self: "n0", Members: []locks.NodeID{"n0", "n1", "n2"}}
				err := b.Restore(view, c.states, &b.out)
				if c.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					if err := b.Check(); err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want one about %q", err, c.want)
				}
				if got := b.String(); got != was || len(b.out.Lines()) > 0 {
					t.Errorf("the state was\n%s, and is\n%s\nafter %q", was, got, b.out.Lines())
				}
			})
		}
	}
}

// What comes from nobody, between two epochs, or with the clock of another one,
// is refused.
func TestReceiveRefuses(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.Name, func(t *testing.T) {
			speaker := newBench(a, 1, "n1", "n0")
			speaker.Machine = a.New(locks.Config{View: &locks.View{Epoch: 1, Self: "n1", Members: []locks.NodeID{"n0", "n1"}}})
			speaker.acquire(1, 1, false)
			msg := speaker.out.Send[0].Msg
			refused := func(b *bench, from locks.NodeID, m locks.Message, want string) {
				t.Helper()
				was := b.String()
				err := b.Receive(from, m, &b.out)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one about %q", err, want)
				}
				if b.String() != was {
					t.Errorf("the state was\n%s, and is\n%s", was, b)
				}
			}
			b := newBench(a, 1, "n0", "n1")
			refused(b, "n7", msg, "not another member")
			refused(b, "n0", msg, "not another member")
			refused(b, "n1", strange{}, "another algorithm")
			refused(newBench(a, 2, "n0", "n1"), "n1", msg, "not of epoch 2")
			b.State()
			refused(b, "n1", msg, "epoch 1 is over")
		})
	}
}

type strange struct{}

func (strange) Append(b []byte) []byte { return b }
func (strange) String() string         { return "STRANGE" }

// A bug of the caller panics before anything is changed.
func TestPreconditions(t *testing.T) {
	part := func(id locks.TicketID, m locks.Mode, from, to uint64) []locks.Part {
		return []locks.Part{{ID: id, Mode: m, Range: locks.Range{Start: from, End: to}}}
	}
	for name, f := range map[string]func(*bench){
		"an empty range":           func(b *bench) { b.Acquire(locks.Ticket{ID: 9, Mode: locks.Read}, &b.out) },
		"no mode":                  func(b *bench) { b.Acquire(locks.Ticket{ID: 9, Range: locks.Whole}, &b.out) },
		"a ticket that exists":     func(b *bench) { b.acquire(1, 1, false) },
		"cancel of what is held":   func(b *bench) { b.Cancel(1, &b.out) },
		"replace of what waits":    func(b *bench) { b.Replace([]locks.TicketID{2}, nil, &b.out) },
		"replace twice":            func(b *bench) { b.Replace([]locks.TicketID{1, 1}, nil, &b.out) },
		"a part that is wider":     func(b *bench) { b.Replace([]locks.TicketID{1}, part(1, locks.Read, 3, 5), &b.out) },
		"a part that is stronger":  func(b *bench) { b.Replace([]locks.TicketID{1}, part(1, locks.Write, 3, 4), &b.out) },
		"a part with a known name": func(b *bench) { b.Replace([]locks.TicketID{1}, part(2, locks.Read, 3, 4), &b.out) },
		"overtake of what is held": func(b *bench) { b.Overtake(1, &b.out) },
	} {
		b := newBench(ring.Algorithm, 1, "n0")
		b.acquire(1, 1, false)
		b.acquire(2, 2, false)
		was := b.String()
		func() {
			defer func() {
				if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "ring: ") {
					t.Errorf("%s: panic %v", name, r)
				}
			}()
			f(b)
		}()
		if b.String() != was {
			t.Errorf("%s: the state was\n%s, and is\n%s", name, was, b)
		}
	}
}
