package engine

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dmxfs/locks"
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
