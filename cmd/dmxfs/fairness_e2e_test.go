package main

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Whoever is interrupted by a signal while it waits, and goes on waiting, is
// still served before those who came later: by the kernel, which restarts the
// call (SA_RESTART), and by programs that repeat open(2) after EINTR, as those
// in Go do without knowing.
func TestPlacesAreKeptOverSignals(t *testing.T) {
	t.Parallel()
	locking := newCluster(t, 2)
	// The holder neither reads nor writes: its open lock would give way.
	opening := newCluster(t, 2, "--yield", "never")
	for i, tt := range []struct {
		name, hold, wait, drop string
		open                   bool
	}{
		{"flock", "flock x ex", "flock x ex", "flock x un", false},
		{"fcntl", "lk x setw w 0 10", "lk x setw w 0 10", "lk x set u 0 0", false},
		{"ofd", "lk x ofdsetw w 0 10", "lk x ofdsetw w 0 10", "lk x ofdset u 0 0", false},
		{"open", "insist x # rw", "insist x # rw", "close x", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := locking
			if tt.open {
				c = opening
			}
			file := fmt.Sprintf("f%d", i)
			write(t, c.src+"/"+file, "")
			call := func(s string) string {
				if tt.open {
					return s[:len("insist x ")] + file + " rw"
				}
				return s
			}
			// c is on the mount of the holder, b on the other one.
			st := newActors(t, tt.open, c.mounts[0], c.mounts[1], c.mounts[0])
			if !tt.open {
				for _, who := range []string{"a", "b", "c"} {
					st.want("ok", "%s open x %s rw", who, file)
				}
			}
			st.want("ok", "b catch restart")
			st.want("ok", "a %s", call(tt.hold))
			first := st.begin("b.t %s", call(tt.wait)).waits()
			// Of the open lock the process of a host gets a share at once.
			var later *pendingCall
			if !tt.open {
				later = st.begin("c.t %s", call(tt.wait)).waits()
			}
			for range 5 {
				st.interrupt("b", "t")
				first.waits()
			}
			if tt.open {
				// Opens that join later are fine as long as they end.
				st.want("ok", "c %s", call(tt.wait))
				st.want("ok", "c %s", tt.drop)
			}
			st.want("ok", "a %s", tt.drop)
			if out := first.outcome(); out != "ok" {
				t.Fatalf("the first waiter: %s", out)
			}
			if later == nil {
				return
			}
			later.waits()
			st.want("ok", "b %s", tt.drop)
			if out := later.outcome(); out != "ok" {
				t.Fatalf("the second waiter: %s", out)
			}
		})
	}
}

// interrupt signals a thread of an actor in the middle of its call.
func (st *stage) interrupt(actor, thread string) {
	st.t.Helper()
	st.mu.Lock()
	a := st.actors[actor]
	st.mu.Unlock()
	a.mu.Lock()
	tid := a.tids[a.open[thread]]
	a.mu.Unlock()
	if err := unix.Tgkill(a.pid, tid, unix.SIGUSR1); err != nil {
		st.t.Fatal(err)
	}
}

// A file that is always open by somebody on one host, each for a while, is
// written on the other one all the same.
func TestOpensDoNotStarveAnotherHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	write(t, c.src+"/f", "line\n")
	stream := a.start("while :; do (exec 3<f; read x <&3; sleep 0.3) & sleep 0.05; done")
	for i := range 5 {
		await(t, "several have it open", func() bool { return a.count("f", "held") >= 3 })
		began := time.Now()
		p := b.start(fmt.Sprintf("echo %d > f", i))
		if out, code := p.wait(); code != 0 {
			t.Errorf("%d %s", code, out)
		}
		t.Logf("written after %v", time.Since(began))
	}
	stream.signal(unix.SIGKILL)
}

// Waiters of one host are served in the order in which they came, and those of
// two hosts in turns: who waits on a host that has the lock need not tell the
// other one, so that of two that come at the same place in their hosts' queues
// either may be first. A host asks for its next waiter right behind the answer
// that lets the other one in; who unlocks before that has arrived lets in
// another waiter of its own, and a host is one more ahead.
func TestWaitersAreServedInTheirOrder(t *testing.T) {
	c := newCluster(t, 2)
	write(t, c.src+"/f", "")
	const n = 6
	mounts := []*testMount{c.mounts[0]}
	for i := range n {
		mounts = append(mounts, c.mounts[i%2])
	}
	st := newActors(t, false, mounts...)
	for i := range mounts {
		st.want("ok", "%c open x f rw", 'a'+i)
	}
	st.want("ok", "a flock x ex")
	waits := map[int]*pendingCall{}
	for i := range n {
		waits[i] = st.begin("%c.t flock x ex", 'b'+i).waits()
		c.mounts[0].blocked("f", i+1)
	}
	st.want("ok", "a flock x un")
	var served [2]int // of each host
	for range n {
		var now []int
		await(t, "somebody is served", func() bool {
			for i, p := range waits {
				if p.ended() {
					now = append(now, i)
				}
			}
			return len(now) > 0
		})
		i := now[0]
		if len(now) > 1 || i/2 != served[i%2] {
			t.Fatalf("waiters %v are served after %v of the hosts", now, served)
		}
		served[i%2]++
		if ahead := served[0] - served[1]; ahead > 2 || ahead < -2 {
			t.Fatalf("%v waiters of the hosts were served", served)
		}
		if out := waits[i].outcome(); out != "ok" {
			t.Errorf("waiter %d: %s", i, out)
		}
		delete(waits, i)
		st.want("ok", "%c flock x un", 'b'+i)
	}
}
