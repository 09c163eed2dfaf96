package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var changeSeeds = flag.Int("engine.change", long.OrPure(40, 100), "number of random runs of TestChangesLikeOneHost")

// TestChangesLikeOneHost makes random tries on three nodes, with changes of
// the rules between them, and compares every answer with what one host would
// say: an exclusive file is free if no other owner holds anything of it; and
// so is one whose algorithm has changed since it was last free.
func TestChangesLikeOneHost(t *testing.T) {
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	first, last := uint64(1), uint64(*changeSeeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last; s++ {
		maxAtOnce = inParts(s)
		synctest.Test(t, func(t *testing.T) { changesLikeOneHost(t, s, false) })
		if t.Failed() {
			t.Fatalf("to run this again: go test ./locks/engine -run %s -engine.seed %d", t.Name(), s)
		}
	}
}

// changesRun is a run of TestChangesLikeOneHost.
type changesRun struct {
	randomRun
	host      linux
	exclusive bool // what the rule is
	barrier   bool // and whether somebody holds something from before it was
}

func changesLikeOneHost(t *testing.T, seed uint64, kills bool) (killed int) {
	r := &changesRun{randomRun: randomRun{net: newKeeping(t, 3, kills || seed%3 == 0, nil), rnd: rand.New(rand.NewPCG(seed, 11)), ids: slices.Clone(three), mayKill: kills}}
	r.hosts = map[locks.Class]*linux{locks.Posix: &r.host}
	defer r.tell()
	if r.steps(r.step) {
		r.giveUpAll()
	}
	return r.kills
}

// anybody reports whether somebody but who holds anything.
func (r *changesRun) anybody(who string) bool {
	for _, b := range r.host.bytes {
		for o := range b {
			if o != who {
				return true
			}
		}
	}
	return false
}

// has reports whether the caller holds all that the call is about.
func (r *changesRun) has(c oneCall) bool {
	for i := range r.host.bytes {
		if x, ok := r.host.bytes[i][c.who]; c.Range.Overlaps(r.host.at(i)) && (!ok || x.mode < c.Mode) {
			return false
		}
	}
	return true
}

// conflict reports whether others stand in the way.
func (r *changesRun) conflict(c oneCall) bool {
	if r.exclusive || r.barrier {
		return r.anybody(c.who)
	}
	return r.host.conflict(c.who, c.Mode, c.Range)
}

func (r *changesRun) draw() oneCall {
	id := r.ids[r.rnd.IntN(3)]
	owner, m := 1+r.rnd.IntN(2), locks.Mode(1+r.rnd.IntN(2))
	start := uint64(r.rnd.IntN(15))
	span := part(start, start+1+uint64(r.rnd.IntN(16-int(start))))
	return oneCall{r.nodes[id], fmt.Sprintf("%s/%d", id[:2], owner), req(locks.Posix, owner, m, span)}
}

func (r *changesRun) step() {
	c := r.draw()
	switch op := r.rnd.IntN(20); {
	case op < 9:
		r.try(c)
	case op < 12:
		r.test(c, r.conflict(c))
	case op < 14:
		r.do(c, func(n *node) { n.Unlock(c.Key, c.Owner, c.Range) })
		r.host.set(c.who, 0, c.Range, 0)
		r.say("%s unlock o%d %v", c.id, c.Owner, c.Range)
	case op < 17:
		r.do(c, func(n *node) { n.UnlockOwner(c.Key, c.Owner) })
		r.host.set(c.who, 0, locks.Whole, 0)
		r.say("%s unlock o%d", c.id, c.Owner)
	case op < 18:
		r.say("pause")
		time.Sleep(3 * time.Second)
	default:
		r.change()
	}
	if !r.anybody("") {
		r.barrier = false
	}
	time.Sleep(20 * time.Millisecond) // a barrier ends when all have been told
}

func (r *changesRun) try(c oneCall) {
	err := r.call(c, c.Request)
	want := !r.conflict(c) || r.has(c)
	r.say("%s try o%d %v %v: %v", c.id, c.Owner, c.Mode, c.Range, err)
	if (err == nil) != want || err != nil && !errors.Is(err, locks.ErrWouldBlock) {
		r.t.Errorf("got %v, want granted %v", err, want)
	}
	if want {
		r.host.set(c.who, c.Mode, c.Range, c.Handle)
	}
}

// change begins an epoch, most times with another rule.
func (r *changesRun) change() {
	if r.rnd.IntN(3) > 0 {
		r.exclusive = !r.exclusive
		r.rules(map[bool]string{true: "f", false: "g"}[r.exclusive])
		r.barrier = r.anybody("")
	}
	r.say("new epoch, exclusive %v", r.exclusive)
	r.view(r.ids...)
}

// giveUpAll gives up what is held; then nothing is left anywhere.
func (r *changesRun) giveUpAll() {
	for _, id := range r.ids {
		for o := locks.OwnerID(1); o <= 2; o++ {
			r.nodes[id].UnlockOwner(locks.Key{File: "f", Class: locks.Posix}, o)
		}
	}
	time.Sleep(10 * time.Second)
	r.isIdle()
	r.ledgersAreEmpty()
}
