package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

var errNoRoom = errors.New("a test has no room")

// renewal has a ledger fail and be written anew, and meanwhile called at each opportunity
// for others to have the engine, which they have for a moment then.
func (n *node) renewal(meanwhile func()) {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	n.Engine.ledger.fails(errNoRoom)
	n.Engine.mu.rest = func() time.Duration {
		meanwhile()
		return time.Microsecond
	}
	n.Engine.ledger.renew()
	n.Engine.mu.rest = nil
}

// What is locked and given up while a ledger is written anew is in it, as what was locked
// before; and it says nothing before it is complete.
func TestLocksChangeWhileALedgerIsRenewed(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { renewAmongPrograms(t, uint64(seed)) })
	}
}

func renewAmongPrograms(t *testing.T, seed uint64) {
	c := newKeeping(t, 1, true, nil)
	a := c.nodes["n0"]
	request := func(rnd *rand.Rand, owner int) *locks.Request {
		alg := everyAlgorithm[rnd.IntN(2)*rnd.IntN(len(everyAlgorithm))]
		class := locks.Classes[rnd.IntN(len(locks.Classes))]
		r := on(alg, fmt.Sprint(alg, rnd.IntN(4)), req(class, owner, locks.Mode(1+rnd.IntN(2)), locks.Whole))
		r.Try = true
		if class == locks.Posix {
			from := uint64(rnd.IntN(30))
			r.Range = part(from, from+1+uint64(rnd.IntN(8)))
		}
		return r
	}
	change := func(rnd *rand.Rand, owner int) {
		r := request(rnd, owner)
		switch {
		case rnd.IntN(3) > 0:
			_, _ = a.Engine.Lock(nil, r)
		case r.Key.Class == locks.Open:
			a.Engine.UnlockHandle(r.Key, r.Handle, "closed")
		default:
			a.Engine.Unlock(r.Key, r.Owner, r.Range)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		change(rnd, 1+rnd.IntN(5))
	}
	end, ended := make(chan struct{}), make(chan struct{})
	for i := range 3 {
		go func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(10+i)))
			for {
				select {
				case <-end:
					ended <- struct{}{}
					return
				default:
					change(rnd, 1+rnd.IntN(5))
					time.Sleep(time.Duration(rnd.IntN(3)) * time.Microsecond)
				}
			}
		}()
	}
	parts := 0
	a.renewal(func() {
		parts++
		if _, err := readLedger(a.ledger); a.Engine.ledger.node == unwritten && !errors.Is(err, ErrNoTenure) {
			t.Errorf("it is not complete, and who reads it is told %v", err)
		}
	})
	close(end)
	for range 3 {
		<-ended
	}
	if s := a.LedgerStatus(); !s.Kept || s.Err != nil || parts < 20 {
		t.Errorf("%+v after %d parts", s, parts)
	}
	a.ledgerAgrees()
}

// A tenure that ends while a ledger is written anew, or that it fails again, ends that.
func TestARenewalEnds(t *testing.T) {
	for what, end := range map[string]func(*Engine){
		"a tenure ends":    func(e *Engine) { go e.Expelled("a test") },
		"the node leaves":  func(e *Engine) { go e.Leave() },
		"there is no room": func(e *Engine) { e.ledger.fails(errNoRoom) },
		"nothing ends":     nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newKeeping(t, 1, true, nil)
			a := c.nodes["n0"]
			for i := range 20 {
				mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, part(uint64(2*i), uint64(2*i)+1))))
			}
			parts := 0
			a.renewal(func() {
				if parts++; parts == 10 && end != nil {
					end(a.Engine)
				}
			})
			time.Sleep(time.Second) // until it has ended
			_, err := readLedger(a.ledger)
			if end == nil && err != nil || end != nil && !errors.Is(err, ErrNoTenure) || parts < 10 {
				t.Errorf("%s: %v after %d parts", what, err, parts)
			}
			if s := a.LedgerStatus(); s.Kept == (s.Err != nil) && what != "the node leaves" {
				t.Errorf("%s: %+v", what, s)
			}
		})
	}
}

