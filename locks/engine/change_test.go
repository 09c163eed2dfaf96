package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// With an exclusive algorithm a lock for reading a few bytes keeps out every
// other owner, and F_GETLK tells of it as what it is.
func TestExclusiveAlgorithmIgnoresModeAndRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		c.rules("x")
		c.view(three...)
		r := at("x/f", req(locks.Posix, 1, locks.Read, part(0, 10)))
		mustGrant(t, c.nodes["n0"].start(r))
		other := at("x/f", req(locks.Posix, 2, locks.Read, part(100, 110)))
		if _, err := c.nodes["n0"].try(other); !errors.Is(err, locks.ErrWouldBlock) {
			t.Errorf("the same node: %v", err)
		}
		wait := c.nodes["n1"].start(other)
		mustWait(t, wait)
		got, err := c.nodes["n2"].Test(nil, at("x/f", req(locks.Posix, 3, locks.Read, part(50, 60))))
		if err != nil || got == nil || got.Mode != locks.Write || got.Range != locks.Whole || got.PID != 1001 || got.Node != "n0" {
			t.Errorf("F_GETLK: %+v %v", got, err)
		}
		if got, err := c.nodes["n0"].Test(nil, at("x/f", r)); err != nil || got != nil {
			t.Errorf("F_GETLK of the holder: %+v %v", got, err)
		}
		// The holder may have more, and keeps it to the last byte.
		mustGrant(t, c.nodes["n0"].start(at("x/f", req(locks.Posix, 1, locks.Write, part(20, 30)))))
		c.nodes["n0"].Unlock(r.Key, 1, part(0, 29))
		mustWait(t, wait)
		c.nodes["n0"].Unlock(r.Key, 1, part(29, 30))
		mustGrant(t, wait)
		if a := c.nodes["n1"].algorithms(Granted); a != "ring" {
			t.Errorf("granted by %s", a)
		}
		// Who reads exclusively may have written: it is written out before
		// the next one reads.
		c.nodes["n1"].UnlockOwner(r.Key, 2)
		mustGrant(t, c.nodes["n2"].start(other))
		if f, _ := c.nodes["n1"].counts(); f == 0 {
			t.Error("no write-out by a holder for reading")
		}
		// The rule is of the path: another file has rw.
		file := func(q *locks.Request) *locks.Request { q.Key.File = "g"; return at("g", q) }
		mustGrant(t, c.nodes["n0"].start(file(req(locks.Posix, 1, locks.Read, part(0, 10)))))
		mustGrant(t, c.nodes["n1"].start(file(req(locks.Posix, 2, locks.Read, part(0, 10)))))
	})
}

func TestHeldThroughAChangeOfTheAlgorithm(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprint("back ", back), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 3)
				was, is := "rw", "ring"
				if back {
					c.rules("f")
					c.view(three...)
					was, is = is, was
				}
				k := locks.Key{File: "f", Class: locks.Flock}
				w := req(locks.Flock, 1, locks.Write, locks.Whole)
				mustGrant(t, c.nodes["n0"].start(w))
				wait := c.nodes["n1"].start(w)
				mustWait(t, wait)
				c.rules(map[bool]string{false: "f", true: "other"}[back])
				c.view(three...)
				late := c.nodes["n2"].start(w)
				mustWait(t, wait)
				mustWait(t, late)
				if got, err := c.nodes["n2"].Test(nil, w); err != nil || got == nil || got.Node != "n0" {
					t.Errorf("F_GETLK: %+v %v", got, err)
				}
				for _, l := range c.nodes["n1"].Locks() {
					if l.State == Waits && (l.Algorithm != is || len(l.Remote) == 0 || l.Remote[0] != "n0") {
						t.Errorf("the waiter: %+v", l)
					}
				}
				if c.nodes["n0"].Wanted(k) == 0 {
					t.Error("nobody seems to want what is held from before the change")
				}
				c.nodes["n0"].Unlock(k, 1, locks.Whole)
				for range 2 { // in the order that the algorithm has
					time.Sleep(5 * time.Second)
					for id, p := range map[locks.NodeID]*pending{"n1": wait, "n2": late} {
						if p.is() {
							c.nodes[id].Unlock(k, 1, locks.Whole)
						}
					}
				}
				mustGrant(t, wait)
				mustGrant(t, late)
				if wait.grant.Token == late.grant.Token {
					t.Error("two grants have one token")
				}
				if a, b := c.nodes["n0"].algorithms(Granted), c.nodes["n1"].algorithms(Granted); a != was || b != is {
					t.Errorf("granted by %s and then by %s", a, b)
				}
				c.check()
			})
		})
	}
}

