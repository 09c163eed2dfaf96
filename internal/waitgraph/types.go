package waitgraph

import "time"

// Row is a lock, or a request for one, as a member tells of it. Its JSON is what
// members answer each other, and a superset of what `dmxfs locks --json` prints.
type Row struct {
	Path      string    `json:"path"`
	Class     string    `json:"class"`
	Mode      string    `json:"mode"` // R or W
	Start     uint64    `json:"start"`
	End       int64     `json:"end"`   // first byte behind the range; -1: to the end of the file
	State     string    `json:"state"` // held, waiting or cached
	PID       int       `json:"pid"`   // 0: a program that the daemon cannot see
	Command   string    `json:"command"`
	UID       uint32    `json:"uid"`
	Since     time.Time `json:"since"`
	Algorithm string    `json:"algorithm"`
	Token     uint64    `json:"token"`
	File      string    `json:"file"`
	Request   uint64    `json:"request"`
	Owner     uint64    `json:"owner"`
	// Shared: the algorithm lets readers and ranges be apart.
	Shared bool `json:"shared"`
	// WaitsFor are the programs of the same node that are in the way.
	WaitsFor []Program `json:"waits_for"`
	// Remote are the members, by peer ID, whose answer is missing.
	Remote    []string   `json:"remote"`
	Use       string     `json:"use"`
	IdleSince *time.Time `json:"idle_since"`
}

// Program is a process by what its own host calls it.
type Program struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Answer is what a member said, or that it did not.
type Answer struct {
	Member Member
	Rows   []Row
}

// Member is a member of the cluster, or one that was expelled.
type Member struct {
	ID   string `json:"id"`
	Host string `json:"host"`
	// State is as in `dmxfs peers`; expelled for who is no member any more.
	State string `json:"state"`
	// Answered: its locks and waits are in the graph. If not, Error says why.
	Answered bool   `json:"answered"`
	Error    string `json:"error"`
	// Why is what keeps it from granting locks, if it said.
	Why string `json:"why"`
	// Expelled is when it was, for State expelled.
	Expelled *time.Time `json:"expelled,omitempty"`
}

// Graph is who waits for whom at one moment. Its slices are never nil, and ordered:
// the same answers give the same graph.
type Graph struct {
	At time.Time `json:"at"`
	// Self is the peer ID of the node that asked.
	Self    string   `json:"self"`
	Members []Member `json:"members"`
	// Processes wait or are waited for.
	Processes []Process `json:"processes"`
	// Files are waited for, those with the most waits first.
	Files []File `json:"files"`
	// Waits: who waits longest is first.
	Waits []Wait `json:"waits"`
	// Cycles are sets of processes, by ID, that wait for one another.
	Cycles [][]string `json:"cycles"`
	// Held is the number of locks that programs hold.
	Held int `json:"held"`
}

// Process is a process on a host.
type Process struct {
	ID      string `json:"id"` // within a graph
	Node    string `json:"node"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
	UID     uint32 `json:"uid"`
	// Waits is how many of its requests wait, WaitedFor how many others wait for it.
	Waits     int  `json:"waits"`
	WaitedFor int  `json:"waited_for"`
	InCycle   bool `json:"in_cycle"`
}

// File is a file, by class of lock, that somebody waits for.
type File struct {
	File    string    `json:"file"`
	Path    string    `json:"path"`
	Class   string    `json:"class"`
	Waiting int       `json:"waiting"`
	Held    int       `json:"held"`
	Since   time.Time `json:"since"` // of the oldest wait
}

// Wait is a request that waits.
type Wait struct {
	Process   string    `json:"process"` // ID of the process
	Node      string    `json:"node"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Command   string    `json:"command"`
	UID       uint32    `json:"uid"`
	Request   uint64    `json:"request"` // unique on its node, as in its journal
	File      string    `json:"file"`
	Path      string    `json:"path"`
	Class     string    `json:"class"`
	Mode      string    `json:"mode"`
	Start     uint64    `json:"start"`
	End       int64     `json:"end"`
	Since     time.Time `json:"since"`
	Algorithm string    `json:"algorithm"`
	InCycle   bool      `json:"in_cycle"`
	// For are those in its way; More is how many beyond maxBlockers there are. Nobody
	// is in the way of one whose turn comes at once, or whose node grants nothing.
	For  []Blocker `json:"for"`
	More int       `json:"more"`
}

// Kind says how one is in the way of a wait.
type Kind string

// The kinds of blocker.
const (
	Holds  Kind = "holds"  // it holds a lock that conflicts
	Ahead  Kind = "ahead"  // it waits as well, and comes first
	Silent Kind = "silent" // a member that does not answer: what it holds is not known
	Keeps  Kind = "keeps"  // a member that has not given the permission yet, though it tells of no lock: it writes out data, say, or has just let go of it
)

// Blocker is one in the way of a wait.
type Blocker struct {
	Kind Kind `json:"kind"`
	// Process is empty for the kinds of members, and so is what follows Host.
	Process string    `json:"process"`
	Node    string    `json:"node"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Mode    string    `json:"mode"`
	Start   uint64    `json:"start"`
	End     int64     `json:"end"`
	Since   time.Time `json:"since"` // of the grant, or of its own request; zero if not known
	Token   uint64    `json:"token"`
	// Use and IdleSince tell how an open lock is used.
	Use       string     `json:"use"`
	IdleSince *time.Time `json:"idle_since"`
}
