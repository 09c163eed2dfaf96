package supervise

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// Only a daemon that was killed, or has crashed, and has said what it leaves, is followed by
// one that takes that; and not if those that take it are killed at once.
func TestMayTakeOver(t *testing.T) {
	w := &watcher{log: slog.New(slog.DiscardHandler)}
	killed := exitcode.With(exitcode.Failure, &errGone{"signal: killed", true, true})
	if w.mayTakeOver(killed) {
		t.Error("it has left nothing")
	}
	serves := func(generation uint64) { w.bequeathed(estate.Will{Generation: generation, InForce: true}) }
	serves(1)
	for what, err := range map[string]error{
		"that has ended by itself": exitcode.With(exitcode.Refused, &errGone{"exit status 4", false, false}),
		"that said why":            errors.New("no member any more"),
	} {
		if w.mayTakeOver(err) || w.legacy.takes() {
			t.Errorf("a daemon %s is succeeded", what)
		}
	}
	generation := uint64(1)
	for range 10 { // each lives
		w.legacy.inForce = time.Now().Add(-2 * shortLife)
		if !w.mayTakeOver(killed) || !w.legacy.takes() {
			t.Fatal("a daemon that was killed is not succeeded")
		}
		generation++
		serves(generation)
		if w.legacy.takes() {
			t.Fatal("it has taken it already")
		}
	}
	crashed := exitcode.With(exitcode.Failure, &errGone{"exit status 2", true, false})
	for _, x := range []struct {
		err  error
		most int
	}{{killed, maxQuickKilled}, {crashed, maxQuick}} {
		w.legacy.inForce = time.Now().Add(-2 * shortLife)
		if !w.mayTakeOver(x.err) {
			t.Fatal("a daemon that has served for long is not succeeded")
		}
		for i := range x.most + 1 {
			if got, want := w.mayTakeOver(x.err), i < x.most; got != want {
				t.Errorf("after %d with %v soon: %v", i, x.err, got)
			}
			if i%2 == 0 { // whether it came to serve or not
				generation++
				serves(generation)
			}
		}
	}
	if w.mayTakeOver(killed) {
		t.Error("one that was killed is succeeded after all")
	}
	w.disinherit()
	if w.mayTakeOver(killed) || w.legacy.some() {
		t.Error("there is something left")
	}
}

// The mount of a daemon that was killed, and cannot end before another one goes on, is cut
// off if none does: else it would hang.
func TestNobodyGoesOnAfterOneThatIsStuck(t *testing.T) {
	cut := 0
	w := &watcher{log: slog.New(slog.DiscardHandler)}
	w.legacy.cut = func(string) error { cut++; return nil }
	w.disinherit()
	w.legacy.isStuck()
	w.bequeathed(estate.Will{Generation: 1, InForce: true}) // one does
	w.disinherit()
	if cut != 0 {
		t.Errorf("a mount of which no daemon is stuck is cut off %d times", cut)
	}
	w.legacy.isStuck()
	w.bequeathed(estate.Will{Generation: 2}) // one has begun to
	w.disinherit()
	w.disinherit()
	if cut != 1 {
		t.Errorf("the mount of a daemon that is stuck is cut off %d times", cut)
	}
}

// A daemon that was killed before it has said its will is waited for, as its end may take a
// moment: what the one before it has left counts still.
func TestOneThatHasSaidNothingIsWaitedFor(t *testing.T) {
	w := &watcher{log: slog.New(slog.DiscardHandler)}
	w.bequeathed(estate.Will{PID: 1, Generation: 1, InForce: true})
	if ended, err := w.legacy.ended(2); ended || err != nil {
		t.Errorf("it has ended: %v %v", ended, err)
	}
}
