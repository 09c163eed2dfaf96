package locktest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// Conformance is what every algorithm must pass: the contract of
// locks.Machine, small worlds explored, and random runs of larger ones.
func Conformance(t *testing.T, alg locks.Algorithm, opt Options) {
	t.Run("alone", func(t *testing.T) { alone(t, alg, opt) })
	t.Run("misuse", func(t *testing.T) { misuse(t, alg) })
	t.Run("garbage", func(t *testing.T) { garbage(t, alg) })
	t.Run("mangled", func(t *testing.T) { mangled(t, alg, opt) })
	t.Run("tries at once", func(t *testing.T) { triesAtOnce(t, alg, opt) })
	for _, c := range standard(alg, opt) {
		t.Run("explore "+c.String(), func(t *testing.T) { CheckConfig(t, alg, opt, c) })
	}
	t.Run("simulate", func(t *testing.T) { Simulate(t, alg, opt) })
}

// CheckConfig explores one configuration: its first states only, or many with
// -locktest.long.
func CheckConfig(t *testing.T, alg locks.Algorithm, opt Options, c Config) Result {
	t.Helper()
	switch {
	case *flagLong:
		c.Limit = 200_000
	case testing.Short(), long.Race && c.Limit == 0:
		c.Limit = 200
	case c.Limit == 0:
		c.Limit = long.Or(250, 1000)
	}
	r, err := Explore(alg, opt, c)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%v: %v", c, r)
	return r
}

// standard are small worlds for any algorithm.
func standard(alg locks.Algorithm, opt Options) []Config {
	cs := []Config{
		{Nodes: []string{"W A, W A", "W A, W A"}},
		{Nodes: []string{"W A", "W A", "W A"}},
		{Nodes: []string{"W A, W A o1", "W A"}, Cancels: 1, Agains: 1},
		{Nodes: []string{"W A try, W A", "W A try"}, Cancels: 1},
		{Nodes: []string{"W A try", "W A try", "W A try"}},
		{Nodes: []string{"W A, W A", "W A"}, Expires: 2, Drops: 2},
		{Nodes: []string{"W A", "W A o1"}, Suspends: 1, Expires: 1},
		{Nodes: []string{"W A", "W A", "W A"}, Views: []string{"n0,n1"}, Atomic: true},
		{Nodes: []string{"W A, W A", "W A"}, Views: []string{"n0,n1"}},
		{Nodes: []string{"W A", "W A", "W A"}, Views: []string{"n0,n2,n3"}, Cancels: 1},
		{Nodes: []string{"W A", "W A"}, Views: []string{"n0,n1,n2", "n1,n2"}},
	}
	if alg.Shared {
		cs = append(cs,
			Config{Nodes: []string{"W A, R A o1", "R A, W A"}, Rewrites: 1},
			Config{Nodes: []string{"W AB, R A", "W B, R AB"}},
		)
	}
	if opt.Overtakes {
		cs = append(cs, Config{Nodes: []string{"W A, W A o1", "W A"}, Overtakes: 2})
	}
	if opt.Duplicates {
		cs = append(cs, Config{Nodes: []string{"W A", "W A"}, Dups: 2, Cancels: 1})
	}
	return cs
}

// alone: a node without others grants at once, without a message, and blocks
// what conflicts.
func alone(t *testing.T, alg locks.Algorithm, opt Options) {
	w := newWorld(alg, opt, 1)
	m, out := w.need(w.nodes[0]), &locks.Turn{}
	granted := func(want ...locks.TicketID) {
		t.Helper()
		var got []locks.TicketID
		for _, o := range out.Done {
			if o.Granted {
				got = append(got, o.Ticket)
			}
		}
		if !slices.Equal(got, want) || len(out.Send) > 0 {
			t.Fatalf("%q, want grants of %v and no message", out.Lines(), want)
		}
		out.Reset(true)
	}
	out.Reset(true)
	tk := locks.Ticket{ID: 1, Owner: 1, Mode: locks.Write, Range: locks.Whole}
	m.Acquire(tk, out)
	granted(1)
	tk.ID, tk.Owner = 2, 2
	m.Acquire(tk, out)
	granted()
	if local, remote := m.Blockers(2, 9); !slices.Equal(local, []locks.TicketID{1}) || len(remote) > 0 {
		t.Errorf("ticket 2 waits for %v and %v, want ticket 1", local, remote)
	}
	if m.Stamp(2).IsZero() {
		t.Errorf("ticket 2 has no stamp")
	}
	m.Replace([]locks.TicketID{1}, nil, out)
	granted(2)
	if m.Idle() {
		t.Errorf("idle, with ticket 2 held")
	}
	m.Replace([]locks.TicketID{2}, nil, out)
	granted()
	m.Expire(out)
	granted()
	if !m.Idle() {
		t.Errorf("not idle: %v", m)
	}
	if s := m.Suspects(locks.Write, locks.Whole); len(s) > 0 {
		t.Errorf("suspects %v", s)
	}
	if m.Token() <= locks.TokenFloor(1) {
		t.Errorf("token %v after two grants", m.Token())
	}
}

