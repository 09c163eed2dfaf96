package main

import (
	"time"
	"unicode/utf8"
)

// The JSON that --json prints and the control socket speaks. Its keys are a
// contract: none is renamed or removed, and none changes its meaning.

// statusJSON is the answer to `dmxfs status`.
type statusJSON struct {
	Mount   string `json:"mount"`
	Source  string `json:"source"`
	PID     int    `json:"pid"` // of the process that serves the mount
	Version string `json:"version"`
	// VersionSince is when this program began to serve the mount: later than the
	// mount was made if the daemon was upgraded.
	VersionSince time.Time `json:"version_since"`
	Epoch        uint64    `json:"epoch"`
	State        string    `json:"state"`
	Members      int       `json:"members"`
	Held         int       `json:"held"`
	Waiting      int       `json:"waiting"`
	UptimeS      int64     `json:"uptime_s"`
	// Delegate: all other members have left the open locks of files that they
	// do not use to this node, since it opens many, until they use one.
	// DelegatesTo is the peer to which this one does that, or empty.
	Delegate    bool   `json:"delegate"`
	DelegatesTo string `json:"delegates_to"`

	Self     string `json:"self"`
	StateDir string `json:"state_dir"`
	FileID   string `json:"file_id"`
	// What the daemon uses: goroutines, open files, memory that is in use.
	Goroutines  int   `json:"goroutines"`
	OpenFiles   int   `json:"open_files"`
	MemoryBytes int64 `json:"memory_bytes"`
	// EngineLongestMS is the longest time for which all locks of this host had to
	// wait for one, since the daemon began.
	EngineLongestMS float64 `json:"engine_longest_ms"`

	Healthy  bool     `json:"healthy"` // locks can be had, and nothing is wrong
	Problems []string `json:"problems"`
}

// peersJSON is the answer to `dmxfs peers`.
type peersJSON struct {
	Epoch   uint64     `json:"epoch"`
	Self    string     `json:"self"`
	Members []peerJSON `json:"members"`

	Joining []joinerJSON   `json:"joining"`
	Gone    []departedJSON `json:"gone"`    // since this daemon began
	Revoked []string       `json:"revoked"` // IDs
}

// joinerJSON is a node that wants to join.
type joinerJSON struct {
	ID    string   `json:"id"`
	Host  string   `json:"host"`
	Addrs []string `json:"addrs"`
	State string   `json:"state"` // joining or refused
}

// departedJSON is a former member.
type departedJSON struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	State string    `json:"state"` // left or expelled
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
}

type peerJSON struct {
	ID          string   `json:"id"`
	Host        string   `json:"host"`
	Addrs       []string `json:"addrs"`
	State       string   `json:"state"`
	RTTMS       *float64 `json:"rtt_ms"` // null: of this node itself, or not known yet
	Incarnation string   `json:"incarnation"`

	LastHeardMS *int64 `json:"last_heard_ms"`
	Connected   bool   `json:"connected"`
	Version     string `json:"version"`
}

// lockJSON is one row of `dmxfs locks`.
type lockJSON struct {
	Path      string    `json:"path"`
	Class     string    `json:"class"`
	Mode      string    `json:"mode"`
	Start     uint64    `json:"start"`
	End       int64     `json:"end"` // first byte behind the range; -1: to the end of the file
	State     string    `json:"state"`
	Node      string    `json:"node"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Command   string    `json:"command"`
	UID       uint32    `json:"uid"`
	Since     time.Time `json:"since"`
	Epoch     uint64    `json:"epoch"`
	Algorithm string    `json:"algorithm"`
	Token     uint64    `json:"token"`
	WaitsFor  []waitFor `json:"waits_for"`

	File    string `json:"file"` // identity of the file, the same on every host
	Request uint64 `json:"request"`

	// Use is how an open lock that is held is used: unused, section, stream or
	// shared (it lets others read), see docs/storage.md; else it is empty.
	// IdleSince is when it was used last.
	Use       string     `json:"use"`
	IdleSince *time.Time `json:"idle_since"`

	// PathBytes and FileBytes are there only when Path and File are not UTF-8, and so
	// can't be told by those (base64).
	PathBytes []byte `json:"path_bytes,omitempty"`
	FileBytes []byte `json:"file_bytes,omitempty"`
}

// toSend is l such that JSON loses nothing of it.
func (l lockJSON) toSend() lockJSON {
	l.PathBytes, l.FileBytes = nil, nil
	if !utf8.ValidString(l.Path) {
		l.PathBytes = []byte(l.Path)
	}
	if !utf8.ValidString(l.File) {
		l.FileBytes = []byte(l.File)
	}
	return l
}

// received has in Path and File what the sender had there. Who compares them with those
// of locks of this node, or with what a user has typed, needs that.
func (l *lockJSON) received() {
	if l.PathBytes != nil {
		l.Path = string(l.PathBytes)
	}
	if l.FileBytes != nil {
		l.File = string(l.FileBytes)
	}
}

func allReceived(list []lockJSON) {
	for i := range list {
		list[i].received()
	}
}

// asReceived is a text as it is in JSON that another program has sent.
func asReceived(s string) string { return string([]rune(s)) }

// locksAnswer is what the socket answers for locks: the rows, and the members
// that did not answer.
type locksAnswer struct {
	Locks   []lockJSON `json:"locks"`
	Missing []string   `json:"missing"`
}

// waitFor is a lock in the way of a waiting one.
type waitFor struct {
	Node    string `json:"node"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// policyJSON is the answer to `dmxfs policy show`.
type policyJSON struct {
	Epoch uint64     `json:"epoch"`
	Hash  string     `json:"hash"` // empty: there are no rules
	Rules []ruleJSON `json:"rules"`
	// Default is what holds for files that no rule matches.
	Default ruleJSON `json:"default"`
	TOML    string   `json:"toml"` // as a policy file
}

// ruleJSON is a rule with what its keys amount to on this mount.
type ruleJSON struct {
	Rule      int    `json:"rule"` // from 1; 0: none
	Path      string `json:"path"`
	Algorithm string `json:"algorithm"`
	Exclusive bool   `json:"exclusive"`
	Open      string `json:"open"`  // lock or off
	Yield     string `json:"yield"` // a duration or never
	Scope     string `json:"scope"` // node or process
	Wait      string `json:"wait"`  // a duration or none
}

// checkJSON is the answer to `dmxfs policy check`.
type checkJSON struct {
	File string `json:"file"` // relative to the root
	ruleJSON
}