// Two readers hold what an exclusive algorithm would not grant them together.
// They keep it; nobody new gets in before both have gone.
func TestReadersThroughAChangeToExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		k := locks.Key{File: "f", Class: locks.Posix}
		r := req(locks.Posix, 1, locks.Read, part(0, 10))
		mustGrant(t, c.nodes["n0"].start(r))
		mustGrant(t, c.nodes["n1"].start(r))
		c.rules("f")
		c.view(three...)
		q := req(locks.Posix, 7, locks.Read, part(500, 501))
		wait := c.nodes["n2"].start(q)
		local := c.nodes["n0"].start(req(locks.Posix, 8, locks.Read, part(500, 501)))
		mustWait(t, wait)
		mustWait(t, local)
		// What they have they may lock again, and give up in pieces. More
		// would be a deadlock.
		mustGrant(t, c.nodes["n0"].start(req(locks.Posix, 1, locks.Read, part(2, 4))))
		c.nodes["n0"].Unlock(k, 1, part(2, 3))
		mustFail(t, c.nodes["n0"].start(req(locks.Posix, 1, locks.Write, part(0, 10))), locks.ErrDeadlock)
		if _, err := c.nodes["n1"].try(req(locks.Posix, 1, locks.Write, part(0, 10))); !errors.Is(err, locks.ErrWouldBlock) {
			t.Errorf("a try: %v", err)
		}
		// A new epoch with the same rules changes nothing of that.
		c.view(three...)
		mustWait(t, wait)
		c.nodes["n1"].UnlockOwner(k, 1)
		mustWait(t, wait)
		// The last one may have more at once.
		mustGrant(t, c.nodes["n0"].start(req(locks.Posix, 1, locks.Write, part(0, 20))))
		mustWait(t, wait)
		flushed, _ := c.nodes["n0"].counts()
		c.nodes["n0"].UnlockOwner(k, 1)
		time.Sleep(time.Second)
		if f, _ := c.nodes["n0"].counts(); f == flushed {
			t.Error("no write-out before the others go on")
		}
		if !local.is() {
			mustGrant(t, wait)
			c.nodes["n2"].UnlockOwner(k, 7)
			mustGrant(t, local)
		} else {
			mustGrant(t, local)
			mustWait(t, wait)
			c.nodes["n0"].UnlockOwner(k, 8)
			mustGrant(t, wait)
		}
		c.check()
	})
}

// A holder that dies is in nobody's way; and one that gives up between State
// and the new epoch was told of, but holds nothing any more.
func TestBarrierEndsWithItsHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		k := locks.Key{File: "f", Class: locks.Flock}
		r := req(locks.Flock, 1, locks.Read, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(r))
		mustGrant(t, c.nodes["n1"].start(r))
		c.rules("f")
		c.view(three...)
		wait := c.nodes["n2"].start(r)
		mustWait(t, wait)
		c.view("n0", "n2") // n1 is gone
		mustWait(t, wait)
		states := map[locks.NodeID][]byte{}
		ids := []locks.NodeID{"n0", "n2"}
		for _, id := range ids {
			c.nodes[id].Freeze()
		}
		c.epoch++
		for _, id := range ids {
			c.nodes[id].Install(&locks.View{Epoch: c.epoch, Self: id, Members: ids})
			states[id] = c.nodes[id].State()
		}
		c.nodes["n0"].Unlock(k, 1, locks.Whole)
		for _, id := range ids {
			for _, from := range ids {
				if err := c.nodes[id].Sync(from, c.epoch, states[from]); err != nil {
					t.Fatal(err)
				}
			}
		}
		mustGrant(t, wait)
	})
}

