package rw

import (
	"fmt"
	"math"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// The numbers of messages that a lock costs are promises, so
// they are tests. Plain Ricart-Agrawala would cost 2(N-1) each time, for reads
// too; the printed algorithm of Liu et al., corrected, 3(N-1) a write.

func messages(t *testing.T, l locktest.Load) float64 {
	t.Helper()
	got, err := locktest.Messages(Algorithm, l)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Without chance: who repeats a lock says nothing, two in turns say two words
// each time, and giving back at once costs a message more per peer than
// Ricart-Agrawala.
func TestMessagesInTurns(t *testing.T) {
	long.NoRace(t)
	for _, n := range []int{2, 3, 9, 30} {
		for _, c := range []struct {
			name string
			load locktest.Load
			want float64
		}{
			{"one node repeats", locktest.Load{Active: 1, Warm: true}, 0},
			{"two nodes in turns", locktest.Load{Active: 2, Turns: true, Warm: true}, 2},
			{"one node repeats, expire", locktest.Load{Active: 1, Expire: true}, float64(3 * (n - 1))},
			{"two nodes in turns, expire", locktest.Load{Active: 2, Turns: true, Expire: true}, float64(3 * (n - 1))},
			{"all read", locktest.Load{Reads: 1}, 0},
			{"all at once, fresh", locktest.Load{Burst: true}, float64(2 * (n - 1))},
			{"all at once, fresh, expire", locktest.Load{Burst: true, Expire: true}, 2.5 * float64(n-1)},
		} {
			c.load.Nodes, c.load.Acquires = n, 10
			if got := messages(t, c.load); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("N=%d, %s: %.3f messages a lock, want %.3f", n, c.name, got, c.want)
			}
		}
	}
}

// By chance: the figures come from another program.
func TestMessagesAtRandom(t *testing.T) {
	long.NoRace(t)
	type figures struct {
		expire           bool
		reads            float64
		n                int
		serial, saturate float64
	}
	for _, f := range []figures{
		{false, 0, 3, 2.0, 3.1}, {false, 0, 9, 8.0, 15.4}, {false, 0, 30, 28.7, 57.4},
		{false, 0.5, 3, 2.0, 2.6}, {false, 0.5, 9, 8.1, 11.7}, {false, 0.5, 30, 29.3, 43.5},
		{false, 0.9, 3, 0.69, 0.73}, {false, 0.9, 9, 2.7, 3.1}, {false, 0.9, 30, 10.5, 11.4},
		{false, 0.99, 3, 0.08, 0.07}, {false, 0.99, 9, 0.31, 0.27}, {false, 0.99, 30, 1.15, 1.05},
		{true, 0, 3, 6.0, 4.5}, {true, 0, 9, 24.0, 17.3}, {true, 0, 30, 87.0, 59.5},
		{true, 0.5, 3, 2.9, 3.2}, {true, 0.5, 9, 12.0, 12.6}, {true, 0.5, 30, 43.1, 44.9},
		{true, 0.9, 3, 0.62, 0.86}, {true, 0.9, 9, 2.4, 3.1}, {true, 0.9, 30, 9.6, 11.6},
		{true, 0.99, 3, 0.06, 0.09}, {true, 0.99, 9, 0.25, 0.44}, {true, 0.99, 30, 0.83, 0.83},
	} {
		t.Run(fmt.Sprintf("n=%d/reads=%v/expire=%v", f.n, f.reads, f.expire), func(t *testing.T) {
			l := locktest.Load{Nodes: f.n, Reads: f.reads, Expire: f.expire, Acquires: long.Or(600, 1500)}
			switch {
			case f.reads == 0.9 && f.n == 30:
				l.Acquires = long.Or(1500, 10_000)
			case f.reads >= 0.9: // few write, and reads cost little time
				l.Acquires = long.Or(3000, 10_000)
			case f.n == 30:
				l.Acquires = long.Or(250, 500)
			}
			serial := messages(t, l)
			l.Saturated = true
			saturated := messages(t, l)
			t.Logf("%.2f serial, %.2f saturated", serial, saturated)
			near(t, "serial", serial, f.serial, l)
			near(t, "saturated", saturated, f.saturate, l)
		})
	}
	for _, n := range []int{2, 3, 9, 30} {
		l := locktest.Load{Nodes: n, Active: 2, Saturated: true, Acquires: 1000}
		near(t, "two saturated", messages(t, l), 1.3, l)
		l.Expire = true
		want := map[int]float64{2: 2.3, 3: 5.3, 9: 23.4, 30: 86.4}[n]
		near(t, "two saturated, expire", messages(t, l), want, l)
	}
	for _, f := range []struct {
		n            int
		kept, expire float64
	}{{5, 6.4, 8.4}, {10, 16.2, 20.7}, {30, 56.1, 70.6}} {
		l := locktest.Load{Nodes: f.n, Burst: true, Warm: true, Acquires: 10}
		near(t, "all at once, all have written", messages(t, l), f.kept, l)
		l.Expire = true
		near(t, "all at once, all have written, expire", messages(t, l), f.expire, l)
	}
}

// near allows for chance, in both programs: where few tickets write, a few more
// of them make much of the sum.
func near(t *testing.T, what string, got, want float64, l locktest.Load) {
	t.Helper()
	tolerance := 0.12*want + 0.15
	if l.Reads > 0.9 {
		tolerance = 0.7*want + 0.1
	}
	if math.Abs(got-want) > tolerance {
		t.Errorf("N=%d, reads %v, expire %v, %s: %.2f messages a lock, want %.2f", l.Nodes, l.Reads, l.Expire, what, got, want)
	}
}
