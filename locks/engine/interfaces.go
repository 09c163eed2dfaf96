package engine

import (
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Transport carries frames between the engines of the members of a view.
type Transport interface {
	// Send queues frame for a member of the view of that epoch and returns
	// at once; frame belongs to the transport from then on. Within the epoch
	// it arrives once and in order, or one of the two nodes leaves the view.
	Send(epoch locks.Epoch, to locks.NodeID, frame []byte)
}

// Files is the data behind the locks: the mount. Its methods may take as long
// as the storage does.
type Files interface {
	// Flush returns when what programs of this node wrote under k can be
	// read by other nodes.
	Flush(k locks.Key) error
	// Refresh returns when nothing is left of what this node had cached of
	// the file of k, so that the next read sees what other nodes wrote.
	Refresh(k locks.Key) error
	// Expelled: every lock of this node is lost.
	Expelled()
}

// BulkFlusher may be implemented by Files as well, so that a view that changes
// waits for the storage once, and not once for each key.
type BulkFlusher interface {
	// FlushAll is Flush of each of ks, at less cost: before a new view all that
	// was written under locks is written out. It returns the errors.
	FlushAll(ks []locks.Key) map[locks.Key]error
}

// Cleaner may be implemented by Files as well. It saves handing a Flush over to
// another goroutine when that would have nothing to do.
type Cleaner interface {
	// Clean reports whether Flush of k would have nothing to do now. Unlike
	// the methods of Files it is called under the engine's mutex: it returns
	// at once, and calls nothing of the engine.
	Clean(k locks.Key) bool
}

// Yielder may be implemented by Files as well, so that open locks which are not
// in use give way without delay.
type Yielder interface {
	// Yield says that Engine.Wanted is not 0 for k, of class Open. Unlike the
	// methods of Files it is called under the engine's mutex: it returns at
	// once, and calls nothing of the engine.
	Yield(k locks.Key)
}

// Recorder is the journal. Its methods return at once.
type Recorder interface {
	Record(Event)
	// Healthy is nil when events can be stored. While it is not, no lock is
	// granted to a new request.
	Healthy() error
}

// Pacer may be implemented by a Recorder as well, so that nothing is lost only
// because the disk is slower than who asks for locks.
type Pacer interface {
	// Pace waits, not for long, while there is much to be stored; sooner if the
	// caller has much to add. It is called where nobody else waits for the caller.
	Pace(much bool)
	// Crowded reports whether there is so much that Pace waits.
	Crowded() bool
}

// Step is a step in the life of a request.
type Step uint8

const (
	Requested Step = iota + 1
	Waiting        // was not granted at once; Reason says for whom it waits
	Granted
	Denied
	Withdrawn // interrupted, timed out, or the program went away
	Released
	Lost // the node was expelled while it held or waited
)

func (s Step) String() string {
	switch s {
	case Requested:
		return "requested"
	case Waiting:
		return "waiting"
	case Granted:
		return "granted"
	case Denied:
		return "denied"
	case Withdrawn:
		return "withdrawn"
	case Released:
		return "released"
	case Lost:
		return "lost"
	}
	return "?"
}

// Event is one step of one request.
type Event struct {
	Step    Step
	Time    time.Time
	Epoch   locks.Epoch
	Request uint64 // unique on this node and in this run
	Key     locks.Key
	Path    string
	Mode    locks.Mode
	// Range of the request, or the part of it that was released.
	Range     locks.Range
	Algorithm string
	Program   locks.Program
	Token     locks.Token
	// Wait is how long the request waited, set when it ends waiting.
	Wait time.Duration
	// Held is how long the program had the lock, set when a lock ends that was granted.
	Held time.Duration
	// Messages that this node sent or received for the file meanwhile.
	Messages int
	Reason   string
	// Final: nothing is left of the request.
	Final bool
}
