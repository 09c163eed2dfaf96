package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Who holds an open lock that is wanted is told at once, and in which mode it is
// wanted first.
func TestHoldersAreToldOfWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a := c.nodes["n0"]
		c.view(three...)
		k := req(locks.Open, 1, locks.Write, locks.Whole).Key
		mustGrant(t, a.start(req(locks.Open, 1, locks.Write, locks.Whole)))
		if a.told(k) || a.Wanted(k) != 0 {
			t.Error("wanted by nobody")
		}
		r := c.nodes["n1"].start(req(locks.Open, 1, locks.Read, locks.Whole))
		mustWait(t, r)
		w := c.nodes["n2"].start(req(locks.Open, 1, locks.Write, locks.Whole))
		mustWait(t, w)
		if !a.told(k) || a.Wanted(k) != locks.Read {
			t.Errorf("wanted %v", a.Wanted(k))
		}
		a.UnlockHandle(k, req(locks.Open, 1, locks.Write, locks.Whole).Handle, "test")
		mustGrant(t, r)
		if a.Wanted(k) != 0 || c.nodes["n1"].Wanted(k) != locks.Write || !c.nodes["n1"].told(k) {
			t.Error("the second one waits for the first now")
		}
		if _, err := c.nodes["n1"].try(req(locks.Flock, 1, locks.Write, locks.Whole)); err != nil {
			t.Error(err)
		}
		if c.nodes["n1"].told(locks.Key{File: k.File, Class: locks.Flock}) {
			t.Error("of another class")
		}
	})
}

// A writer that becomes a reader lets readers in, with what it has written, and
// writers not; and is a writer again when they have gone, before others.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a, b, d := c.nodes["n0"], c.nodes["n1"], c.nodes["n2"]
		c.view(three...)
		w, r := req(locks.Open, 1, locks.Write, locks.Whole), req(locks.Open, 1, locks.Read, locks.Whole)
		k := w.Key
		if a.Share(k, w.Handle, "test") {
			t.Error("shares what it has not")
		}
		mustGrant(t, a.start(w))
		reader, writer := b.start(r), d.start(w)
		mustWait(t, reader)
		mustWait(t, writer)
		before, _ := a.counts()
		if !a.Share(k, w.Handle, "test") || !a.Share(k, w.Handle, "again") {
			t.Fatal("it is not shared")
		}
		mustGrant(t, reader)
		if flushes, _ := a.counts(); flushes != before+1 {
			t.Errorf("%d write-outs before others read", flushes-before)
		}
		mustWait(t, writer)
		if l := held(a); len(l) != 1 || l[0].Mode != locks.Read || l[0].Handle != w.Handle {
			t.Errorf("a has %+v", l)
		}
		again := a.start(w)
		mustWait(t, again)
		b.UnlockHandle(k, r.Handle, "test")
		mustGrant(t, again)
		if l := held(a); len(l) != 1 || l[0].Mode != locks.Write {
			t.Errorf("a has %+v", l)
		}
		mustWait(t, writer)
		a.UnlockHandle(k, w.Handle, "test")
		mustGrant(t, writer)
		if l := held(a); len(l) != 0 {
			t.Errorf("a has %+v", l)
		}
		c.check()
	})
}

// What an exclusive algorithm serves, or an admin takes away, is not shared.
func TestWhatIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		c.rules("x")
		a := c.nodes["n0"]
		x := at("x/f", req(locks.Open, 1, locks.Write, locks.Whole))
		mustGrant(t, a.start(x))
		if a.Share(x.Key, x.Handle, "test") {
			t.Error("an exclusive lock is shared")
		}
		y := req(locks.Open, 2, locks.Write, locks.Whole)
		y.Key.File, y.Path = "y", "y"
		mustGrant(t, a.start(y))
		a.Condemn(y.Key, []locks.HandleID{y.Handle}, "test")
		if a.Share(y.Key, y.Handle, "test") {
			t.Error("a condemned lock is shared")
		}
	})
}

// held are the locks that programs of n hold.
func held(n *node) []LockInfo {
	return slices.DeleteFunc(n.Locks(), func(l LockInfo) bool { return l.State != Held })
}

// told reports whether n was told of a wish for k.
func (n *node) told(k locks.Key) bool {
	time.Sleep(time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wishes[k] > 0
}

// Yield is Yielder.
func (n *node) Yield(k locks.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wishes == nil {
		n.wishes = map[locks.Key]int{}
	}
	n.wishes[k]++
}
