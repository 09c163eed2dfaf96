package admin

import (
	"time"
	"unicode/utf8"
)

// Status is the answer to `dmxfs status`.
type Status struct {
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

	// Takeover is whether another daemon could go on with all this; null: it is not to.
	Takeover *Takeover `json:"takeover"`

	Healthy  bool     `json:"healthy"` // locks can be had, and nothing is wrong
	Problems []string `json:"problems"`
}

// Takeover is whether another daemon could go on with what this one holds, if it was killed.
type Takeover struct {
	Possible   bool   `json:"possible"`
	Why        string `json:"why"`        // not
	Generation uint64 `json:"generation"` // of what it would go on with
	Count      int    `json:"count"`      // daemons that went on so since the mount was made
	LastMS     int64  `json:"last_ms"`    // for which no call was answered, the last time
}

// Peers is the answer to `dmxfs peers`.
type Peers struct {
	Epoch   uint64 `json:"epoch"`
	Self    string `json:"self"`
	Members []Peer `json:"members"`

	Joining []Joiner `json:"joining"`
	Gone    []Gone   `json:"gone"`    // since this daemon began
	Revoked []string `json:"revoked"` // IDs
}

// Joiner is a node that wants to join.
type Joiner struct {
	ID    string   `json:"id"`
	Host  string   `json:"host"`
	Addrs []string `json:"addrs"`
	State string   `json:"state"` // joining or refused
}

// Gone is a former member.
type Gone struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	State string    `json:"state"` // left or expelled
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
}

// Peer is a member.
type Peer struct {
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

// Lock is one row of `dmxfs locks`.
type Lock struct {
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
	WaitsFor  []Blocker `json:"waits_for"`

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

// The states of a lock.
const (
	Held    = "held"
	Waiting = "waiting"
	Cached  = "cached" // a node keeps it, and no program has it
)

// Name is the file's path, or what it is known by when the path is not known.
func (l *Lock) Name() string {
	if l.Path == "" {
		return l.File
	}
	return l.Path
}

// Same reports whether two rows are of one request, and of the same bytes of
// it.
func (l Lock) Same(m Lock) bool {
	return l.Node == m.Node && l.Request == m.Request && l.File == m.File && l.Class == m.Class && l.PID == m.PID && l.Start == m.Start
}

// Long reports whether l waits at now for as long as that.
func (l Lock) Long(now time.Time, that time.Duration) bool {
	return l.State == Waiting && now.Sub(l.Since) >= that
}

// ToSend is l such that JSON loses nothing of it.
func (l Lock) ToSend() Lock {
	l.PathBytes, l.FileBytes = nil, nil
	if !utf8.ValidString(l.Path) {
		l.PathBytes = []byte(l.Path)
	}
	if !utf8.ValidString(l.File) {
		l.FileBytes = []byte(l.File)
	}
	return l
}

// Received has in Path and File what the sender had there. Who compares them with those
// of locks of this node, or with what a user has typed, needs that.
func (l *Lock) Received() {
	if l.PathBytes != nil {
		l.Path = string(l.PathBytes)
	}
	if l.FileBytes != nil {
		l.File = string(l.FileBytes)
	}
}

// AllReceived has all of list as received.
func AllReceived(list []Lock) {
	for i := range list {
		list[i].Received()
	}
}

// AsReceived is a text as it is in JSON that another program has sent.
func AsReceived(s string) string { return string([]rune(s)) }

// Locks is the answer to `dmxfs locks`: the rows, and the members that did not
// answer.
type Locks struct {
	Locks   []Lock   `json:"locks"`
	Missing []string `json:"missing"`
}

// Blocker is in the way of a waiting lock: a program or, if PID is 0, a node.
type Blocker struct {
	Node    string `json:"node"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Policy is the answer to `dmxfs policy show`.
type Policy struct {
	Epoch uint64 `json:"epoch"`
	Hash  string `json:"hash"` // empty: there are no rules
	Rules []Rule `json:"rules"`
	// Default is what holds for files that no rule matches.
	Default Rule   `json:"default"`
	TOML    string `json:"toml"` // as a policy file
}

// Rule is a rule with what its keys amount to on this mount.
type Rule struct {
	Rule      int    `json:"rule"` // from 1; 0: none
	Path      string `json:"path"`
	Algorithm string `json:"algorithm"`
	Exclusive bool   `json:"exclusive"`
	Open      string `json:"open"`  // lock or off
	Yield     string `json:"yield"` // a duration or never
	Scope     string `json:"scope"` // node or process
	Wait      string `json:"wait"`  // a duration or none
}

// PolicyCheck is the answer to `dmxfs policy check`.
type PolicyCheck struct {
	File string `json:"file"` // relative to the root
	Rule
}

// BreakOrder says which locks to break, on which nodes, and why.
type BreakOrder struct {
	Locks  []Lock `json:"locks"`
	Reason string `json:"reason"`
}

// Broken is the answer to `dmxfs locks break`: which locks were broken,
// and what went wrong.
type Broken struct {
	Broken []Lock   `json:"broken"`
	Errors []string `json:"errors"`
}

// Rotated is the answer to `dmxfs secret rotate`.
type Rotated struct {
	Generation  uint64          `json:"generation"`
	Fingerprint string          `json:"fingerprint"`
	Members     []RotatedMember `json:"members"`
}

// RotatedMember is what became of a member. State is changed, or "not yet": it
// has the new secret, but did not say within ten seconds that it uses it.
type RotatedMember struct {
	ID    string `json:"id"`
	Host  string `json:"host"`
	State string `json:"state"`
}

// Secret is the answer to `dmxfs secret show`.
type Secret struct {
	Generation  uint64 `json:"generation"`
	Fingerprint string `json:"fingerprint"`
	Secret      string `json:"secret"`
}

// Upgrade tells of an upgrade of the daemon.
type Upgrade struct {
	Mount string `json:"mount"`
	// Order tells upgrades apart.
	Order string `json:"order"`
	// State is checked (nothing was to be done), running, done or failed; of a daemon that
	// goes on in the place of one that was killed it is taken_over, and Error says what was
	// lost. Empty: the daemon had no order, or is just taking over.
	State   string `json:"state"`
	From    string `json:"from"` // versions
	To      string `json:"to"`
	Program string `json:"program"`
	// File tells the file of the program from others, and Mounted when the mount was made:
	// what the daemon holds was not lost since, as long as that is the same.
	File    string `json:"file"`
	Mounted int64  `json:"mounted"` // ms since the host was booted
	// PauseMS is for how long no call of a program was answered, LocksMS for how long
	// no lock was granted. They are 0 until that is over.
	PauseMS int64  `json:"pause_ms"`
	LocksMS int64  `json:"locks_ms"`
	Error   string `json:"error"`
}

// UpgradeOrder says to which program a daemon is to be upgraded, or whether it could be.
type UpgradeOrder struct {
	Program string        `json:"program"` // empty: the file of this program, as it is now
	Check   bool          `json:"check"`
	Timeout time.Duration `json:"timeout"`
}

// The states of an upgrade.
const (
	UpgradeChecked = "checked"
	UpgradeRunning = "running"
	UpgradeDone    = "done"
	UpgradeFailed  = "failed"
	// UpgradeTakenOver is that of a daemon which goes on in the place of one that was killed.
	UpgradeTakenOver = "taken_over"
)
