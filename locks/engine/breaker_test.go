package engine

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dmxfs/dmxfs/locks"
)

// What an admin breaks goes to the next in line, and only that; the journal
// has it as lost; what the program does about it later does no harm.
func TestBreak(t *testing.T) {
	for i := range 6 {
		class, late := []locks.Class{locks.Open, locks.Flock, locks.Posix}[i/2], i%2 == 1
		t.Run(fmt.Sprintf("%v, late %v", class, late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, b := c.nodes["n0"], c.nodes["n1"]
				w := req(class, 1, locks.Write, locks.Range{Start: 0, End: 100})
				if class != locks.Posix {
					w.Range = locks.Whole
				}
				mustGrant(t, a.start(w))
				p := b.start(req(class, 2, locks.Write, w.Range))
				if p.is() {
					t.Fatal("two writers")
				}
				a.Break(w.Key, []locks.HandleID{w.Handle}) // was not condemned
				if lost := a.Condemn(w.Key, []locks.HandleID{7}, "no reason"); len(lost) != 0 || p.is() {
					t.Fatalf("another handle: %v", lost)
				}
				handles := []locks.HandleID{w.Handle, 7}
				lost := a.Condemn(w.Key, handles, "an admin wants it")
				if p.is() {
					t.Fatal("it is free already")
				}
				if !late { // else its program is faster
					a.Break(w.Key, handles)
					mustGrant(t, p)
				}
				a.Unlock(w.Key, w.Owner, locks.Whole)
				a.UnlockOwner(w.Key, w.Owner)
				a.UnlockHandle(w.Key, w.Handle, "closed")
				a.Break(w.Key, handles)
				if len(lost) != 1 || lost[0].Program != w.Program || lost[0].Path != "f" || lost[0].Mode != locks.Write || !lost[0].Held {
					t.Errorf("lost: %+v", lost)
				}
				mustGrant(t, p)
				if got, want := a.steps(), "requested granted lost."; got != want {
					t.Errorf("journal: %s, want %s", got, want)
				}
				if r := a.events[2].Reason; r != "an admin wants it" {
					t.Errorf("reason: %s", r)
				}
				if held, waiting := a.Count(); held+waiting != 0 {
					t.Errorf("%d held, %d waiting", held, waiting)
				}
				if held, _ := b.Count(); held != 1 {
					t.Errorf("the next holder has %d", held)
				}
				if lost := a.Condemn(locks.Key{File: "unknown", Class: class}, handles, "x"); len(lost) != 0 {
					t.Errorf("an unknown file: %v", lost)
				}
				c.check()
			})
		})
	}
}
