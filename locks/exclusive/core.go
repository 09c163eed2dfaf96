package exclusive

import (
	"cmp"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// A Core is an algorithm between nodes: one lock for the whole key, and at
// most one request of a node at a time. It never learns of tickets.
//
// Its methods speak and report through the [Site] that it was made with. None
// of them is called while the machine is frozen, but for Restore and those
// that only look.
type Core interface {
	// Request asks for the lock, with a stamp that this node has not used
	// before. The node has no open request and not the lock. When ask is not
	// 0, see Ask.
	Request(sn, ask uint64)
	// Ask is for a node with an open request: it wants to be told, by
	// Site.Deny of the same number, if a member that is to have the lock
	// before it comes to use it, or uses it now. Numbers rise.
	Ask(ask uint64)
	// Withdraw takes the open request back. The lock may still come.
	Withdraw()
	// Has reports whether this node has the lock.
	Has() bool
	// SN is the stamp of the open request, or of the one by which this node
	// has the lock; 0 if there is neither.
	SN() uint64
	// Wanted reports, of a node that has the lock, whether a member waits.
	Wanted() bool
	// Used is called when a ticket is held, and none was before: those that
	// asked are to be told. Site.Used is true from then on.
	Used()
	// Release gives the lock to who is next; with nobody there, to nobody.
	Release()
	// Expire gives back, or begins to give back, what this node has and does
	// not use. It has no open request.
	Expire()
	// Receive handles what the member with that index says. An error means
	// that it broke the protocol; nothing has changed then.
	Receive(from int, m locks.Message) error
	// Restore begins the epoch of the site's new view. Everything else is
	// over; holder has the lock by its request sn. It is -1 if nobody has.
	Restore(holder int, sn uint64)
	// Idle reports whether a core that is made anew, with a clock that is not
	// behind, would do as well.
	Idle() bool
	// Check returns an error if an invariant does not hold.
	Check() error
	// String is the whole state, in one line; parts are separated by "; ".
	String() string
}

// A Site is what a core knows of its node, and how it acts on it.
type Site struct {
	view  *locks.View
	self  int
	clock locks.Token
	seed  uint64
	out   *locks.Turn
	used  bool   // a ticket is held
	deny  uint64 // the largest number of Deny
}

// Self is the index of this node in the view, and N the number of members.
func (s *Site) Self() int { return s.self }

// N is the number of members.
func (s *Site) N() int { return len(s.view.Members) }

// Member is the ID of the member with that index.
func (s *Site) Member(i int) locks.NodeID { return s.view.Members[i] }

// Clock is Lamport's clock of this node; see the package comment.
func (s *Site) Clock() uint64 { return uint64(s.clock) }

// Tick advances the clock and returns it: a number that this node has not used
// before, and greater than all that it has heard of.
func (s *Site) Tick() uint64 {
	s.clock++
	return uint64(s.clock)
}

// Used reports whether a program of this node uses the lock: a ticket is held.
func (s *Site) Used() bool { return s.used }

// Seed decides where an algorithm leaves a choice open.
func (s *Site) Seed() uint64 { return s.seed }

// Send says m to a member, which is not this node.
func (s *Site) Send(to int, m locks.Message) {
	s.out.Send = append(s.out.Send, locks.Envelope{To: s.view.Members[to], Msg: &message{s.clock, m}})
}

// Enter reports that the lock has come to this node.
func (s *Site) Enter() { s.out.Stale = true }

// Leave reports that the lock goes from this node with this turn.
func (s *Site) Leave() { s.out.Handover = true }

// Deny reports that a member uses the lock, and did when it was asked for the
// ask-th time.
func (s *Site) Deny(ask uint64) { s.deny = max(s.deny, ask) }

// A Request is one request of one node: the time stamp of the papers. Nodes are
// given by their index in the view. The zero Request is none.
type Request struct {
	SN   uint64
	Node int
}

// None reports whether r is no request.
func (r Request) None() bool { return r.SN == 0 }

// Compare is negative if r precedes o: its stamp is smaller or, with equal
// stamps, its node.
func (r Request) Compare(o Request) int {
	return cmp.Or(cmp.Compare(r.SN, o.SN), cmp.Compare(r.Node, o.Node))
}

// Precedes reports whether r goes before o.
func (r Request) Precedes(o Request) bool { return r.Compare(o) < 0 }

// String is as in "<2,1.17>", node and stamp, as in the RCV paper.
func (r Request) String() string {
	if r.None() {
		return "none"
	}
	return fmt.Sprintf("<%d,%v>", r.Node, locks.Token(r.SN))
}

// Append adds the encoding of r to b.
func (r Request) Append(b []byte) []byte { return wire.Uint(wire.Uint(b, r.SN), uint(r.Node)) }

// maxNodes is more than there can be.
const maxNodes = 1 << 20

// ReadNode reads the index of a node.
func ReadNode(r *wire.Reader) int { return int(r.Max(maxNodes)) }

// ReadRequest reads a request, which is not none.
func ReadRequest(r *wire.Reader) Request {
	q := Request{SN: r.Uint(), Node: ReadNode(r)}
	if r.Err() == nil && q.None() {
		r.Failf("no request")
	}
	return q
}

// CheckRequest is an error if r cannot be a request of this epoch's members:
// of no member, or with a stamp from the future.
func (s *Site) CheckRequest(r Request) error {
	if r.None() || r.Node < 0 || r.Node >= s.N() {
		return fmt.Errorf("%v is of no member", r)
	}
	if r.SN > s.Clock() {
		return fmt.Errorf("%v is after the clock of who told of it", r)
	}
	return nil
}