// Open files from before a change whose process opens the file once more.
func TestOpenAgainThroughAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		open := func(owner, handle, pid int, m locks.Mode) *locks.Request {
			q := req(locks.Open, owner, m, locks.Whole)
			q.Handle, q.Program.PID = locks.HandleID(handle), pid
			return q
		}
		n := c.nodes["n0"]
		k := locks.Key{File: "f", Class: locks.Open}
		mustGrant(t, n.start(open(1, 10, 100, locks.Read))) // owner 1: all processes of the node
		c.rules("f")
		c.view("n0", "n1")
		mustGrant(t, n.start(open(77, 11, 100, locks.Write))) // now of the process
		other := n.start(open(78, 12, 101, locks.Read))
		mustWait(t, other)
		if n.Wanted(k) == 0 {
			t.Error("nobody seems to wait")
		}
		n.UnlockHandle(k, 10, "closed")
		mustWait(t, other)
		n.UnlockHandle(k, 11, "closed")
		mustGrant(t, other)
		// Between processes of one node it is known who waits.
		if n.Wanted(k) != 0 {
			t.Error("somebody seems to wait")
		}
		third := n.start(open(79, 13, 102, locks.Read))
		mustWait(t, third)
		if n.Wanted(k) == 0 {
			t.Error("nobody seems to wait for a process of the same node")
		}
		n.UnlockHandle(k, 12, "closed")
		mustGrant(t, third)
	})
}

// A file that is held by a path from before its directory was renamed: the
// rule of that path is not the one of its new name. Until all agree, it keeps
// the algorithm of those who hold it.
func TestChangeOfRulesWithAnOldPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		k := locks.Key{File: "f", Class: locks.Flock}
		r := req(locks.Flock, 1, locks.Read, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(at("old/f", r)))
		c.rules("new")
		c.view(three...)
		time.Sleep(10 * time.Second) // nodes forget what they do not use
		w := c.nodes["n1"].start(at("new/f", req(locks.Flock, 2, locks.Write, locks.Whole)))
		mustWait(t, w)
		c.nodes["n0"].Unlock(k, 1, locks.Whole)
		mustGrant(t, w)
		c.nodes["n1"].Unlock(k, 2, locks.Whole)
		c.view(three...) // nobody holds it: from now on its rule is that of the name
		mustGrant(t, c.nodes["n2"].start(at("new/f", r)))
		if a := c.nodes["n1"].algorithms(Granted) + " " + c.nodes["n2"].algorithms(Granted); a != "rw ring" {
			t.Errorf("granted by %s", a)
		}
	})
}

// A member that never got to the epoch in which the rules changed says what it
// says by the algorithm of before. What the others hold since counts all the
// same, and what it holds keeps the new algorithm from granting.
func TestAMemberMissesTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		c.rules("x")
		e := c.nodes["n0"].Engine
		now, k := c.rule("x/f"), locks.Key{File: "f", Class: locks.Posix}
		before := c.rule("other")
		for _, held := range []bool{false, true} {
			e.mu.Lock() // judge may let others in between
			v := e.epochs.judge(map[locks.NodeID][]keyState{
				"n0": {{key: k, path: "x/f", algorithm: now, state: []byte{1}}},
				"n1": {{key: k, path: "x/f", algorithm: before, state: []byte{2}, held: held}},
			})[k]
			e.mu.Unlock()
			if v.alg.Name != now || len(v.states) != 1 || string(v.states["n0"]) != "\x01" {
				t.Errorf("%s with %v", v.alg.Name, v.states)
			}
			if v.barrier["n1"] != held || v.barrier["n0"] {
				t.Errorf("held %v: the barrier is %v", held, v.barrier)
			}
		}
	})
}

// Two names of one file with different rules, which only a hard link that was
// made elsewhere can have: the wait ends with an error that says so.
func TestNamesWithDifferentRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		c.rules("x")
		c.view("n0", "n1")
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(at("x/f", w)))
		p := c.nodes["n1"].start(at("y/f", w))
		time.Sleep(otherTime + time.Second) // the other name may be one of long ago
		mustFail(t, p, locks.ErrUnavailable)
		if !strings.Contains(p.err.Error(), "names of one file must have one rule") {
			t.Error(p.err)
		}
	})
}

