package locks

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func anyStamp() *rapid.Generator[Stamp] {
	return rapid.Custom(func(t *rapid.T) Stamp {
		return Stamp{
			SN:   rapid.Uint64Range(0, 2).Draw(t, "sn"),
			Site: NodeID(rapid.SampledFrom([]string{"", "n0", "n1"}).Draw(t, "site")),
			N:    rapid.Uint64Range(0, 2).Draw(t, "n"),
		}
	})
}

// The order of stamps must be total, and the same on every node: else two
// nodes could each give way to the other.
func TestStampsAreTotallyOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyStamp().Draw(t, "a"), anyStamp().Draw(t, "b"), anyStamp().Draw(t, "c")
		if a.Compare(b) != -b.Compare(a) || (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("%v and %v compare as %d and %d", a, b, a.Compare(b), b.Compare(a))
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%v <= %v <= %v, but not %v <= %v", a, b, c, a, c)
		}
		if a.SN < b.SN && a.Compare(b) >= 0 {
			t.Fatalf("%v is not before %v", a, b)
		}
		if a.IsZero() != (a == Stamp{}) {
			t.Fatalf("IsZero of %v is %v", a, a.IsZero())
		}
	})
}

func TestTokensOfALaterEpochAreGreater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Epoch(rapid.Uint64Range(0, 1<<24-2).Draw(t, "epoch"))
		last := TokenFloor(e) + 1<<tokenCount - 1
		if TokenFloor(e) >= last || last >= TokenFloor(e+1) {
			t.Fatalf("epoch %d: floor %d, last %d, next floor %d", e, TokenFloor(e), last, TokenFloor(e+1))
		}
	})
}

func TestViewIndex(t *testing.T) {
	v := &View{Epoch: 3, Self: "b", Members: []NodeID{"a", "b"}}
	if v.Index("a") != 0 || v.Index("b") != 1 || v.Index("c") != -1 {
		t.Errorf("indices %d, %d, %d", v.Index("a"), v.Index("b"), v.Index("c"))
	}
}

func TestClassesAreNamed(t *testing.T) {
	for _, c := range Classes {
		got, err := ParseClass(c.String())
		if err != nil || got != c {
			t.Errorf("ParseClass(%q) = %v, %v", c.String(), got, err)
		}
	}
	if c, err := ParseClass("mandatory"); err == nil || !strings.Contains(err.Error(), "mandatory") {
		t.Errorf("ParseClass(mandatory) = %v, %v", c, err)
	}
}

func TestKeysAreOrdered(t *testing.T) {
	keys := []Key{{"b", Open}, {"a", Posix}, {"a", Open}, {"a", Flock}}
	slices.SortFunc(keys, Key.Compare)
	want := []Key{{"a", Open}, {"a", Flock}, {"a", Posix}, {"b", Open}}
	if !slices.Equal(keys, want) {
		t.Errorf("%v, want %v", keys, want)
	}
}

type text string

func (text) Append(b []byte) []byte { return b }
func (m text) String() string       { return string(m) }

func TestTurnText(t *testing.T) {
	turn := Turn{
		Send:     []Envelope{{"n1", text("REPLY")}},
		Done:     []Outcome{{Ticket: 7, Granted: true, Token: TokenFloor(2) + 17}, {Ticket: 8}},
		Handover: true, Stale: true,
	}
	want := []string{"handover", "to n1: REPLY", "stale", "7 granted token=2.17", "8 denied"}
	if got := turn.Lines(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	turn.Reset(true)
	if got := turn.Lines(); !turn.MayEnter || len(got) != 0 {
		t.Errorf("after Reset: %+v", turn)
	}
	ticket := Ticket{ID: 7, Mode: Write, Range: Range{0, 8}, Owner: 2, Try: true, Stamp: Stamp{3, "n1", 4}}
	if got := ticket.String(); got != "7 W [0,8) o2 try stamp=3.n1.4" {
		t.Errorf("ticket %q", got)
	}
	if got := (Part{7, Read, Whole}).String(); got != "7 R [all]" {
		t.Errorf("part %q", got)
	}
}
