package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var (
	failedSeeds = flag.Int("engine.failed.seeds", long.OrPure(40, 100), "number of random runs of TestAFailedCallChangesNothing")
	failedSeed  = flag.Uint64("engine.failed.seed", 0, "run TestAFailedCallChangesNothing with this seed only")
)

const failedBytes = 12

// model is what each owner has of each byte, by POSIX.
type model [3][failedBytes]struct {
	mode   locks.Mode
	handle locks.HandleID
}

func (m *model) set(r *locks.Request) {
	for i := r.Range.Start; i < min(r.Range.End, failedBytes); i++ {
		m[r.Owner][i].mode, m[r.Owner][i].handle = r.Mode, r.Handle
	}
}

func (m *model) clear(o locks.OwnerID, r locks.Range) {
	for i := r.Start; i < min(r.End, failedBytes); i++ {
		m[o][i].mode, m[o][i].handle = 0, 0
	}
}

func (m *model) String() string {
	var b strings.Builder
	for o := range m {
		for _, x := range m[o] {
			if x.mode == 0 {
				b.WriteString(" --")
			} else {
				fmt.Fprintf(&b, " %v%d", x.mode, x.handle)
			}
		}
		b.WriteString(";")
	}
	return b.String()
}

// A call of fcntl that fails changes nothing, whyever it does, and whatever the
// owner does meanwhile by another thread: what it has afterwards is what it had
// before, in the same modes, as on one host.
func TestAFailedCallChangesNothing(t *testing.T) {
	first, last := uint64(1), uint64(*failedSeeds)
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	if *failedSeed != 0 {
		first, last = *failedSeed, *failedSeed
	}
	for s := first; s <= last; s++ {
		maxAtOnce = inParts(s)
		synctest.Test(t, func(t *testing.T) {
			f := newFailing(t, s)
			defer f.tell()
			for range 30 {
				f.step()
				f.compare()
				if t.Failed() {
					return
				}
			}
			f.compareWithOthers(failedBytes)
		})
		if t.Failed() {
			t.Fatalf("to run this again: go test ./locks/engine -run %s -engine.failed.seed %d", t.Name(), s)
		}
	}
}

type failing struct {
	randomRun
	a, b *node
	path string
	want model
}

func newFailing(t *testing.T, seed uint64) *failing {
	f := &failing{randomRun: randomRun{net: newNet(t, 2), rnd: rand.New(rand.NewPCG(seed, 3))}}
	f.a, f.b = f.nodes["n0"], f.nodes["n1"]
	f.path = []string{"f", "f", "ring", "maekawa"}[seed%4]
	return f
}

// request is one of owner 1, or 2 where they do not exclude each other.
func (f *failing) request() *locks.Request {
	start := f.rnd.Uint64N(failedBytes - 1)
	r := req(locks.Posix, 1, []locks.Mode{locks.Read, locks.Write}[f.rnd.IntN(2)],
		locks.Range{Start: start, End: start + 1 + f.rnd.Uint64N(failedBytes-start)})
	if r.Path = f.path; f.path == "f" {
		r.Owner += locks.OwnerID(f.rnd.IntN(2))
	}
	r.Handle = locks.HandleID(1 + f.rnd.IntN(2))
	return r
}

// step is one call, and what happens while it is under way.
func (f *failing) step() {
	r := f.request()
	switch f.rnd.IntN(10) {
	case 0, 1:
		f.say("unlock o%d %v", r.Owner, r.Range)
		f.a.Unlock(r.Key, r.Owner, r.Range)
		f.want.clear(r.Owner, r.Range)
		return
	case 2:
		f.say("view")
		f.view("n0", "n1")
		return
	case 3:
		f.say("no room for o%d %v %v h%d", r.Owner, r.Mode, r.Range, r.Handle)
		f.most(1)
		defer f.most(DefaultMaxLocks)
	}
	f.a.stale(r.Key)
	r.Try = f.rnd.IntN(4) > 0
	gate, end := make(chan struct{}), f.rnd.IntN(4)
	f.a.refreshes(func(locks.Key) error {
		<-gate
		if end == 1 {
			return errors.New("EIO")
		}
		return nil
	})
	p := f.a.start(r)
	f.say("o%d %v %v h%d", r.Owner, r.Mode, r.Range, r.Handle)
	gone := false
	if time.Sleep(20 * time.Millisecond); !p.is() {
		gone = f.meanwhile(r)
	}
	if end == 2 {
		f.a.dead.Store(true)
	}
	close(gate)
	synctest.Wait()
	f.a.dead.Store(end == 2 && f.rnd.IntN(2) == 0) // else it is live again in time
	close(p.cancel)
	<-p.done
	f.a.dead.Store(false)
	f.a.refreshes(nil)
	f.a.Resume()
	f.say("-> %v", p.err)
	if p.err == nil && !gone {
		f.want.set(r)
	}
}

func (n *node) refreshes(f func(locks.Key) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refresh = f
}

// most sets how many locks a process may have.
func (f *failing) most(n int) {
	f.a.Engine.mu.Lock()
	defer f.a.Engine.mu.Unlock()
	f.a.o.MaxLocks = n
}

// stale makes the next grant refresh what is cached, as if another node had written.
func (n *node) stale(k locks.Key) {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	if en := n.entries.all[k]; en != nil {
		en.stale++
	}
}

