package member

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// Input is what happened: the argument of [Machine.Step].
type Input interface {
	isInput()
	// String is the form of traces and of the debug log.
	String() string
}

// Start is the first input, once.
type Start struct {
	// Saved is what the last [Output.Save] of this state directory said; zero
	// when there is none. A node that was a member before waits and asks
	// again where one that starts for the first time gives up.
	Saved Saved
}

// Tick comes every Params.Tick milliseconds. One that comes late counts as
// [Params.Cap] at most; none is made up for.
type Tick struct{}

// Received is a message that was decoded. Messages may be lost, repeated and
// late, and come in any order.
type Received struct{ Envelope }

// SyncArrived: the state of From's lock machines at Epoch is here, whole. It
// goes to the engine if, and only if, [Output.TakeSync] says so.
type SyncArrived struct {
	From  Node
	Epoch locks.Epoch
}

// Frozen: the engine has obeyed the [Output.Freeze] of this number.
type Frozen struct{ Seq uint64 }

// Done is the end of a storage operation. Exactly one follows on every
// [Output.Storage], however late.
type Done struct {
	Op Op
	// Err: it failed, or nobody knows whether it did. For a Link, an error
	// that wraps [ErrExists] says that the name is taken.
	Err error
	// Look is the result of a Look that did not fail.
	Look Look
}

// Fenced is the answer to a [Fence]. After an error the member is not dropped;
// the machine asks again later.
type Fenced struct {
	Node Node
	Err  error
}

// Leave: this node wants to go. All its locks must have been released. Either
// [Output.End] follows within 5 s, or the driver goes without it, which costs
// the others a tenure.
type Leave struct{}

// Dead: the driver has proof that Node, a daemon on this host, is dead. Before
// it gives this input it must hold the exclusive flock on the node's lock file
// (same boot ID, device and inode), and keep it as long as the machine runs.
type Dead struct {
	Node Node
	How  string
}

// Remove asks to drop a member that may be alive. It takes L + delta: the node
// must know that it is out. It may join again, see [Revoke].
type Remove struct {
	Wish
	Node Node
	// Why is the admin's reason, for people; may be empty.
	Why string
}

// Revoke asks to keep a peer out for good, or with Undo to let it in again. If
// it is a member it leaves, or is dropped.
type Revoke struct {
	Wish
	Peer string
	Undo bool
}

// SetPolicy asks for another policy for all.
type SetPolicy struct {
	Wish
	Policy Policy
}

// Wish is something that an admin wants. [Output.Answers] has exactly one answer for it.
type Wish struct {
	ID uint64 // chosen by the driver
	// Deadline is when, in CLOCK_BOOTTIME, the answer is an error at the latest.
	Deadline int64
}

// SetAddrs: this node's addresses changed. The others learn them with the next
// incarnation; until then from the peer records on the storage. Those that do
// not fit a record are left out, see [ClipAddrs].
type SetAddrs struct{ Addrs []string }

func (Start) isInput()       {}
func (Tick) isInput()        {}
func (Received) isInput()    {}
func (SyncArrived) isInput() {}
func (Frozen) isInput()      {}
func (Done) isInput()        {}
func (Fenced) isInput()      {}
func (Leave) isInput()       {}
func (Dead) isInput()        {}
func (Remove) isInput()      {}
func (Revoke) isInput()      {}
func (SetPolicy) isInput()   {}
func (SetAddrs) isInput()    {}

func (i Start) String() string       { return fmt.Sprintf("Start %v", i.Saved) }
func (Tick) String() string          { return "Tick" }
func (i Received) String() string    { return "Received " + i.Envelope.String() }
func (i SyncArrived) String() string { return fmt.Sprintf("SyncArrived from %v @%d", i.From, i.Epoch) }
func (i Frozen) String() string      { return fmt.Sprintf("Frozen %d", i.Seq) }
func (i Fenced) String() string      { return fmt.Sprintf("Fenced %v%s", i.Node, colonErr(i.Err)) }
func (Leave) String() string         { return "Leave" }
func (i Dead) String() string        { return fmt.Sprintf("Dead %v: %s", i.Node, i.How) }
func (i Remove) String() string      { return fmt.Sprintf("Remove %v", i.Node) }
func (i SetPolicy) String() string   { return "SetPolicy " + i.Policy.Hash }
func (i SetAddrs) String() string    { return fmt.Sprintf("SetAddrs %v", i.Addrs) }

func (i Done) String() string {
	if _, ok := i.Op.(LookOp); ok && i.Err == nil {
		return fmt.Sprintf("Done %v: %v", i.Op, i.Look)
	}
	return fmt.Sprintf("Done %v%s", i.Op, colonErr(i.Err))
}

func (i Revoke) String() string {
	if i.Undo {
		return "Revoke undo " + i.Peer
	}
	return "Revoke " + i.Peer
}

func colonErr(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// Saved is what has to survive the process, in the state directory.
type Saved struct {
	// Was: this node has been a member.
	Was bool `json:"was"`
	// Backoff is the pause, in milliseconds, before the next join.
	Backoff int64 `json:"backoff_ms"`
	// Epoch is the newest view that this node has known. Storage that has only
	// older ones was restored from a copy.
	Epoch locks.Epoch `json:"epoch"`
}

func (s Saved) String() string {
	return fmt.Sprintf("was=%v backoff=%d epoch=%d", s.Was, s.Backoff, s.Epoch)
}