// misuse: a bug of the caller panics.
func misuse(t *testing.T, alg locks.Algorithm) {
	for name, f := range map[string]func(locks.Machine, *locks.Turn){
		"cancel":   func(m locks.Machine, out *locks.Turn) { m.Cancel(9, out) },
		"replace":  func(m locks.Machine, out *locks.Turn) { m.Replace([]locks.TicketID{9}, nil, out) },
		"overtake": func(m locks.Machine, out *locks.Turn) { m.Overtake(9, out) },
		"stamp":    func(m locks.Machine, _ *locks.Turn) { m.Stamp(9) },
		"acquire": func(m locks.Machine, out *locks.Turn) {
			tk := locks.Ticket{ID: 1, Mode: locks.Write, Range: locks.Whole}
			m.Acquire(tk, out)
			m.Acquire(tk, out)
		},
	} {
		w := newWorld(alg, Options{}, 2)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of a ticket that is not there, or is there already: no panic", name)
				}
			}()
			w.turn.Reset(true)
			f(w.need(w.nodes[0]), &w.turn)
		}()
	}
}

// garbage: what is not a message is not decoded into one.
func garbage(t *testing.T, alg locks.Algorithm) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make([]byte, rng.IntN(24))
		for i := range b {
			b[i] = byte(rng.UintN(256)) >> rng.UintN(8)
		}
		m, err := alg.Decode(b)
		if err == nil && string(m.Append(nil)) != string(b) {
			t.Fatalf("%x is %v, and encoded again %x", b, m, m.Append(nil))
		}
	}
}

// triesAtOnce: of tries by all nodes at once, with nothing held, exactly one
// wins, whatever was before and in whatever order messages come.
func triesAtOnce(t *testing.T, alg locks.Algorithm, opt Options) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 1 + rng.IntN(6)
		w := newWorld(alg, opt, n)
		do := func(o Op) {
			if err := w.apply(o); err != nil {
				t.Fatalf("seed %d: %v: %v", seed, o, err)
			}
		}
		acquire := func(node int, id locks.TicketID, try bool) {
			do(Op{Kind: opAcquire, Node: node, Ticket: locks.Ticket{ID: id, Mode: locks.Write, Range: locks.Whole, Try: try}})
		}
		for i := range rng.IntN(4) { // somebody may have all permissions already
			node, id := rng.IntN(n), locks.TicketID(i+1)
			acquire(node, id, false)
			if err := settle(w, w.apply); err != nil {
				t.Fatal(err)
			}
			do(Op{Kind: opReplace, Node: node, Old: []locks.TicketID{id}})
		}
		for _, node := range rng.Perm(n) {
			acquire(node, 100, true)
		}
		for {
			var ops []Op
			w.arriving(func(from, to *node) {
				ops = append(ops, Op{Kind: opDeliver, Node: from.index, To: to.index})
			})
			if len(ops) == 0 {
				break
			}
			do(ops[rng.IntN(len(ops))])
		}
		won := 0
		for _, tk := range w.oracle.tickets {
			if tk.ID == 100 && tk.status == held {
				won++
			} else if tk.ID == 100 {
				t.Fatalf("seed %d: %v has no answer", seed, tk)
			}
		}
		if won != 1 {
			t.Fatalf("seed %d: %d of %d tries won", seed, won, n)
		}
	}
}