// meanwhile is what else happens while r is on its way. It reports whether r goes
// with it.
func (f *failing) meanwhile(r *locks.Request) (gone bool) {
	q := f.request()
	f.a.Engine.mu.Lock()
	way := false // else it waits for others
	for _, t := range f.a.entries.all[r.Key].underway[uint64(r.Owner)] {
		way = way || t.Handle == r.Handle && t.Range == r.Range
	}
	f.a.Engine.mu.Unlock()
	switch f.rnd.IntN(6) {
	case 0:
		f.say("  meanwhile unlock o%d %v", q.Owner, q.Range)
		f.a.Unlock(q.Key, q.Owner, q.Range)
		f.want.clear(q.Owner, q.Range)
		return way && q.Owner == r.Owner && q.Range.Contains(r.Range)
	case 1:
		f.say("  meanwhile close by o%d", r.Owner)
		f.a.UnlockOwner(r.Key, r.Owner)
		f.want.clear(r.Owner, locks.Whole)
		return way
	case 2:
		f.say("  meanwhile view")
		f.view("n0", "n1")
	case 3:
		q.Blind, q.Try, q.Owner = true, true, r.Owner // another thread: it renews nothing
		p := f.a.start(q)
		<-p.done
		f.say("  meanwhile o%d %v %v h%d -> %v", q.Owner, q.Mode, q.Range, q.Handle, p.err)
		if p.err == nil {
			f.want.set(q)
		}
	}
	return false
}

// compare compares what the engine says that owners hold with what they know.
func (f *failing) compare() {
	f.t.Helper()
	synctest.Wait()
	var got model
	for _, l := range f.a.Locks() {
		if l.State != Held {
			continue
		}
		for i := l.Range.Start; i < min(l.Range.End, failedBytes); i++ {
			x := &got[l.Owner][i]
			if x.mode != 0 {
				f.t.Errorf("byte %d is held twice", i)
			}
			x.mode, x.handle = l.Mode, l.Handle
		}
	}
	if got != f.want {
		f.t.Errorf("held %v\nwant %v", &got, &f.want)
	}
	f.check()
	f.compareWithOthers(1)
}

// compareWithOthers has the other node try to lock some bytes.
func (f *failing) compareWithOthers(n int) {
	f.t.Helper()
	for i := range n {
		at := uint64(i)
		if n == 1 {
			at = f.rnd.Uint64N(failedBytes)
		}
		any, write := false, false
		for o := range f.want {
			for j, x := range f.want[o] {
				if f.path != "f" || j == int(at) {
					any, write = any || x.mode != 0, write || x.mode == locks.Write
				}
			}
		}
		for _, m := range []locks.Mode{locks.Read, locks.Write} {
			q := req(locks.Posix, 9, m, locks.Range{Start: at, End: at + 1})
			q.Path = f.path
			_, err := f.b.try(q)
			f.b.UnlockOwner(q.Key, q.Owner)
			kept := any
			if m == locks.Read && f.path == "f" {
				kept = write
			}
			if (err != nil) != kept {
				f.t.Errorf("another node takes byte %d in mode %v: %v; held %v", at, m, err, &f.want)
			}
		}
	}
}

// An open file that has a lock for reading keeps it when it does not get one for
// writing.
func TestAFailedUpgradeOfAnOpenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		r, w := req(locks.Open, 1, locks.Read, locks.Whole), req(locks.Open, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(r))
		mustGrant(t, b.start(r))
		b.UnlockHandle(r.Key, r.Handle, "closed")
		a.stale(r.Key)
		a.refresh = func(locks.Key) error { return errors.New("EIO") }
		p := a.start(w)
		if <-p.done; p.err == nil {
			t.Fatal("not refreshed")
		}
		time.Sleep(10 * time.Second)
		if _, err := b.try(w); err == nil {
			t.Error("another node writes beside a reader")
		}
		if _, err := b.try(r); err != nil {
			t.Errorf("another node does not read beside a reader: %v", err)
		}
		a.refresh = nil
		b.UnlockHandle(r.Key, r.Handle, "closed")
		mustGrant(t, a.start(w))
		if held, _ := a.Count(); held != 1 {
			t.Errorf("it has %d", held)
		}
		a.UnlockHandle(r.Key, r.Handle, "closed")
		mustGrant(t, b.start(w))
		c.check()
	})
}

// What an admin breaks while it is on its way is not told of.
func TestBreakOnTheWay(t *testing.T) {
	for _, class := range []locks.Class{locks.Open, locks.Flock, locks.Posix} {
		t.Run(class.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, b := c.nodes["n0"], c.nodes["n1"]
				gate := make(chan struct{})
				a.refresh = func(locks.Key) error { <-gate; return nil }
				w := req(class, 1, locks.Write, locks.Whole)
				p := a.start(w)
				if time.Sleep(20 * time.Millisecond); p.is() {
					t.Fatal("not refreshing")
				}
				if lost := a.Condemn(w.Key, []locks.HandleID{1}, "an admin wants it"); len(lost) != 1 {
					t.Fatalf("lost: %v", lost)
				}
				a.Break(w.Key, []locks.HandleID{1})
				mustGrant(t, b.start(w))
				close(gate)
				if <-p.done; !errors.Is(p.err, locks.ErrLost) {
					t.Errorf("it is told: %v", p.err)
				}
				if held, waiting := a.Count(); held+waiting != 0 {
					t.Errorf("%d held, %d waiting", held, waiting)
				}
				if got, want := a.steps(), "requested granted lost."; got != want {
					t.Errorf("journal: %s, want %s", got, want)
				}
			})
		})
	}
}
