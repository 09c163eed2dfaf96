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

	"github.com/dmxfs/dmxfs/locks"
)

var (
	seeds = flag.Int("engine.seeds", 150, "number of random runs of TestLikeOneLinuxHost")
	seed  = flag.Uint64("engine.seed", 0, "run TestLikeOneLinuxHost with this seed only")
)

// linux is what one Linux host would say: for each byte, the mode of each
// owner and the open file that it came through. The last one stands for all
// that follow.
type linux struct {
	bytes [17]map[string]struct {
		mode   locks.Mode
		handle locks.HandleID
	}
}

func (l *linux) at(i int) locks.Range {
	if i == len(l.bytes)-1 {
		return locks.Range{Start: uint64(i), End: locks.MaxOffset}
	}
	return locks.Range{Start: uint64(i), End: uint64(i) + 1}
}

func (l *linux) conflict(who string, m locks.Mode, r locks.Range) bool {
	for i := range l.bytes {
		if !r.Overlaps(l.at(i)) {
			continue
		}
		for o, h := range l.bytes[i] {
			if o != who && (h.mode == locks.Write || m == locks.Write) {
				return true
			}
		}
	}
	return false
}

func (l *linux) set(who string, m locks.Mode, r locks.Range, h locks.HandleID) {
	for i := range l.bytes {
		if r.Overlaps(l.at(i)) {
			delete(l.bytes[i], who)
			if m != 0 {
				if l.bytes[i] == nil {
					l.bytes[i] = map[string]struct {
						mode   locks.Mode
						handle locks.HandleID
					}{}
				}
				l.bytes[i][who] = struct {
					mode   locks.Mode
					handle locks.HandleID
				}{m, h}
			}
		}
	}
}

func (l *linux) closed(h locks.HandleID) {
	for i := range l.bytes {
		for who, x := range l.bytes[i] {
			if x.handle == h {
				delete(l.bytes[i], who)
			}
		}
	}
}

// TestLikeOneLinuxHost makes random calls on three nodes, one after the other,
// with changes of the members between them, and compares every answer with
// what one host would say. It is run again with -engine.seed.
func TestLikeOneLinuxHost(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last; s++ {
		maxAtOnce = inParts(s)
		synctest.Test(t, func(t *testing.T) { likeLinux(t, s) })
		if t.Failed() {
			t.Fatalf("to run this again: go test ./locks/engine -run %s -engine.seed %d", t.Name(), s)
		}
	}
}

// inParts makes what is given up at a time small in some runs.
func inParts(seed uint64) int {
	if seed%2 == 0 {
		return 512
	}
	return 1 + int(seed/2%3)
}

