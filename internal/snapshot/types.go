package snapshot

import (
	"context"
	"net/url"
	"time"

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

// Status is how the node that was asked is doing.
type Status struct {
	Mount    string   `json:"mount"`
	Source   string   `json:"source"`
	PID      int      `json:"pid"`
	Version  string   `json:"version"`
	Epoch    uint64   `json:"epoch"`
	State    string   `json:"state"`
	Members  int      `json:"members"`
	Held     int      `json:"held"`
	Waiting  int      `json:"waiting"`
	UptimeS  int64    `json:"uptime_s"`
	Self     string   `json:"self"`
	Healthy  bool     `json:"healthy"`
	Problems []string `json:"problems"`
}

// Peers are the members, and who else is known.
type Peers struct {
	Epoch   uint64   `json:"epoch"`
	Self    string   `json:"self"`
	Members []Peer   `json:"members"`
	Joining []Joiner `json:"joining"`
	Gone    []Gone   `json:"gone"`
	Revoked []string `json:"revoked"`
}

// Peer is a member.
type Peer struct {
	ID          string   `json:"id"`
	Host        string   `json:"host"`
	Addrs       []string `json:"addrs"`
	State       string   `json:"state"`
	RTTMS       *float64 `json:"rtt_ms"`
	LastHeardMS *int64   `json:"last_heard_ms"`
	Connected   bool     `json:"connected"`
	Version     string   `json:"version"`
}

// Joiner is a node that wants to be a member.
type Joiner struct {
	ID    string   `json:"id"`
	Host  string   `json:"host"`
	Addrs []string `json:"addrs"`
	State string   `json:"state"`
}

// Gone is a former member.
type Gone struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	State string    `json:"state"`
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
}

// Lock is what a program holds or waits for, or a node keeps.
type Lock struct {
	Path      string     `json:"path"`
	Class     string     `json:"class"`
	Mode      string     `json:"mode"`
	Start     uint64     `json:"start"`
	End       int64      `json:"end"` // first byte behind the range; -1: to the end of the file
	State     string     `json:"state"`
	Node      string     `json:"node"`
	Host      string     `json:"host"`
	PID       int        `json:"pid"`
	Command   string     `json:"command"`
	UID       uint32     `json:"uid"`
	Since     time.Time  `json:"since"`
	Epoch     uint64     `json:"epoch"`
	Algorithm string     `json:"algorithm"`
	Token     uint64     `json:"token"`
	WaitsFor  []Blocker  `json:"waits_for"`
	File      string     `json:"file"`
	Request   uint64     `json:"request"`
	Use       string     `json:"use"`
	IdleSince *time.Time `json:"idle_since"`
	// PathBytes and FileBytes are what Path and File can't tell, since they are not
	// UTF-8; an order to break the lock needs them.
	PathBytes []byte `json:"path_bytes,omitempty"`
	FileBytes []byte `json:"file_bytes,omitempty"`
}

// The states of a lock.
const (
	Held    = "held"
	Waiting = "waiting"
	Cached  = "cached" // a node keeps it, and no program has it
)

// Blocker is in the way of a lock: a program or, if PID is 0, a node.
type Blocker struct {
	Node    string `json:"node"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Locks are those of the cluster, but for what the members that are missing
// have.
type Locks struct {
	Locks   []Lock   `json:"locks"`
	Missing []string `json:"missing"`
}

// Policy is the rules of the cluster.
type Policy struct {
	Epoch   uint64 `json:"epoch"`
	Hash    string `json:"hash"`
	Rules   []Rule `json:"rules"`
	Default Rule   `json:"default"`
	TOML    string `json:"toml"`
}

// Rule says how files that match a path are locked.
type Rule struct {
	Rule      int    `json:"rule"` // from 1; 0: the default
	Path      string `json:"path"`
	Algorithm string `json:"algorithm"`
	Exclusive bool   `json:"exclusive"`
	Open      string `json:"open"`
	Yield     string `json:"yield"`
	Scope     string `json:"scope"`
	Wait      string `json:"wait"`
}

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

// Broken is what came of an order to break locks.
type Broken struct {
	Broken []Lock   `json:"broken"`
	Errors []string `json:"errors"`
}
