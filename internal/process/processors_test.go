package process

import (
	"runtime"
	"testing"
)

// There are as many processors as are needed, and not fewer than there were; what somebody has
// decided holds.
func TestProcessors(t *testing.T) {
	for _, x := range []struct {
		said           string
		had            int
		usual, crowded int
	}{{"", 1, 2, 3}, {"", 2, 2, 3}, {"", 3, 3, 3}, {"", 8, 8, 8}, {"2", 2, 2, 2}, {"1", 1, 1, 1}} {
		had := runtime.GOMAXPROCS(x.had)
		t.Setenv("GOMAXPROCS", x.said)
		p := NewProcessors(2, 3)
		for _, crowd := range []bool{false, true, true, false, true, false} {
			p.Crowd(crowd)
			p.changes.Wait()
			want := x.usual
			if crowd {
				want = x.crowded
			}
			if got := runtime.GOMAXPROCS(0); got != want {
				t.Errorf("GOMAXPROCS=%q, of %d, in a crowd: %v: %d run, want %d", x.said, x.had, crowd, got, want)
			}
		}
		runtime.GOMAXPROCS(had)
	}
}

// What the runtime has changed meanwhile, as it follows a cgroup, stays.
func TestProcessorsFollowTheRuntime(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	t.Setenv("GOMAXPROCS", "")
	p := NewProcessors(2, 3)
	crowd := func(yes bool) int {
		p.Crowd(yes)
		p.changes.Wait()
		return runtime.GOMAXPROCS(0)
	}
	crowd(true)
	runtime.GOMAXPROCS(8)
	if n := crowd(false); n != 8 {
		t.Errorf("%d run where there are 8", n)
	}
	if n := crowd(true); n != 8 {
		t.Errorf("%d run in a crowd where there are 8", n)
	}
	runtime.GOMAXPROCS(1)
	if n := crowd(false); n != 1 {
		t.Errorf("%d run where there is one now", n)
	}
	if n := crowd(true); n != 3 {
		t.Errorf("%d run in a crowd where there is one", n)
	}
}

// Of wishes that come one after the other the last one counts.
func TestTheLastWishCounts(t *testing.T) {
	had := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(had)
	t.Setenv("GOMAXPROCS", "")
	p := NewProcessors(2, 3)
	for i := range 50 {
		p.Crowd(i%2 == 0)
	}
	p.changes.Wait()
	if n := runtime.GOMAXPROCS(0); n != 2 {
		t.Errorf("%d run after the crowd", n)
	}
	for i := range 51 {
		p.Crowd(i%2 == 0)
	}
	p.changes.Wait()
	if n := runtime.GOMAXPROCS(0); n != 3 {
		t.Errorf("%d run in a crowd", n)
	}
}