// A file that was forgotten while it is written out has to be written out all the same, if
// the process dies; also where it is used again.
func TestARenewedLedgerHasWhatIsBeingWrittenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 1, true, nil)
		a := c.nodes["n0"]
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, a.start(w))
		a.Unlock(w.Key, 1, locks.Whole)
		a.Engine.mu.Lock()
		en := a.entries.all[w.Key]
		en.dirty = false
		en.writing++
		a.entries.forget(en)
		a.Engine.mu.Unlock()
		dirty := func() (is bool) {
			t.Helper()
			rd, err := readLedger(a.ledger)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range rd.l.keys {
				is = is || k.key == w.Key && k.dirty
			}
			return is
		}
		a.renewal(func() {})
		if !dirty() {
			t.Error("it is not to be written out")
		}
		r := req(locks.Flock, 1, locks.Read, locks.Whole)
		mustGrant(t, a.start(r))
		a.renewal(func() {})
		if !dirty() {
			t.Error("it is not to be written out, since it is used again")
		}
		a.Engine.mu.Lock()
		en.writing--
		a.Engine.ledger.written(en)
		a.Engine.mu.Unlock()
		if dirty() {
			t.Error("it is to be written out, and was")
		}
		a.renewal(func() {})
		if dirty() {
			t.Error("it is to be written out again")
		}
		a.ledgerAgrees()
	})
}

// A program that is being told of damage may not have heard it, whatever becomes of the
// ledger meanwhile.
func TestARenewedLedgerHasWhatIsBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 1, true, nil)
		a := c.nodes["n0"]
		keys := []locks.Key{{File: "before", Class: locks.Flock}, {File: "meanwhile", Class: locks.Flock}, {File: "not yet", Class: locks.Flock}}
		a.Engine.mu.Lock()
		defer a.Engine.mu.Unlock()
		damaged := func(k locks.Key) {
			a.damages.told.put(k)
			a.Engine.ledger.damaged(k)
		}
		damaged(keys[0])
		damaged(keys[2])
		_ = a.damages.take(keys[0], "f")
		a.Engine.ledger.fails(errNoRoom)
		damaged(keys[1])
		_ = a.damages.take(keys[1], "f")
		a.Engine.ledger.renew()
		told := func() []locks.Key {
			rd, err := readLedger(a.ledger)
			if err != nil {
				t.Fatal(err)
			}
			return rd.l.told
		}
		if got := told(); !slices.Equal(got, keys) {
			t.Errorf("it says %v, want %v", got, keys)
		}
		a.Engine.ledger.expire(time.Now().Add(tellTime))
		if got := told(); !slices.Equal(got, keys[2:]) {
			t.Errorf("later it says %v, want %v", got, keys[2:])
		}
	})
}

// Of very many locks a ledger is written anew in parts.
func TestARenewalDoesNotHoldTheEngineForLong(t *testing.T) {
	if long.Race {
		t.Skip("with -race all is many times slower")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := min(5**holds, DefaultMaxLocks)
	e := tuned(t, 1, withLedger)
	e.mu.busy = locktest.ThreadTime
	takeMany(e, n)
	for i := range n / 4 {
		must(e, byProcess(2, locks.Posix, fmt.Sprint(i), locks.Write, locks.Whole))
	}
	least := time.Hour
	for range 8 {
		runtime.GC()
		e.mu.Lock()
		e.ledger.fails(errNoRoom)
		e.mu.Unlock()
		e.longest()
		e.mu.Lock()
		e.ledger.renew()
		kept := e.ledger.l != nil
		e.mu.Unlock()
		if !kept {
			t.Fatal("there is no room")
		}
		if least = min(least, e.longest()); least <= holdLimit {
			break
		}
	}
	if t.Logf("with %d locks it is held for %v", n+n/4, least); least > holdLimit {
		t.Errorf("the engine was held for %v", least)
	}
	got := 0
	for range e.ledger.l.(*shm.Tables).All(tableTickets) {
		got++
	}
	if got != n+n/4 {
		t.Errorf("it has %d locks, want %d", got, n+n/4)
	}
}
