package engine

import (
	"slices"
	"testing"
	"time"
)

// The gate of a key, by itself: some opens join, the others wait until it opens.
func TestGateLetsAFewJoin(t *testing.T) {
	var g gate
	for i := range joinBatch {
		if g.join() {
			t.Fatalf("open %d has to wait", i+1)
		}
	}
	a, b, c := new(ticket), new(ticket), new(ticket)
	for _, x := range []*ticket{a, b, c} {
		if !g.join() {
			t.Fatal("one more than may has joined")
		}
		g.wait(x)
	}
	g.leave(b)
	if got := g.open(); !slices.Equal(got, []*ticket{a, c}) {
		t.Errorf("%d are let in, not those two that still wait", len(got))
	}
	if g.join() {
		t.Error("an open gate has somebody wait")
	}
}

// Who goes before its turn makes the next one wait for twice as long.
func TestPatienceDoubles(t *testing.T) {
	var g gate
	now := time.Now()
	want := firstOvertake
	for range patienceDoubles {
		if got := g.patience(now); got != want {
			t.Fatalf("patience is %v, want %v", got, want)
		}
		g.pass(now)
		g.pass(now) // at the same time: counts once
		now, want = now.Add(g.patience(now)), min(2*want, maxOvertake)
	}
	if got := g.patience(now); got != maxOvertake {
		t.Errorf("patience has grown to %v, and has to end at %v", got, maxOvertake)
	}
	if got := g.patience(now.Add(patienceLasts + 1)); got != firstOvertake {
		t.Errorf("after %v it is %v still", patienceLasts, got)
	}
	g.pass(now)
	g.wrote()
	if got := g.patience(now); got != firstOvertake {
		t.Errorf("when a writer has got in it is %v still", got)
	}
}
