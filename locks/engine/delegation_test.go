package engine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// newFiles is a cluster of three in which delegations are possible.
func newFiles(t *testing.T) *net {
	return newTuned(t, 3, func(o *Options) { o.Uniform = func() string { return "rw" } })
}

// ofFile is a request for an open file, which its program has just made if
// born is not 0.
func ofFile(file string, m locks.Mode, born locks.Moment) *locks.Request {
	r := req(locks.Open, 1, m, locks.Whole)
	r.Key.File, r.Path, r.Born = file, file, born
	return r
}

// makes has n make files, open each to write, and close it.
func (c *net) makes(n *node, name string, count int) {
	c.t.Helper()
	for i := range count {
		r := ofFile(fmt.Sprint(name, i), locks.Write, n.Moment())
		mustGrant(c.t, n.start(r))
		n.UnlockHandle(r.Key, r.Handle, "closed")
	}
}

// delegates has all others delegate to n.
func (c *net) delegates(n *node) {
	c.t.Helper()
	time.Sleep(3 * time.Second) // all are quiet
	c.makes(n, "first", 16)
	time.Sleep(10 * time.Millisecond)
	if all, _ := n.Delegation(); !all {
		c.t.Fatal("nothing was delegated")
	}
}

// frames counts those that are sent during f.
func (c *net) frames(f func()) int {
	c.mu.Lock()
	before := c.sent
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent - before
}

func (c *net) files(n *node) int {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	return len(n.entries.all)
}

// A node that makes many files soon asks nobody any more, neither when it makes
// them nor when it forgets them. What it does not use it returns.
func TestManyNewFilesAskNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		c.delegates(a)
		_, before := a.counts()
		if n := c.frames(func() {
			c.makes(a, "x", 1000)
			time.Sleep(3 * time.Second)
		}); n > 2*16 { // the first ones are given back
			t.Errorf("%d frames for 1000 new files", n)
		}
		if _, n := a.counts(); n != before {
			t.Errorf("%d files were renewed that were just made", n-before)
		}
		c.isIdle()
		if n := c.frames(func() { time.Sleep(10 * time.Second) }); n != 2 {
			t.Errorf("returned with %d frames", n)
		}
		all, _ := a.Delegation()
		_, to := b.Delegation()
		if all || to != "" {
			t.Errorf("what is not used is not returned: %v %q", all, to)
		}
		// Then readers are silent again.
		if n := c.frames(func() { mustGrant(t, b.start(ofFile("y", locks.Read, 0))) }); n != 0 {
			t.Errorf("a reader sends %d frames", n)
		}
		c.check()
	})
}

// What the delegate has open is kept from its delegators, also from one that
// hears of the file for the first time, and is written out before they read it.
func TestADelegateKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b, d := c.nodes["n0"], c.nodes["n1"], c.nodes["n2"]
		c.delegates(a)
		open := ofFile("open", locks.Write, a.Moment())
		first := mustGrant(t, a.start(open))
		c.makes(a, "closed", 1)
		closed := ofFile("closed0", locks.Read, 0)
		p := b.start(ofFile("open", locks.Read, 0))
		q := d.start(ofFile("open", locks.Write, 0))
		mustGrant(t, b.start(closed))
		a.mu.Lock()
		if !slices.Contains(a.flushes, closed.Key) {
			t.Errorf("read by another node, but not written out: %v", a.flushes)
		}
		a.mu.Unlock()
		time.Sleep(300 * time.Millisecond)
		if p.is() || q.is() {
			t.Fatal("two have what one has open to write")
		}
		if all, _ := a.Delegation(); all {
			t.Error("not returned, though others have files to open")
		}
		flushes, _ := a.counts()
		_, refreshs := b.counts()
		a.UnlockHandle(open.Key, open.Handle, "closed")
		if g := mustGrant(t, p); g.Token <= first.Token {
			t.Errorf("token %v is not above %v", g.Token, first.Token)
		}
		if n, _ := a.counts(); n == flushes {
			t.Error("not written out before another node reads it")
		}
		if _, n := b.counts(); n == refreshs {
			t.Error("not read anew")
		}
		b.UnlockHandle(open.Key, open.Handle, "closed")
		mustGrant(t, q)
		d.UnlockHandle(open.Key, open.Handle, "closed")
		b.UnlockHandle(closed.Key, closed.Handle, "closed")
		time.Sleep(5 * time.Second)
		c.isIdle()
		c.check()
	})
}

