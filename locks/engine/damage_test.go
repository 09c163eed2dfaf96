package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// What could not be written out is not handed over without a word: the first
// program of each other node that gets the lock gets an error in its place.
func TestDamagedDataIsNotHandedOverWithoutAWord(t *testing.T) {
	for _, what := range []string{"to one that waits", "to one that comes later", "with an epoch"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var reports []Damage
				c := newTuned(t, 3, func(o *Options) {
					o.Damaged = func(d Damage) {
						mu.Lock()
						reports = append(reports, d)
						mu.Unlock()
					}
				})
				a, b, other := c.nodes["n0"], c.nodes["n1"], c.nodes["n2"]
				full := errors.New("no space left")
				fails := func(f func(locks.Key) error) {
					a.mu.Lock()
					a.onFlush = f
					a.mu.Unlock()
				}
				fails(func(locks.Key) error { return full })
				w := req(locks.Flock, 1, locks.Write, locks.Whole)
				mustGrant(t, a.start(w))
				var p *pending
				if what == "to one that waits" {
					p = b.start(w)
					time.Sleep(time.Second)
				}
				a.Unlock(w.Key, 1, locks.Whole)
				if what == "with an epoch" {
					c.view("n0", "n1", "n2")
				}
				if p == nil {
					p = b.start(w)
				}
				time.Sleep(time.Second)
				fails(nil)
				if !p.is() {
					t.Fatal("b waits")
				}
				if !errors.Is(p.err, locks.ErrDamaged) {
					t.Fatalf("b is granted it, or told %v", p.err)
				}
				mustGrant(t, b.start(w)) // it knows now
				b.Unlock(w.Key, 1, locks.Whole)
				mustGrant(t, a.start(w)) // its own programs are told by the mount
				a.Unlock(w.Key, 1, locks.Whole)
				p = other.start(w)
				<-p.done
				if !errors.Is(p.err, locks.ErrDamaged) {
					t.Errorf("the third node is told %v", p.err)
				}
				mustGrant(t, other.start(w))
				if s := b.steps(); !strings.Contains(s, "released") {
					t.Errorf("the journal of b: %s", s)
				}
				mu.Lock()
				defer mu.Unlock()
				of := func(n locks.NodeID) int {
					return len(slices.DeleteFunc(slices.Clone(reports), func(d Damage) bool { return d.Node != n || d.Key != w.Key }))
				}
				if of("") != 1 || of("n0") != 2 || !slices.ContainsFunc(reports, func(d Damage) bool { return d.Err == full }) {
					t.Errorf("reported: %+v", reports)
				}
			})
		})
	}
}

// wires are the connections of some engines, of which one can be very slow.
type wires struct {
	mu    sync.Mutex
	cond  *sync.Cond
	nodes map[locks.NodeID]*Engine
	queue map[[2]locks.NodeID][]func()
	slow  [2]locks.NodeID
	ended bool
}

// plug is where one of them is connected, and its mount.
type plug struct {
	*wires
	nothing
	self  locks.NodeID
	fails bool // to write out
}

func (p *plug) Flush(locks.Key) error {
	if p.fails {
		return errors.New("no space left")
	}
	return nil
}

func (p *plug) Send(epoch locks.Epoch, to locks.NodeID, frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := [2]locks.NodeID{p.self, to}
	p.queue[c] = append(p.queue[c], func() { p.nodes[to].Receive(p.self, epoch, frame) })
	p.cond.Broadcast()
}

// run brings what is not on the slow connection.
func (w *wires) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended {
		some := false
		for c, fs := range w.queue {
			if c == w.slow || len(fs) == 0 {
				continue
			}
			some = true
			w.queue[c] = nil
			w.mu.Unlock()
			for _, f := range fs {
				f()
			}
			w.mu.Lock()
		}
		if !some {
			w.cond.Wait()
		}
	}
}

func (w *wires) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.cond.Broadcast()
}

// newWires connects three engines; what is written on the from-th cannot be
// written out.
func newWires(t *testing.T, alg string, from int) (w *wires, es []*Engine) {
	w = &wires{nodes: map[locks.NodeID]*Engine{}, queue: map[[2]locks.NodeID][]func(){}}
	w.cond = sync.NewCond(&w.mu)
	for i, id := range three {
		p := &plug{wires: w, self: id, fails: i == from}
		e := New(Options{
			Transport: p, Files: p, Recorder: nothing{}, Log: slog.New(slog.DiscardHandler),
			Algorithms: allAlgorithms,
			Rule:       func(string) string { return alg },
			Live:       func(time.Duration) bool { return true },
		})
		w.nodes[id] = e
		es = append(es, e)
		begin(t, e, id, three...)
	}
	var done sync.WaitGroup
	done.Go(w.run)
	t.Cleanup(func() {
		w.do(func() { w.ended = true })
		done.Wait()
	})
	return w, es
}

// By an exclusive algorithm a lock may come by way of a third node, before the
// word that its data is damaged. That comes with it, and counts once.
func TestWordOfDamageIsNotOvertaken(t *testing.T) {
	for _, alg := range []string{"rw", "ring", "rcv", "maekawa"} {
		for from := range 3 {
			for to := range 3 {
				if from != to {
					t.Run(fmt.Sprintf("%s_n%d_n%d", alg, from, to), func(t *testing.T) { overtakeWord(t, alg, from, to) })
				}
			}
		}
	}
}

func overtakeWord(t *testing.T, alg string, from, to int) {
	w, es := newWires(t, alg, from)
	a, b := es[from], es[to]
	r := req(locks.Flock, 1, locks.Write, locks.Whole)
	if _, err := a.Lock(nil, r); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := b.Lock(nil, r)
		got <- err
	}()
	waitUntil(t, "a hears that b wants it", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.entries.all[r.Key].machine.Wanted() != 0
	})
	slow := [2]locks.NodeID{a.view.Self, b.view.Self}
	w.do(func() { w.slow = slow })
	a.Unlock(r.Key, 1, locks.Whole)
	held := func() (n int) {
		w.do(func() { n = len(w.queue[slow]) })
		return n
	}
	waitUntil(t, "the word is given", func() bool { return held() > 0 })
	// Either the lock comes on the slow connection, behind the word, or it comes
	// round it.
	var err error
	select {
	case err = <-got:
	case <-time.After(50 * time.Millisecond):
		w.do(func() { w.slow = [2]locks.NodeID{} })
		err = <-got
	}
	if !errors.Is(err, locks.ErrDamaged) {
		t.Fatalf("it is granted, or refused by %v", err)
	}
	w.do(func() { w.slow = [2]locks.NodeID{} })
	waitUntil(t, "all has come", func() bool { return held() == 0 })
	if _, err := b.Lock(nil, r); err != nil {
		t.Errorf("the second time: %v", err)
	}
}
