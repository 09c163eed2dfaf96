package fusefs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// StateVersion is the version of what [Server.Export] gives and [Resume] takes.
// It changes with everything that is in the types here, and what it means.
const StateVersion = 3

// stateMagic begins a state: then come the version and the CRC-32C of the rest,
// each in 4 bytes, little-endian.
const stateMagic = "dmxfs-fs"

const stateHead = len(stateMagic) + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrStateVersion is the error of a state that another version has made.
var ErrStateVersion = errors.New("the state is of another version")

// saved is a mount at rest. Nodes are told by their IDs, and processes by their
// place in the list plus one; 0 is none. Times are on the server's clock.
type saved struct {
	Paths            bool   // locks go by path
	Start            int64  // of the server's clock, in ns, on CLOCK_MONOTONIC
	Asked, Answered  []byte // INIT
	Mount            savedMount
	Dev              int    // descriptor of the connection
	LastHandle       uint64 // and so on: counters
	LastNode         uint64
	LastOwner        uint64
	LastTask         uint64
	Turns            uint64
	Arrivals         uint64
	ExplicitArrivals uint64
	Arrived          bool // a lock has come here from another node
	Devices          []savedDevice
	Nodes            []savedNode
	Processes        []savedProcess
	Threads          []savedThread
	Handles          []savedHandle
	Dirs             []savedDir
	Records          []savedRecord
	Retries          []savedRetry
	Nested           []string
	LeaseHandle      locks.HandleID
	CachedNames      []savedLongCached
	CachedNodes      []savedLongCached
	CachedBy         []savedCachedBy
	Requests         []leftRequest
	Owed             []owedUnlock

	// killed: it was found in the ledger of a process that was. answers are what that
	// may have told the kernel.
	killed  bool
	unlocks uint64 // see lockRecords.unlocks
	answers []leftAnswer
}

type savedMount struct {
	Path   string
	ID     int
	Number string
	Helper bool
}

type savedDevice struct {
	Dev, Index uint64
	Path       string
	Warned     bool
}

type savedName struct {
	Dir  uint64
	Name string
}

type savedNode struct {
	ID       uint64
	Key      fileKey
	Primary  bool // it is the one that tree.byKey has
	Kind     uint32
	FD       int
	Cluster  int64
	Spare    bool
	Lookups  uint64
	Names    []savedName
	Path     string // of one that has no name
	File     string
	Replaced bool
	Sole     savedSole

	Failures, PageFailures uint64
	Error                  unix.Errno
	Told, Owed             bool

	AppendEnd int64
	Appended  []savedPiece

	Cached, AttrTold, LongCached bool
	ToldAt                       int64
	Filled, Empty                uint64
	Version, TheyKnow            version
	Sizes                        toldSizes
	Bounds                       savedBounds
	Made                         int64
	Rereads                      bool // a READ is made again, as Rereading says
	Rereading                    savedRereading
	Answers                      []savedAnswer
}

type savedSole struct {
	Known, Spoiled bool
	St             unix.Stat_t
	Reopened       uint64
}

type savedPiece struct{ Off, Size int64 }

type savedBounds struct{ Least, Most, Late int64 }

type savedRereading struct {
	TID     uint32
	At      int64
	Request uint64
}

type savedAnswer struct {
	Request uint64
	TID     uint32
	Size    int64
	At      int64
}

type savedProcess struct {
	PID     int
	Owner   locks.OwnerID
	Name    string
	Self    bool // it locks for itself
	UpKnown bool
	Up      int
	Depth   int
}

type savedThread struct {
	TID     uint32
	Comm    int
	Process int
	Leader  bool
	Task    uint64
}

type savedHandle struct {
	ID, Node uint64
	FD       int
	Flags    int
	Process  int
	// How it was opened.
	Write, Appends, Mixed bool

	State openState // openIdle or openShared with Asks
	// Asks: it waits for its open lock. Again is as lockLater has it.
	Asks, Again              bool
	Request                  locks.Request
	Yields                   yields
	UntilClose, Alone        bool
	Stream, Shared           bool
	Tenure                   locks.Tenure
	Token                    locks.Token
	AloneSince               uint64 // process.alone, plus one; 0: it is not there
	Lost, Wrote              bool
	Touched, Fresh           bool
	SoleFile                 bool
	Knows, Filled            uint64
	Used, Dropped            int64
	FlockedBefore, PosixUsed bool
}

type savedDir struct {
	ID, Node uint64
	FD       int
	Rest     []byte
	Next     uint64
	Read     bool
	Lists    bool // the kernel may list from its pages
	// Of the program that has opened it.
	UID, GID, PID uint32
}

type savedRecord struct {
	Node    uint64
	Class   locks.Class
	Owner   locks.OwnerID
	Handle  uint64
	Process int
	Ranges  []locks.Range
	Tenure  locks.Tenure
	Token   locks.Token
	Turn    uint64
	first   uint64 // 0: it is not known
}

type savedRetry struct {
	TID      uint32
	Flags    uint32
	At       int64
	Truncate bool
}

type savedLongCached struct {
	Dir     uint64
	Name    string
	Node    uint64
	Listing bool
	At      int64
}

type savedCachedBy struct {
	TID uint32
	At  int64
}

// encode is the state, and the descriptors that it names.
func (s *saved) encode() (state []byte, fds []int) {
	c := &codec{b: make([]byte, stateHead, 1<<16)}
	s.code(c)
	b := c.b
	copy(b, stateMagic)
	binary.LittleEndian.PutUint32(b[len(stateMagic):], StateVersion)
	binary.LittleEndian.PutUint32(b[len(stateMagic)+4:], crc32.Checksum(b[stateHead:], castagnoli))
	return b, c.fds
}

// decode undoes encode; fd is what has become of a descriptor.
func decode(b []byte, fd func(old int) int) (*saved, error) {
	if len(b) < stateHead || string(b[:len(stateMagic)]) != stateMagic {
		return nil, errors.New("it is no state of a mount")
	}
	if v := binary.LittleEndian.Uint32(b[len(stateMagic):]); v != StateVersion {
		return nil, fmt.Errorf("%w: %d, and this program has %d", ErrStateVersion, v, StateVersion)
	}
	if crc32.Checksum(b[stateHead:], castagnoli) != binary.LittleEndian.Uint32(b[len(stateMagic)+4:]) {
		return nil, errors.New("the state is damaged: its checksum is another one")
	}
	c, s := &codec{b: b[stateHead:], reading: true, take: fd}, new(saved)
	s.code(c)
	if c.err == nil && len(c.b) > 0 {
		c.err = errors.New("the state is longer than it should be")
	}
	if c.err != nil {
		return nil, c.err
	}
	return s, s.check()
}
