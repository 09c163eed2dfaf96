package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Step is what became of a request for a lock.
type Step int

// The steps that are counted.
const (
	Requested Step = iota
	Granted
	Denied
	Withdrawn
	Released
	Lost
	steps
)

// Set is what one daemon counts. Its methods are safe for concurrent use.
type Set struct {
	classes, algorithms []string
	locks               []lockCounts // by class, then algorithm

	requests           []Histogram // by number of the FUSE request
	read, written      atomic.Uint64
	handover, refresh  Histogram
	breaks, lateWrites atomic.Uint64

	operations map[string]*operation // on the storage

	changes     Histogram // of views
	expulsions  atomic.Uint64
	suspensions atomic.Uint64

	mu        sync.Mutex
	suspended time.Duration // in all, but for the present time
	since     time.Time     // when the present suspension, or change of views, began
	changing  time.Time
	isAway    bool
	isChange  bool
}

// lockCounts are those of one class and algorithm.
type lockCounts struct {
	steps      [steps]atomic.Uint64
	messages   atomic.Uint64
	wait, hold Histogram
}

// operation is one kind of operation on the storage.
type operation struct {
	took   Histogram
	failed atomic.Uint64
}

// maxRequests is above the number of every FUSE request that is counted.
const maxRequests = 64

// New makes a set for locks of these classes and algorithms, and these operations
// on the storage. What is none of them is not counted.
func New(classes, algorithms, operations []string) *Set {
	s := &Set{
		classes: slices.Clone(classes), algorithms: slices.Clone(algorithms),
		locks: make([]lockCounts, len(classes)*len(algorithms)), requests: make([]Histogram, maxRequests),
		operations: map[string]*operation{},
	}
	for _, o := range operations {
		s.operations[o] = &operation{}
	}
	return s
}

// Lock is a step of a request for a lock.
type Lock struct {
	Step      Step
	Class     int    // index into the classes of the set
	Algorithm string // its name
	// Final: nothing is left of the request.
	Final bool
	// Wait is how long it has waited, and Messages how many messages this node sent
	// for it meanwhile, for Granted. Hold is how long the lock was held, for a final
	// Released or Lost.
	Wait, Hold time.Duration
	Messages   int
}

// Lock counts a step.
func (s *Set) Lock(l Lock) {
	a := 0
	for a < len(s.algorithms) && s.algorithms[a] != l.Algorithm {
		a++
	}
	if a == len(s.algorithms) || l.Class < 0 || l.Class >= len(s.classes) || l.Step < 0 || l.Step >= steps {
		return
	}
	c := &s.locks[l.Class*len(s.algorithms)+a]
	switch l.Step {
	case Granted:
		c.wait.Observe(l.Wait)
		c.messages.Add(uint64(max(l.Messages, 0)))
	case Released, Lost:
		if !l.Final {
			return
		}
		if l.Step == Lost && l.Hold == 0 { // a wait was lost
			l.Step = Withdrawn
		} else {
			c.hold.Observe(l.Hold)
		}
	}
	c.steps[l.Step].Add(1)
}

// Request counts a FUSE request by its number, how long it took, and how many bytes
// of data it had.
func (s *Set) Request(opcode uint32, took time.Duration, read, written int) {
	if opcode >= maxRequests {
		return
	}
	s.requests[opcode].Observe(took)
	if read > 0 {
		s.read.Add(uint64(read))
	}
	if written > 0 {
		s.written.Add(uint64(written))
	}
}

// Handover counts that data was written out before a lock went to another host.
func (s *Set) Handover(took time.Duration) { s.handover.Observe(took) }

// Refresh counts that what was cached was dropped before a lock was granted.
func (s *Set) Refresh(took time.Duration) { s.refresh.Observe(took) }

// Broken counts locks that an admin took away.
func (s *Set) Broken(n int) { s.breaks.Add(uint64(max(n, 0))) }

// LateWrite counts a change that may have come after its lock was lost.
func (s *Set) LateWrite() { s.lateWrites.Add(1) }

// Storage counts an operation on the storage, and whether it failed.
func (s *Set) Storage(name string, took time.Duration, err error) {
	o := s.operations[name]
	if o == nil {
		return
	}
	o.took.Observe(took)
	if err != nil {
		o.failed.Add(1)
	}
}

// Frozen tells that a change of views began: nothing is granted. One that begins
// during another is the same.
func (s *Set) Frozen(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isChange {
		s.isChange, s.changing = true, now
	}
}

// Installed tells that all members of a view have told what they hold: locks are
// granted again. That ends a change of views, and a suspension.
func (s *Set) Installed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isChange {
		s.isChange = false
		s.changes.Observe(now.Sub(s.changing))
	}
	s.endSuspension(now)
}

// Suspended tells that this node is not sure of the others or of the storage any
// more, and grants nothing.
func (s *Set) Suspended(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAway {
		s.isAway, s.since = true, now
		s.suspensions.Add(1)
	}
}

// Resumed tells that it is sure again.
func (s *Set) Resumed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSuspension(now)
}

// REQUIRES: mu held.
func (s *Set) endSuspension(now time.Time) {
	if s.isAway {
		s.isAway = false
		s.suspended += now.Sub(s.since)
	}
}

// Expelled tells that the others went on without this node, which has lost its locks
// and joins anew: it is not suspended any more.
func (s *Set) Expelled(now time.Time) {
	s.expulsions.Add(1)
	s.Resumed(now)
}

// suspendedTime is how long this node was suspended, in all.
func (s *Set) suspendedTime(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAway {
		return s.suspended + now.Sub(s.since)
	}
	return s.suspended
}
