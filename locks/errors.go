package locks

import "errors"

// What a request for a lock can end with, beside a grant. They come wrapped,
// with what is known of the circumstances.
var (
	// ErrWouldBlock: a try met a conflicting lock.
	ErrWouldBlock = errors.New("the lock is held")
	// ErrInterrupted: a signal ended the wait. Nothing is held.
	ErrInterrupted = errors.New("interrupted while waiting for a lock")
	// ErrTimeout: the time that the rule allows for waiting is over.
	ErrTimeout = errors.New("waited for a lock as long as the rule allows")
	// ErrDeadlock: to wait would be to wait for ever.
	ErrDeadlock = errors.New("waiting would be a deadlock")
	// ErrUnavailable: this node cannot guarantee a lock now: it is leaving,
	// or its journal cannot be written.
	ErrUnavailable = errors.New("no lock can be guaranteed now")
	// ErrDamaged: what another host wrote under the lock did not all get to the
	// storage. Who asks again is granted it.
	ErrDamaged = errors.New("another host could not write out all that it wrote under this lock")
	// ErrBequeathed: another process takes the place of this one, and goes on with
	// the request where this one has left it.
	ErrBequeathed = errors.New("the daemon is being replaced: its successor goes on with the request")
	// ErrLost: this node was expelled, and with it the lock or the wait was lost.
	ErrLost = errors.New("the lock was lost: the other members went on without this node")
)
