package member

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// scans are what the looks at the directory of views have shown.
type scans struct {
	*position
	seen    bool        // there was one that did not fail
	began   int64       // the start of the last one
	newest  locks.Epoch // in that
	at      int64       // the start of the last one that counts for the tenure
	missing int64       // the start of the first that did not show the own view; 0: the last one did
	bad     *bad        // the newest view cannot be read
	stray   locks.Epoch // a file among the views that is none
	part    bool        // the last one failed, or its listing was not whole: it shows nothing to be missing
}

// bad is a view that the listing shows and that cannot be read.
type bad struct {
	epoch locks.Epoch
	err   error
	age   waking // since it was first seen
}

func (b *bad) Error() string { return fmt.Sprintf("view %d: %v", b.epoch, b.err) }

// lostLimit is how long, in milliseconds, a member's own view may be missing
// from the listings before it gives up.
const lostLimit = 30_000

func (s *scans) wake() {
	if s.bad != nil {
		s.bad.age.tick(s.base)
	}
}

// join: no look at an earlier view counts.
func (s *scans) join() { s.at = never }

// installed: that the view is not in a listing yet is no wonder.
func (s *scans) installed() { s.missing = 0 }

// unreadable reports that there is a view above this node's that cannot be
// read: whatever this node proposes would lose.
func (s *scans) unreadable() bool { return s.bad != nil && s.bad.epoch > s.view.Epoch }

// failed: whether a view is missing is open again. Where only a part of the storage
// is away looks may fail and show less than there is by turns.
func (s *scans) failed() { s.part, s.missing = true, 0 }

// saw takes what a look saw.
func (s *scans) saw(l Look) {
	s.seen = true
	s.part = l.Hidden
	s.newest = l.Newest
	s.began = max(s.began, l.Began)
	s.noteBad(l)
	s.noteStray(l)
}

// noteBad keeps for how long the newest view could not be read. A view of
// another cluster, or of a newer dmxfs, is never taken over.
func (s *scans) noteBad(l Look) {
	if l.Bad == nil || l.Newest <= s.top().Epoch {
		s.bad = nil
		return
	}
	if s.bad == nil || s.bad.epoch != l.Newest {
		s.bad = &bad{epoch: l.Newest, age: s.sinceNow()}
		s.note(Storage, Node{}, "", "view %d: %v", l.Newest, l.Bad)
	}
	s.bad.err = l.Bad
}

// noteStray tells the log of a file that somebody has put among the views.
func (s *scans) noteStray(l Look) {
	if l.Stray != s.stray && l.Stray != 0 {
		s.note(Storage, Node{}, "", "%s/%s is no view, and is passed over: remove it", ".dmxfs/views", ViewName(l.Stray))
	}
	s.stray = l.Stray
}

// count renews the look tenure, if the look showed that no view is above
// this node's. One that does not show this node's own view is of another
// directory, or older than it.
func (s *scans) count(op LookOp, l Look) {
	if s.state == StateOut || s.next != nil || l.Newest > s.view.Epoch {
		return
	}
	// A listing may be S old, so that it need not show a view that is younger.
	if l.Known && op.Known == s.view.Epoch || l.Began < s.known.from+s.cfg.Self.Cache {
		s.missing = 0
		s.at = max(s.at, l.Began)
		return
	}
	if op.Known != s.view.Epoch {
		return
	}
	if l.Hidden {
		s.missing = 0 // it is there, but what else the listing lacks is not known
		return
	}
	if s.missing == 0 {
		s.missing = l.Began
		s.note(Storage, Node{}, "", "view %d is missing from the shared storage: was .dmxfs removed, or another directory mounted there?", s.view.Epoch)
	}
	if l.Began-s.missing >= lostLimit {
		s.finish(End{Code: EndLost, Text: fmt.Sprintf("view %d has been missing from the shared storage for %d s: was .dmxfs removed, or another directory mounted there?", s.view.Epoch, lostLimit/1000)})
	}
}
