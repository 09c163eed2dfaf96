package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A ring of five processes on five mounts, each of which waits for the next:
// one is told, the others get what they wait for, one after the other.
func TestRingOfFiveProcesses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5)
	for _, f := range []string{"f0", "f1", "f2", "f3", "f4"} {
		write(t, c.src+"/"+f, "")
	}
	for _, kind := range []struct{ name, set, wait string }{
		{"fcntl", "set", "setw"},
		{"ofd", "ofdset", "ofdsetw"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			const n = 5
			st := newActors(t, false, c.mounts...)
			name := func(i int) string { return string(rune('a' + i%n)) }
			for i := range n {
				for j := range n {
					st.want("ok", "%s open f%d f%d rw", name(i), j, j)
				}
				st.want("ok", "%s.t lk f%d %s w 0 1", name(i), i, kind.set)
			}
			var ps [n]*pendingCall
			for i := range n - 1 {
				ps[i] = st.begin("%s.t lk f%d %s w 0 1", name(i), i+1, kind.wait).waits()
			}
			began := time.Now()
			ps[n-1] = st.begin("%s.t lk f0 %s w 0 1", name(n-1), kind.wait)
			victim := -1
			await(t, "one is told", func() bool {
				for i, p := range ps {
					if p.ended() {
						victim = i
					}
				}
				return victim >= 0
			})
			took := time.Since(began)
			if out := ps[victim].outcome(); out != "EDEADLK" {
				t.Errorf("process %d: %s, want EDEADLK", victim, out)
			}
			t.Logf("process %d of the ring was told after %v", victim, took)
			// It gives up what it has. Then the one before it goes on, and so on.
			st.want("ok", "%s lk f%d %s u 0 0", name(victim), victim, kind.set)
			for k := 1; k < n; k++ {
				i := (victim + n - k) % n
				if out := ps[i].outcome(); out != "ok" {
					t.Errorf("process %d, number %d before the victim: %s", i, k, out)
				}
				for later := k + 1; later < n; later++ {
					if j := (victim + n - later) % n; ps[j].ended() {
						t.Errorf("process %d goes on although what it waits for is held", j)
					}
				}
				st.want("ok", "%s lk f%d %s u 0 0", name(i), i, kind.set)
			}
		})
	}
}

// Programs that do not lock wait in open(2): also there nobody waits for ever.
// (Unless one of them gives way, which they are told here not to do in time.)
func TestDeadlocksOfOpens(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--yield-shared", "never")
	for i, tt := range []struct {
		name   string
		first  [2]string // calls that a and b make without waiting
		second [2]string // a waits in this one, b would make it a deadlock
	}{
		{"two files", [2]string{"open x #-f w", "open y #-g w"}, [2]string{"open y #-g w", "open x #-f w"}},
		{"a reader and a writer", [2]string{"open x #-f r", "open y #-g w"}, [2]string{"open y #-g r", "open x #-f w"}},
		{"both want to write what both read", [2]string{"open x #-f r", "open x #-f r"}, [2]string{"open y #-f w", "open y #-f w"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(t, c.src+fmt.Sprintf("/%d-f", i), "")
			write(t, c.src+fmt.Sprintf("/%d-g", i), "")
			st := newActors(t, true, c.mounts...)
			call := func(who, what string) *pendingCall {
				return st.begin("%s %s", who, strings.ReplaceAll(what, "#", fmt.Sprint(i)))
			}
			for i, who := range []string{"a", "b"} {
				if out := call(who, tt.first[i]).outcome(); out != "ok" {
					t.Fatalf("%s %s: %s", who, tt.first[i], out)
				}
			}
			p := call("a", tt.second[0]).waits()
			began := time.Now()
			q := call("b", tt.second[1])
			// As a rule it is b, who came last; a, if its open was made once more.
			await(t, "one is told", func() bool { return p.ended() || q.ended() })
			t.Logf("told after %v", time.Since(began))
			told, other, who := q, p, 1
			if p.ended() {
				told, other, who = p, q, 0
			}
			if out := told.outcome(); out != "EDEADLK" {
				t.Errorf("%s: %s, want EDEADLK", tt.second[who], out)
			}
			st.want("ok", "%c close %s", "ab"[who], strings.Fields(tt.first[who])[1])
			if out := other.outcome(); out != "ok" {
				t.Errorf("the other one: %s", out)
			}
		})
	}
}