func likeLinux(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	ids := []locks.NodeID{"n0", "n1", "n2"}
	if seed%4 == 0 {
		ids = ids[:2] // who ask back what they give away
	}
	c := newTuned(t, len(ids), eagerly(seed))
	var flock, posix linux
	var trace []string
	say := func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
	for range 60 {
		id := ids[rnd.IntN(len(ids))]
		n := c.nodes[id]
		owner := 1 + rnd.IntN(3)
		m := locks.Mode(1 + rnd.IntN(2))
		start := uint64(rnd.IntN(15))
		r := locks.Range{Start: start, End: start + 1 + uint64(rnd.IntN(16-int(start)))}
		if rnd.IntN(5) == 0 {
			r.End = locks.MaxOffset
		}
		h := locks.HandleID(100*(rnd.IntN(2)+1) + owner)
		who := fmt.Sprintf("%s/%d", id, owner)
		q := req(locks.Posix, owner, m, r)
		q.Handle = h
		if rnd.IntN(4) == 0 { // which must change nothing
			n.Closing(q.Key, h)
			n.Closing(locks.Key{File: "f", Class: locks.Flock}, locks.HandleID(owner))
			say("%s a descriptor of h%d and of o%d is closed", id, h, owner)
		}
		handle := func(h locks.HandleID) locks.HandleID { return h + 1000*locks.HandleID(id[1]) }
		switch op := rnd.IntN(20); {
		case op < 10:
			_, err := n.try(q)
			want := !posix.conflict(who, m, r)
			say("%s posix o%d %v %v h%d: %v", id, owner, m, r, h, err)
			if got := err == nil; got != want || err != nil && !errors.Is(err, locks.ErrWouldBlock) {
				t.Errorf("%s\ngot %v, want granted %v", strings.Join(trace, "\n"), err, want)
				return
			}
			if want {
				posix.set(who, m, r, handle(h))
			}
		case op < 12:
			n.Unlock(q.Key, q.Owner, r)
			posix.set(who, 0, r, 0)
			say("%s unlock o%d %v", id, owner, r)
		case op < 13:
			n.UnlockOwner(q.Key, q.Owner)
			posix.set(who, 0, locks.Whole, 0)
			say("%s close by o%d", id, owner)
		case op < 14:
			n.UnlockHandle(q.Key, h, "closed")
			posix.closed(handle(h))
			say("%s release h%d", id, h)
		case op < 16:
			q := req(locks.Flock, owner, m, locks.Whole)
			_, err := n.try(q)
			// The old lock is gone whether or not the new one is had.
			held, has := flock.bytes[0][who]
			if !has || held.mode != m {
				flock.set(who, 0, locks.Whole, 0)
			}
			want := !flock.conflict(who, m, locks.Whole)
			say("%s flock o%d %v: %v", id, owner, m, err)
			if got := err == nil; got != want {
				t.Errorf("%s\ngot %v, want granted %v", strings.Join(trace, "\n"), err, want)
				return
			}
			if want {
				flock.set(who, m, locks.Whole, 0)
			}
		case op < 17:
			n.UnlockHandle(locks.Key{File: "f", Class: locks.Flock}, locks.HandleID(owner), "closed")
			flock.set(who, 0, locks.Whole, 0)
			say("%s release of flock o%d", id, owner)
		case op < 18:
			got, err := n.Test(nil, q)
			want := posix.conflict(who, m, r)
			say("%s test o%d %v %v: %+v", id, owner, m, r, got)
			if err != nil || (got != nil) != want {
				t.Errorf("%s\ngot %+v %v, want conflict %v", strings.Join(trace, "\n"), got, err, want)
				return
			}
		case op < 19:
			say("pause")
			time.Sleep(3 * time.Second)
		default:
			say("new epoch")
			c.view(ids...)
		}
		synctest.Wait()
		c.check()
		if t.Failed() {
			t.Log(strings.Join(trace, "\n"))
			return
		}
	}
	// All is given up; then nothing is left anywhere.
	for _, id := range ids {
		for o := 1; o <= 3; o++ {
			c.nodes[id].UnlockOwner(locks.Key{File: "f", Class: locks.Posix}, locks.OwnerID(o))
			c.nodes[id].UnlockOwner(locks.Key{File: "f", Class: locks.Flock}, locks.OwnerID(o))
		}
	}
	time.Sleep(5 * time.Second)
	for _, n := range c.nodes {
		n.Engine.mu.Lock()
		if len(n.entries.all) > 0 {
			t.Errorf("%s keeps %d entries\n%s", n.id, len(n.entries.all), strings.Join(trace, "\n"))
		}
		n.Engine.mu.Unlock()
		open := map[uint64]int{}
		n.mu.Lock()
		for _, ev := range n.events {
			switch {
			case ev.Step == Requested:
				open[ev.Request]++
			case ev.Final:
				open[ev.Request]--
			}
		}
		n.mu.Unlock()
		for id, x := range open {
			if x != 0 {
				t.Errorf("%s: request %d was closed %d times too few in the journal", n.id, id, x)
			}
		}
	}
}

// With a hold of many seconds, longer than it takes to overtake, the order is
// still that of the requests.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 4)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(w))
		var ps []*pending
		for _, id := range []locks.NodeID{"n3", "n1", "n2"} {
			ps = append(ps, c.nodes[id].start(w))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		k := locks.Key{File: "f", Class: locks.Flock}
		c.nodes["n0"].Unlock(k, 1, locks.Whole)
		for i, id := range []locks.NodeID{"n3", "n1", "n2"} {
			mustGrant(t, ps[i])
			for _, later := range ps[i+1:] {
				if later.is() {
					t.Fatalf("a later request than that of %s is served", id)
				}
			}
			c.nodes[id].Unlock(k, 1, locks.Whole)
		}
	})
}