// The number of a file that was removed is that of a new one under another
// rule, while both nodes still know the old one.
func TestANumberThatIsUsedAgain(t *testing.T) {
	for _, alg := range exclusives {
		t.Run(alg, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newNet(t, 2)
				a, b := c.nodes["n0"], c.nodes["n1"]
				use := func(n *node, path string) {
					t.Helper()
					r := req(locks.Open, 1, locks.Write, locks.Whole)
					r.Path = path
					began := time.Now()
					mustGrant(t, n.start(r))
					if d := time.Since(began); d > otherTime/2 {
						t.Errorf("%s has %s after %v", n.id, path, d)
					}
					n.UnlockHandle(r.Key, r.Handle, "closed")
				}
				for range 2 {
					use(b, "f")
					use(a, "f")
					use(a, alg+"/f")
					use(b, alg+"/f")
					time.Sleep(3 * time.Second)
				}
				c.check()
			})
		})
	}
}

// A writer that lets readers in holds the file as before: a change of the rules
// does not take it from it.
func TestSharedThroughAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		w := opening(100, 1, locks.Write)
		mustGrant(t, a.start(w))
		if !a.Share(w.Key, w.Handle, "a test") {
			t.Fatal("it is not shared")
		}
		c.rules("f")
		c.view("n0", "n1")
		other := b.start(opening(200, 2, locks.Read))
		mustWait(t, other)
		a.UnlockHandle(w.Key, w.Handle, "closed")
		mustGrant(t, other)
		c.check()
	})
}

// The rules change while programs wait for a file, some of them at the gate,
// which opens as soon as the first of them asks the new algorithm.
func TestGateThroughAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 3)
		a := c.nodes["n0"]
		first, elsewhere := opening(100, 1, locks.Read), opening(101, 1, locks.Read)
		mustGrant(t, a.start(first))
		mustGrant(t, c.nodes["n1"].start(elsewhere))
		writer := a.start(opening(102, 2, locks.Write))
		mustWait(t, writer)
		far := c.nodes["n2"].start(opening(103, 1, locks.Write))
		mustWait(t, far)
		var all []*pending
		for i := range joinBatch + 3 {
			all = append(all, a.start(opening(200+i, 10+i, locks.Read)))
		}
		synctest.Wait()
		atGate := 0
		for _, p := range all {
			if !p.is() {
				atGate++
			}
		}
		if atGate < 3 {
			t.Fatalf("%d wait at the gate", atGate)
		}
		c.rules("f")
		c.view(three...)
		// All get in, one after the other where the new algorithm wants it.
		a.UnlockHandle(first.Key, first.Handle, "closed")
		c.nodes["n1"].UnlockHandle(first.Key, elsewhere.Handle, "closed")
		done := map[*pending]bool{}
		for range 3 * len(all) {
			if p := far; p.is() && !done[p] {
				done[p] = true
				c.nodes["n2"].UnlockHandle(first.Key, 1, "closed")
			}
			for i, p := range append(all, writer) {
				h := locks.HandleID(10 + i)
				if p == writer {
					h = 2
				}
				if p.is() && !done[p] {
					done[p] = true
					a.UnlockHandle(first.Key, h, "closed")
				}
			}
			time.Sleep(time.Second)
		}
		if len(done) != len(all)+2 {
			t.Errorf("%d of %d got in", len(done), len(all)+2)
		}
		c.check()
	})
}

// Who has a range in very many pieces from before a change of the rules may lock
// it again in a weaker mode, as with few.
func TestVeryManyPiecesThroughAChange(t *testing.T) {
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	maxAtOnce = 8
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a := c.nodes["n0"]
		const pieces = 20
		for i := range uint64(pieces) {
			mode := locks.Read
			if i%2 == 0 {
				mode = locks.Write
			}
			mustGrant(t, a.start(req(locks.Posix, 1, mode, part(i, i+1))))
		}
		mustGrant(t, c.nodes["n1"].start(req(locks.Posix, 2, locks.Read, part(1000, 1001))))
		c.rules("f")
		c.view("n0", "n1")
		again := req(locks.Posix, 1, locks.Read, part(0, pieces))
		if _, err := a.try(again); err != nil {
			t.Errorf("a try: %v", err)
		}
		mustGrant(t, a.start(again))
		c.check()
	})
}