// What a delegator knows of stays as it was: files that it has used are opened
// without a message, and what is cached of them is good, while it delegates and
// after.
func TestADelegatorKeepsItsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		reads := func() {
			t.Helper()
			for i := range 50 {
				r := ofFile(fmt.Sprint("b", i), locks.Read, 0)
				mustGrant(t, b.start(r))
				b.UnlockHandle(r.Key, r.Handle, "closed")
			}
		}
		reads()
		_, before := b.counts()
		again := func(when string) {
			t.Helper()
			if n := c.frames(reads); n > 0 {
				t.Errorf("%s: %d frames", when, n)
			}
			if _, n := b.counts(); n > before {
				t.Errorf("%s: %d files are read anew", when, n-before)
			}
			time.Sleep(2 * time.Second)
		}
		c.delegates(a)
		again("while it delegates")
		if all, _ := a.Delegation(); !all {
			t.Error("returned, though only known files were opened")
		}
		mustGrant(t, b.start(ofFile("other", locks.Read, 0)))
		_, before = b.counts()
		time.Sleep(10 * time.Millisecond)
		if all, _ := a.Delegation(); all {
			t.Error("not returned")
		}
		again("after it")
		// But what the delegate writes of it is asked for.
		c.delegates(a)
		w := ofFile("b7", locks.Write, 0)
		mustGrant(t, a.start(w))
		a.UnlockHandle(w.Key, w.Handle, "closed")
		mustGrant(t, b.start(ofFile("b7", locks.Read, 0)))
		if _, n := b.counts(); n != before+1 {
			t.Errorf("%d files are read anew of one that was written", n-before)
		}
	})
}

// A file that this node made, and another one wrote by a delegation before its
// lock was asked for, is renewed.
func TestANewFileThatADelegateWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		c.delegates(a)
		time.Sleep(3 * time.Second) // b has forgotten all that it was asked for
		born := b.Moment()
		time.Sleep(time.Millisecond)
		w := ofFile("x", locks.Write, 0)
		mustGrant(t, a.start(w))
		a.UnlockHandle(w.Key, w.Handle, "closed")
		time.Sleep(2 * time.Second)
		mustGrant(t, b.start(ofFile("other", locks.Read, 0))) // has all returned
		time.Sleep(10 * time.Millisecond)
		if _, to := b.Delegation(); to != "" {
			t.Fatal("not returned")
		}
		_, before := b.counts()
		mustGrant(t, b.start(ofFile("x", locks.Write, born)))
		if _, n := b.counts(); n == before {
			t.Error("not renewed")
		}
	})
}

// Tokens rise also where nobody is asked: from a reader's that the delegate has
// not heard of, and to one's that has not heard of the delegate's.
func TestTokensRiseWithADelegation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		b.Engine.entries.clean.limit = 0 // what it has read is not excepted
		open := func(n *node, m locks.Mode) (g locks.Grant) {
			for range 100 {
				r := ofFile("x", m, 0)
				g = mustGrant(t, n.start(r))
				n.UnlockHandle(r.Key, r.Handle, "closed")
			}
			return g
		}
		first := open(b, locks.Read)
		c.delegates(a)
		second := open(a, locks.Write)
		if second.Token <= first.Token {
			t.Errorf("a delegate has token %v after %v", second.Token, first.Token)
		}
		time.Sleep(20 * time.Second)
		if n := c.frames(func() {
			if third := open(b, locks.Read); third.Token <= second.Token {
				t.Errorf("a reader has token %v after %v", third.Token, second.Token)
			}
		}); n > 0 {
			t.Errorf("a reader sends %d frames", n)
		}
	})
}

// What a delegate does not use any more is not listed when it returns.
func TestWhatIsReturnedIsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		keys := 0
		c.twist = func(x []byte) []byte {
			if f, err := decodeFrame(x, a.o.Algorithms, 3); err == nil && f.kind == frameReturn {
				keys += len(f.keys)
			}
			return x
		}
		c.delegates(a)
		time.Sleep(3 * time.Second)
		c.makes(a, "x", 100)
		for _, n := range []*node{a, b} {
			n.mu.Lock()
			n.flushes = nil
			n.mu.Unlock()
		}
		mustGrant(t, a.start(ofFile("open", locks.Write, a.Moment())))
		// What was written is written out; that takes the files off the list.
		time.Sleep(3 * time.Second)
		if n := c.files(a); n != 1 {
			t.Errorf("%d files are not forgotten", n)
		}
		if n, _ := a.counts(); n != 100 {
			t.Errorf("%d files were written out", n)
		}
		// What is written out already is dropped at once.
		a.written.Store(true)
		c.makes(a, "y", 100)
		mustGrant(t, b.start(ofFile("other", locks.Read, 0)))
		time.Sleep(10 * time.Millisecond)
		if keys != 2 {
			t.Errorf("%d keys were returned to two nodes", keys)
		}
	})
}

