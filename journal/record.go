package journal

import (
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Record is one step of the life of a request, or one thing that befell the
// node. Fields that mean nothing for an event are zero.
//
// Strings longer than [MaxString] are cut there when the record is stored.
type Record struct {
	// Seq numbers the records of a journal. It orders them, whatever the wall
	// clock does, and only grows; it may have gaps. [Journal.Append] sets it.
	Seq uint64
	// Time is the wall clock's. Append sets it when it is zero.
	Time time.Time
	// Epoch is the one of the view that the step was taken in.
	Epoch locks.Epoch
	Event Event
	// Final: this Released ends its request. Other events do so or not by
	// themselves.
	Final bool
	// Request tells the requests of one run of the daemon apart; 0 when the
	// record is not about a request.
	Request uint64
	// Key is the file's identity and the class of the lock.
	Key locks.Key
	// Path is the file's, relative to the root of the shared directory.
	Path  string
	Mode  locks.Mode
	Range locks.Range
	// Algorithm is the one that serves the path.
	Algorithm string
	// Node is the node that the record is about. Append fills in the
	// journal's own node when it is empty.
	Node locks.NodeID
	// Peer is the other node concerned: whose answer is awaited, whose lock
	// led to a denial, who joined or left.
	Peer locks.NodeID
	// PID, UID and Command tell the program.
	PID     int
	UID     uint32
	Command string
	// Wait is how long the request had waited.
	Wait time.Duration
	// Messages is how many messages this node sent for it.
	Messages int
	// Reason tells why, for people.
	Reason string
	// Stamp is the logical time of the request.
	Stamp locks.Stamp
	// Token is the fencing token of a grant.
	Token locks.Token
}

// MaxString is the length in bytes, above which the strings of a record are
// cut. It is PATH_MAX of Linux, so no path is.
const MaxString = 4096

// ends reports whether r is the last record of its request.
func (r *Record) ends() bool { return r.Event.ends(r.Final) }

// endOfFile is the end of a range that has none.
const endOfFile = -1

// Start is the first byte of the range.
func (r *Record) Start() uint64 { return r.Range.Start }

// End is the byte after the range, or -1 when the range goes to the end of
// the file, wherever that will be.
func (r *Record) End() int64 {
	if r.Range.End >= locks.MaxOffset {
		return endOfFile
	}
	return int64(r.Range.End)
}
