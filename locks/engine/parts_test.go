package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A grant that is taken back leaves what was there also where it had set much
// aside, and cut what was at its ends.
func TestAGrantThatIsTakenBackLeavesItsEndsAsTheyWere(t *testing.T) {
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	maxAtOnce = 1
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		var had []locks.Range
		has := func(start, end uint64) {
			r := locks.Range{Start: start, End: end}
			mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, r)))
			had = append(had, r)
		}
		has(0, 10)
		for x := uint64(12); x < 30; x += 2 {
			has(x, x+1)
		}
		has(30, 31)
		w := req(locks.Posix, 7, locks.Write, locks.Range{Start: 100, End: 101})
		mustGrant(t, b.start(w))
		b.Unlock(w.Key, w.Owner, locks.Whole)
		a.refresh = func(locks.Key) error { return errors.New("EIO") }
		p := a.start(req(locks.Posix, 1, locks.Read, locks.Range{Start: 5, End: 200}))
		<-p.done
		if p.err == nil {
			t.Fatal("it was told of more")
		}
		time.Sleep(time.Second)
		for _, r := range had {
			for x := r.Start; x < r.End; x++ {
				if _, err := b.try(req(locks.Posix, 7, locks.Write, locks.Range{Start: x, End: x + 1})); err == nil {
					t.Errorf("another node has byte %d, which it had and never gave up", x)
				}
			}
		}
		if _, err := b.try(req(locks.Posix, 7, locks.Write, locks.Range{Start: 10, End: 12})); err != nil {
			t.Errorf("what it asked for it still has: %v", err)
		}
	})
}
