package metrics

import "time"

// Snapshot is what is asked for when somebody looks.
type Snapshot struct {
	Version string
	State   string // of this node, as in `dmxfs status`
	// Granting: locks can be had. Problems is how many things are wrong.
	Granting bool
	Problems int
	Epoch    uint64
	// Members by state, as this node knows them without asking.
	Members map[string]int
	// Held and Waiting are the locks of programs of this host. OldestWait is how
	// long the one has waited that waits longest.
	Held, Waiting int
	OldestWait    time.Duration
	// WaitsOn are the requests of this host that wait for each member.
	WaitsOn map[Peer]int
	// EngineLongest is the longest time for which all locks waited for one thing.
	EngineLongest time.Duration
	// Takeovers is how often a daemon went on in the place of one that was killed since
	// the mount was made, and TakeoverPause for how long no call was answered meanwhile,
	// the last time.
	Takeovers     int
	TakeoverPause time.Duration
	Peers         []PeerState
	// LookAge is how old the last look at the storage is; negative: there was none.
	LookAge time.Duration

	Journal Journal
	Caches  Caches
}

// Peer names a member.
type Peer struct{ ID, Host string }

// PeerState is what this node knows of another member.
type PeerState struct {
	Peer
	Connected   bool
	Connections int
	RTT         time.Duration // 0: not known
	Heard       time.Duration // how long ago; negative: never
}

// Journal is the state of the journal.
type Journal struct {
	Healthy          bool
	Records, Next    uint64
	Bytes, Disk      int64
	Pending, Damaged int
	Dropped          uint64
	Oldest           time.Time // zero: there is no record
}

// Caches are the counts of the mount.
type Caches struct{ PageDrops, AttrDrops, EntryDrops, Yields int64 }

// PathCount is how many requests wait for a file.
type PathCount struct {
	Path, Class string
	Waiting     int
}