// When there is no delegation.
func TestNothingIsDelegated(t *testing.T) {
	for _, tt := range []struct {
		name string
		tune func(*Options)
		do   func(c *net, a, b *node)
	}{
		{"several algorithms are in use", func(o *Options) { o.Uniform = func() string { return "" } }, func(*net, *node, *node) {}},
		{"nobody knows what is in use", func(o *Options) { o.Uniform = nil }, func(*net, *node, *node) {}},
		{"too few files", func(o *Options) { o.Delegations.After = 1000 }, func(*net, *node, *node) {}},
		{"another node opens files", nil, func(c *net, _, b *node) {
			mustGrant(c.t, b.start(ofFile("of b", locks.Read, 0)))
		}},
		{"a new epoch", nil, func(c *net, a, b *node) {
			c.delegates(a)
			time.Sleep(2 * time.Second)
			c.view("n0", "n1", "n2")
			if n := c.frames(func() { c.makes(a, "new", 1) }); n != 4 {
				c.t.Errorf("%d frames for the first file of an epoch", n)
			}
			mustGrant(c.t, b.start(ofFile("of b", locks.Read, 0)))
		}},
		{"it lends itself", nil, func(c *net, a, b *node) {
			c.delegates(b)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTuned(t, 3, func(o *Options) {
					o.Uniform = func() string { return "rw" }
					if tt.tune != nil {
						tt.tune(o)
					}
				})
				a, b := c.nodes["n0"], c.nodes["n1"]
				time.Sleep(3 * time.Second)
				tt.do(c, a, b)
				c.makes(a, "x", 100)
				if all, _ := a.Delegation(); all {
					t.Error("all have delegated")
				}
			})
		})
	}
}

// Who asks in vain asks less and less often.
func TestPauseBetweenDelegations(t *testing.T) {
	var l DelegationLimits
	l.setDefaults()
	var d delegationTimes
	const ms = locks.Moment(time.Millisecond)
	now := 1000 * ms
	for i, step := range []struct {
		uses int
		want locks.Moment
	}{
		{0, 250}, {0, 500}, {worthwhile - 1, 1000}, {0, 2000}, {0, 4000}, {0, 8000}, {0, 8000},
		{worthwhile, 250}, {worthwhile, 250}, {0, 500},
	} {
		d.wait(now, step.uses, &l)
		if got := d.next - now; got != step.want*ms {
			t.Errorf("pause %d is %v, want %d ms", i, time.Duration(got), step.want)
		}
		now = d.next
	}
}

// A program makes a file but may not have its lock. The delegate, who was not
// asked, may write the file before its delegator looks at it.
func TestAFileThatWasRefusedIsNotClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTuned(t, 3, func(o *Options) {
			o.Uniform = func() string { return "rw" }
			o.MaxLocks = 1
			o.Expire = 20 * time.Millisecond
		})
		a, b := c.nodes["n0"], c.nodes["n1"]
		a.Engine.o.MaxLocks = 100000
		c.delegates(a)
		time.Sleep(2 * time.Second)
		c.mu.Lock()
		c.delay = 300 * time.Millisecond // late frames
		c.mu.Unlock()
		// b's program has one lock of another class.
		hold := req(locks.Flock, 5, locks.Read, locks.Whole)
		hold.Program.PID = 1000 + 1
		mustGrant(t, b.start(hold))
		born := b.Moment()
		time.Sleep(time.Millisecond)
		x := ofFile("x", locks.Write, born)
		p := b.start(x)
		if !p.is() || p.err == nil {
			t.Fatal("not refused")
		}
		time.Sleep(200 * time.Millisecond) // b forgets x
		w := ofFile("x", locks.Write, 0)
		mustGrant(t, a.start(w)) // silently
		a.written.Store(true)
		a.UnlockHandle(w.Key, w.Handle, "closed")
		time.Sleep(2 * time.Second)
		if _, to := b.Delegation(); to != "" {
			t.Fatal("not returned")
		}
		b.UnlockHandle(hold.Key, hold.Handle, "closed")
		_, before := b.counts()
		mustGrant(t, b.start(ofFile("x", locks.Read, 0)))
		if _, n := b.counts(); n == before {
			t.Error("not renewed, though n0 has written it")
		}
	})
}

// Who has refused is asked alone the next time, so that others do not list what
// they except again and again for nothing.
func TestWhoRefusedIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFiles(t)
		a, b := c.nodes["n0"], c.nodes["n1"]
		wishes, lists := 0, 0
		c.twist = func(frame []byte) []byte { // under c.mu
			switch frame[0] {
			case frameWant:
				wishes++
			case frameDelegate:
				lists++
			}
			return frame
		}
		time.Sleep(3 * time.Second) // all are quiet
		for i := range 40 {
			mustGrant(t, b.start(ofFile(fmt.Sprint("other", i), locks.Read, 0))) // so n1 refuses
			c.makes(a, fmt.Sprint("round", i), 20)
			time.Sleep(400 * time.Millisecond)
		}
		c.mu.Lock()
		if wishes < 4 || wishes > 8 || lists != 1 {
			t.Errorf("%d wishes, %d lists; want the first one of both, and some of the other", wishes, lists)
		}
		c.mu.Unlock()
		c.delegates(a) // now it is quiet
		c.check()
	})
}
