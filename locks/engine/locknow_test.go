package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// What a node may have without asking anybody it has at once, and nothing else.
func TestLockNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		never := func(why string, r *locks.Request) {
			t.Helper()
			before := c.files(a)
			if n := c.frames(func() {
				if _, ok := a.LockNow(r); ok {
					t.Errorf("%s: has it at once", why)
				}
			}); n != 0 {
				t.Errorf("%s: asks by %d frames", why, n)
			}
			if c.files(a) != before {
				t.Errorf("%s: it is known", why)
			}
		}
		never("nothing is delegated", ofFile("alone", locks.Write, a.Moment()))
		c.delegates(a)
		time.Sleep(2 * time.Second) // the first ones are forgotten
		never("perhaps it was there", ofFile("old", locks.Write, 0))
		never("others may read", ofFile("read", locks.Read, a.Moment()))
		flock := req(locks.Flock, 1, locks.Write, locks.Whole)
		flock.Born = a.Moment()
		never("another class", flock)
		held := ofFile("held", locks.Write, a.Moment())
		if _, ok := a.LockNow(held); !ok {
			t.Fatal("not at once")
		}
		for why, change := range notNow(a) {
			change(true)
			never(why, ofFile("x", locks.Write, a.Moment()))
			change(false)
		}
		asks := ofFile("rcv/x", locks.Write, a.Moment())
		a.entries.clean.put(asks.Key)
		if n := c.frames(func() {
			if _, ok := a.LockNow(asks); ok {
				t.Error("has at once what others are asked for")
			}
		}); n != 0 {
			t.Errorf("%d frames ask for it", n)
		}
		a.UnlockHandle(held.Key, held.Handle, "closed")
		_, refreshs := a.counts()

		r := ofFile("mine", locks.Write, a.Moment())
		if n := c.frames(func() {
			if g, ok := a.LockNow(r); !ok || g.Tenure != a.Tenure() || g.Token == 0 {
				t.Errorf("not at once: %v, %v", g, ok)
			}
		}); n != 0 {
			t.Errorf("what was delegated is asked for by %d frames", n)
		}
		if _, n := a.counts(); n != refreshs {
			t.Error("what is cached of a new file is refreshed") // its directory is locked
		}
		q := b.start(ofFile("mine", locks.Read, 0))
		time.Sleep(100 * time.Millisecond)
		if q.is() {
			t.Fatal("another node reads what is open to write")
		}
		a.UnlockHandle(r.Key, r.Handle, "closed")
		mustGrant(t, q)
		if _, ok := a.LockNow(ofFile("later", locks.Write, a.Moment())); ok {
			t.Error("has at once what was returned")
		}
		c.check()
	})
}

// notNow are reasons why a file cannot be had at once that could be otherwise, each with what
// makes it so, and takes it back.
func notNow(a *node) map[string]func(on bool) {
	return map[string]func(on bool){
		"suspended":                     a.dead.Store,
		"the journal has much to write": a.crowded.Store,
		"the disk is full": func(on bool) {
			full := errors.New("the disk is full")
			if a.sick.Store(nil); on {
				a.sick.Store(&full)
			}
		},
		"as many locks as it may": func(on bool) {
			if a.Engine.o.MaxLocks = 1 << 20; on {
				a.Engine.o.MaxLocks = 1 // it has that
			}
		},
		"a program is to be told": func(on bool) {
			a.damages.told.clear()
			if on {
				a.damages.told.put(locks.Key{File: "x", Class: locks.Open})
			}
		},
		"others may have written since": func(on bool) {
			if a.entries.forgot = 0; on {
				a.entries.forgot = a.Moment() + 1
			}
		},
	}
}
