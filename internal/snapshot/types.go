package snapshot

import (
	"context"
	"net/url"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// Source asks the daemon of a mount, and gives it orders. Its methods return
// when the daemon has answered, ctx ends, or it is clear that nobody answers.
type Source interface {
	Status(ctx context.Context) (Status, error)
	Peers(ctx context.Context) (Peers, error)
	// Locks and Waits wait no longer for a member that does not answer than within.
	Locks(ctx context.Context, within time.Duration) (Locks, error)
	Waits(ctx context.Context, within time.Duration) (*waitgraph.Graph, error)
	Policy(ctx context.Context) (Policy, error)
	// Journal calls each with the records that pass a filter, the oldest first.
	// The keys of the filter are those of the control socket: path, since,
	// until, event, pid, node, last. An error of each ends it.
	Journal(ctx context.Context, filter url.Values, each func(Record) error) error
	// Break takes locks away from the programs that hold them.
	Break(ctx context.Context, locks []Lock, reason string) (Broken, error)
	// Remove drops the member with this ID.
	Remove(ctx context.Context, id, reason string) error
}

// What the daemon answers, as the control socket has it.
type (
	Status  = admin.Status
	Peers   = admin.Peers
	Peer    = admin.Peer
	Joiner  = admin.Joiner
	Gone    = admin.Gone
	Lock    = admin.Lock
	Locks   = admin.Locks
	Blocker = admin.Blocker
	Policy  = admin.Policy
	Rule    = admin.Rule
	Broken  = admin.Broken
)

// The states of a lock.
const (
	Held    = admin.Held
	Waiting = admin.Waiting
	Cached  = admin.Cached
)

// Record is one of the journal.
type Record struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Epoch     uint64    `json:"epoch"`
	Event     string    `json:"event"`
	Request   uint64    `json:"request"`
	Path      string    `json:"path"`
	Class     string    `json:"class"`
	Mode      string    `json:"mode"`
	Start     uint64    `json:"start"`
	End       int64     `json:"end"`
	Algorithm string    `json:"algorithm"`
	Node      string    `json:"node"`
	PID       int       `json:"pid"`
	Command   string    `json:"command"`
	UID       uint32    `json:"uid"`
	WaitMS    float64   `json:"wait_ms"`
	Reason    string    `json:"reason"`
	Final     bool      `json:"final"`
	Token     uint64    `json:"token"`
	Peer      string    `json:"peer"`
	File      string    `json:"file"`
}
