package process

import (
	"runtime"
	"testing"
)

// There are as many processors as are needed, and not fewer than there were; what somebody has
// decided holds.
func TestProcessors(t *testing.T) {
	for _, x := range []struct {
		said string
		had  int
		want [4]int // where 2, 3 and 8 are needed, and 2 again
	}{
		{"", 1, [4]int{2, 3, 8, 2}}, {"", 2, [4]int{2, 3, 8, 2}}, {"", 4, [4]int{4, 4, 8, 4}}, {"", 16, [4]int{16, 16, 16, 16}},
		{"2", 2, [4]int{2, 2, 2, 2}}, {"1", 1, [4]int{1, 1, 1, 1}},
	} {
		had := runtime.GOMAXPROCS(x.had)
		t.Setenv("GOMAXPROCS", x.said)
		p := NewProcessors(2)
		for _, i := range []int{0, 1, 1, 0, 2, 1, 2, 2, 3, 0, 2, 3} {
			n := [4]int{2, 3, 8, 2}[i]
			p.AtLeast(n)
			p.changes.Wait()
			if got := runtime.GOMAXPROCS(0); got != x.want[i] {
				t.Errorf("GOMAXPROCS=%q, of %d, %d at least: %d run, want %d", x.said, x.had, n, got, x.want[i])
			}
		}
		runtime.GOMAXPROCS(had)
	}
}

// What the runtime has changed meanwhile, as it follows a cgroup, stays if it is enough.
func TestProcessorsFollowTheRuntime(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	t.Setenv("GOMAXPROCS", "")
	p := NewProcessors(2)
	atLeast := func(n, want int) {
		t.Helper()
		p.AtLeast(n)
		p.changes.Wait()
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%d at least: %d run, want %d", n, got, want)
		}
	}
	atLeast(3, 3)
	runtime.GOMAXPROCS(8)
	atLeast(2, 8)
	atLeast(3, 8)
	runtime.GOMAXPROCS(1)
	atLeast(2, 2)
	atLeast(3, 3)
	atLeast(1, 1)
}

// Of wishes that come one after the other the last one counts.
func TestTheLastWishCounts(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	t.Setenv("GOMAXPROCS", "")
	p := NewProcessors(2)
	for i := range 50 {
		p.AtLeast(3 - i%2)
	}
	p.changes.Wait()
	if n := runtime.GOMAXPROCS(0); n != 2 {
		t.Errorf("%d run, 2 at least", n)
	}
	for i := range 51 {
		p.AtLeast(3 - i%2)
	}
	p.changes.Wait()
	if n := runtime.GOMAXPROCS(0); n != 3 {
		t.Errorf("%d run, 3 at least", n)
	}
}
