package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A tenure ends in parts, and so does an epoch. What was held up, of a file whose
// part has not come, ends with it: nobody is left who could be answered.
func TestWhatIsHeldUpEndsWithATenure(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*Engine)
		over phase
	}{
		{"expelled", func(e *Engine) { e.Expelled("a test") }, outside},
		{"frozen", (*Engine).Freeze, frozen},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for tries := 0; !heldUpAtTheEnd(t, tt.end, tt.over) && !t.Failed(); tries++ {
				if tries == 50 {
					t.Fatal("it was the first file each time") // of nine
				}
			}
		})
	}
}

// heldUpAtTheEnd reports whether the file with what is held up was not the first one.
func heldUpAtTheEnd(t *testing.T, end func(*Engine), over phase) (hit bool) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		for i := range 8 {
			r := flockTry(locks.HandleID(10 + i))
			r.Key.File = fmt.Sprint(i)
			mustGrant(t, a.start(r))
		}
		hold := flockTry(1)
		mustGrant(t, a.start(hold))
		a.Closing(hold.Key, hold.Handle)
		b.start(waitingFlock(2, locks.Write))
		time.Sleep(10 * time.Millisecond)
		a.Engine.mu.Lock()
		en := a.entries.all[hold.Key]
		if en.closing == nil || len(en.closing.frames) == 0 {
			t.Error("nothing is held up")
		}
		received := en.messages
		a.Engine.mu.rest = func() time.Duration {
			if hit || a.phase != over || en.closing == nil {
				return 0
			}
			hit = true
			return closeTime
		}
		a.Engine.mu.Unlock()
		end(a.Engine)
		a.Engine.mu.Lock()
		defer a.Engine.mu.Unlock()
		if en.closing != nil || en.messages != received {
			t.Errorf("%d messages were received after the end", en.messages-received)
		}
	})
	return hit
}

// What a member says of a file comes in the order in which it was said, also if it
// was held up.
func TestWhatWasHeldUpStaysInOrder(t *testing.T) {
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	maxAtOnce = 2
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 2)
		a, b := c.nodes["n0"], c.nodes["n1"]
		read := waitingFlock(1, locks.Read)
		read.Blind = true // what is cached is made good for the next one
		mustGrant(t, a.start(read))
		theirs := waitingFlock(10, locks.Read)
		mustGrant(t, b.start(theirs))

		renewed := make(chan struct{})
		a.refresh = func(locks.Key) error { <-renewed; return nil }
		second := a.start(waitingFlock(2, locks.Read)) // it is on its way
		synctest.Wait()
		writer := a.start(waitingFlock(3, locks.Write)) // it asks n1
		time.Sleep(5 * time.Millisecond)

		a.Closing(read.Key, read.Handle)
		a.Engine.mu.Lock()
		en, rested := a.entries.all[read.Key], false
		a.Engine.mu.rest = func() time.Duration {
			if en.closing != nil || rested {
				return 0
			}
			rested = true
			return 20 * time.Millisecond
		}
		a.Engine.mu.Unlock()
		// A question is held up, and the answer to the writer behind it.
		question := waitingFlock(10, locks.Write)
		go b.Test(nil, question)
		time.Sleep(5 * time.Millisecond)
		b.UnlockHandle(theirs.Key, theirs.Handle, "closed")
		time.Sleep(closeTime) // they come now
		try := flockTry(11)
		try.Mode = locks.Read
		reader := b.start(try)
		time.Sleep(50 * time.Millisecond)

		close(renewed)
		mustGrant(t, second)
		a.UnlockHandle(read.Key, 2, "closed")
		a.UnlockHandle(read.Key, 1, "closed")
		time.Sleep(50 * time.Millisecond)
		if reader.is() && reader.err == nil && writer.is() && writer.err == nil {
			t.Error("n0 writes while n1 reads")
		}
		b.UnlockHandle(read.Key, 11, "closed")
		mustGrant(t, writer)
	})
}
