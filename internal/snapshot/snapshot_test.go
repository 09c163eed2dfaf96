package snapshot

import (
	"context"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func some() []Lock {
	return []Lock{
		{Path: "Mail/in", Class: "flock", Mode: "W", State: Held, Node: "A", Host: "one", PID: 11, Command: "writer", Since: now.Add(-time.Minute), File: "i1", Request: 1},
		{Path: "Mail/in", Class: "flock", Mode: "W", State: Waiting, Node: "B", Host: "two", PID: 22, Command: "reader", Since: now.Add(-20 * time.Second), File: "i1", Request: 1,
			WaitsFor: []Blocker{{Node: "A", Host: "one", PID: 11}, {Node: "A", Host: "one", PID: 12}}},
		{Path: "db", Class: "posix", Mode: "R", State: Waiting, Node: "B", Host: "two", PID: 23, Command: "Sqlite", Since: now.Add(-time.Second), File: "i2", Request: 2,
			WaitsFor: []Blocker{{Node: "C", Host: "three"}}},
		{Class: "open", State: Cached, Node: "A", Host: "one", File: "i3"},
	}
}

func of(locks []Lock) *Snapshot {
	s := &Snapshot{At: now, Locks: locks, Graph: &waitgraph.Graph{}, Peers: Peers{Members: []Peer{{ID: "A", Host: "one"}, {ID: "D", Host: "four"}}}}
	s.index()
	return s
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := of(some())
	for _, c := range []struct {
		q    Query
		want []int // of the processes
	}{
		{Query{}, []int{11, 22, 23}},
		{Query{Words: "MAIL two"}, []int{22}},
		{Query{Words: "sqlite"}, []int{23}},
		{Query{Words: "22"}, []int{22}},
		{Query{Words: "mail db"}, nil},
		{Query{State: Cached}, []int{0}},
		{Query{State: "all"}, []int{11, 22, 23, 0}},
		{Query{State: Waiting, File: "i1"}, []int{22}},
		{Query{Sort: "since", Down: true}, []int{23, 22, 11}},
		{Query{Sort: "command"}, []int{23, 22, 11}},
		{Query{Sort: "no such"}, []int{11, 22, 23}},
	} {
		var got []int
		for _, l := range s.Find(c.q) {
			got = append(got, l.PID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v finds %v, want %v", c.q, got, c.want)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	want := []HostSum{
		{Node: "A", Host: "one", Held: 1, Blocks: 1}, // the two programs of a wait count once
		{Node: "C", Host: "three", Blocks: 1},
		{Node: "B", Host: "two", Waiting: 2, Longest: 20 * time.Second},
		{Node: "D", Host: "four"},
	}
	if got := of(some()).Hosts(); !slices.Equal(got, want) {
		t.Errorf("hosts are %+v, want %+v", got, want)
	}
}

// TestSame: each change that people see makes another snapshot, and time alone
// none, until a wait is long.
func TestSame(t *testing.T) {
	t.Parallel()
	const long = 30 * time.Second
	a := of(some())
	later := of(some())
	later.At = now.Add(5 * time.Second)
	if !Same(a, later, long) {
		t.Error("time alone makes a change")
	}
	later.At = now.Add(11 * time.Second)
	if Same(a, later, long) {
		t.Error("a wait that has become long is no change")
	}
	if Same(nil, a, long) || !Same(nil, nil, long) {
		t.Error("the first one is no change")
	}
	for i, change := range []func(s *Snapshot){
		func(s *Snapshot) { s.Err = errors.New("no answer") },
		func(s *Snapshot) { s.Status.State = "suspended" },
		func(s *Snapshot) { s.Status.Problems = []string{"x"} },
		func(s *Snapshot) { s.Peers.Members[0].State = "silent" },
		func(s *Snapshot) { s.Peers.Gone = []Gone{{ID: "E"}} },
		func(s *Snapshot) { s.Locks[0].State = Waiting },
		func(s *Snapshot) { s.Locks[1].WaitsFor = nil },
		func(s *Snapshot) { s.Locks = s.Locks[1:] },
		func(s *Snapshot) { s.Graph.Waits = []waitgraph.Wait{{Process: "p"}} },
		func(s *Snapshot) { s.Graph.Members = []waitgraph.Member{{ID: "C", State: "silent"}} },
	} {
		b := of(some())
		change(b)
		if Same(a, b, long) {
			t.Errorf("change %d goes unseen", i)
		}
	}
}

// half answers some of the questions.
type half struct{ fails bool }

var errHalf = errors.New("no answer")

func (h half) err() error {
	if h.fails {
		return errHalf
	}
	return nil
}
func (h half) Status(context.Context) (Status, error) { return Status{State: "live"}, nil }
func (h half) Peers(context.Context) (Peers, error)   { return Peers{Self: "A"}, h.err() }
func (h half) Locks(context.Context, time.Duration) (Locks, error) {
	return Locks{Locks: some()}, h.err()
}
func (h half) Waits(context.Context, time.Duration) (*waitgraph.Graph, error) {
	return &waitgraph.Graph{Self: "A"}, h.err()
}
func (h half) Policy(context.Context) (v Policy, err error)                  { return v, nil }
func (h half) Journal(context.Context, url.Values, func(Record) error) error { return nil }
func (h half) Break(context.Context, []Lock, string) (v Broken, err error)   { return v, nil }
func (h half) Remove(context.Context, string, string) error                  { return nil }

func TestTakeKeepsWhatCannotBeAsked(t *testing.T) {
	t.Parallel()
	first := Take(t.Context(), half{}, nil, time.Second)
	second := Take(t.Context(), half{fails: true}, first, time.Second)
	if first.Err != nil || !errors.Is(second.Err, errHalf) {
		t.Errorf("errors are %v and %v", first.Err, second.Err)
	}
	if !reflect.DeepEqual(second.Locks, first.Locks) || second.Graph.Self != "A" || second.Peers.Self != "A" || len(second.Find(Query{})) != 3 {
		t.Error("what was known is gone")
	}
	if s := Take(t.Context(), half{fails: true}, nil, time.Second); s.Graph == nil || len(s.Find(Query{})) != 0 {
		t.Error("a snapshot of nothing has no graph")
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "–", "a b ä": "a b ä", "a\x1b[1m\n": `a\x1b[1m\n`, "\u202ex\u200b": `\u202ex\u200b`, "a\xffb": `a\ufffdb`, "\u00a0": `\u00a0`} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[time.Duration]string{-time.Second: "0 s", 1900 * time.Millisecond: "1 s", 61 * time.Second: "1 min 1 s", 3*time.Hour + 5*time.Minute: "3 h 5 min", 50 * time.Hour: "2 d"} {
		if got := Ago(in); got != want {
			t.Errorf("Ago(%v) = %q, want %q", in, got, want)
		}
	}
}

// Hosts that are called the same, as are two mounts of one, are told apart.
func TestHostName(t *testing.T) {
	t.Parallel()
	s := &Snapshot{Peers: Peers{Members: []Peer{{ID: "12D3KooW1AAAAAA", Host: "vm"}, {ID: "12D3KooW2BBBBBB", Host: "vm"}, {ID: "C", Host: "other"}}}}
	for node, want := range map[string]string{"12D3KooW1AAAAAA": "vm (…AAAAAA)", "12D3KooW2BBBBBB": "vm (…BBBBBB)", "short": "vm (…short)", "C": "other"} {
		host := "vm"
		if node == "C" {
			host = "other"
		}
		if got := s.HostName(node, host); got != want {
			t.Errorf("the host of %s is called %q, want %q", node, got, want)
		}
	}
}
