package locks

import (
	"cmp"
	"fmt"
)

// NodeID names one incarnation of a member. It is compared and ordered, never
// parsed. A daemon that starts again has another one.
type NodeID string

// Epoch numbers a view. It only grows.
type Epoch uint64

// Class is the kind of call that a lock comes from.
type Class uint8

const (
	// Open is the lock that open(2) takes implicitly.
	Open Class = iota + 1
	// Flock is a lock of flock(2).
	Flock
	// Posix is a lock of fcntl(2): record locks and open file description locks.
	Posix
)

// Classes are all classes, in the order of their numbers.
var Classes = [...]Class{Open, Flock, Posix}

func (c Class) String() string {
	switch c {
	case Open:
		return "open"
	case Flock:
		return "flock"
	case Posix:
		return "posix"
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// ParseClass is the inverse of [Class.String].
func ParseClass(s string) (Class, error) {
	for _, c := range Classes {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown lock class %q (known: open, flock, posix)", s)
}

// Mode is what a lock allows: reading, beside other readers, or writing, alone.
type Mode uint8

const (
	Read  Mode = iota + 1 // R: shared
	Write                 // W: exclusive
)

func (m Mode) String() string {
	switch m {
	case Read:
		return "R"
	case Write:
		return "W"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Key names one lockable thing. It must be the same on every node.
type Key struct {
	// File identifies the file on the shared storage; see fusefs for how it
	// is made. It is opaque here.
	File string
	// Class keeps the three kinds of lock apart.
	Class Class
}

func (k Key) String() string { return k.Class.String() + ":" + k.File }

// Compare orders keys, so that iteration over them can be made repeatable.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.File, o.File); c != 0 {
		return c
	}
	return cmp.Compare(k.Class, o.Class)
}

// OwnerID tells owners of one key on one node apart: an open file description
// (flock, OFD), a process (fcntl) or a handle (open). Owners of two nodes are
// never the same, whatever their numbers.
type OwnerID uint64

// TicketID names a ticket. It is never used again on its node.
type TicketID uint64

// Stamp orders requests: the logical clock of Lamport, refined by a count of
// its own, as in the read/write clock stamp (SNw, SNr, site) of Liu et al.
type Stamp struct {
	SN   uint64
	Site NodeID
	N    uint64
}

// Compare is negative when s is earlier than o.
func (s Stamp) Compare(o Stamp) int {
	if c := cmp.Compare(s.SN, o.SN); c != 0 {
		return c
	}
	if c := cmp.Compare(s.Site, o.Site); c != 0 {
		return c
	}
	return cmp.Compare(s.N, o.N)
}

// IsZero reports whether s is no stamp at all.
func (s Stamp) IsZero() bool { return s == Stamp{} }

func (s Stamp) String() string { return fmt.Sprintf("%d.%s.%d", s.SN, s.Site, s.N) }

// Token is a fencing token. Of two grants of one key that conflict, the later
// one has the greater token, across epochs and restarts: the upper bits are the
// epoch of the grant, see [TokenFloor].
type Token uint64

const tokenCount = 40 // bits of a token below the epoch

// TokenFloor is less than every token that is granted in epoch e, and not less
// than any of an earlier one. An epoch holds 2^40 grants of one key, and there
// can be 2^24 epochs: at one view change a second, half a year without pause.
func TokenFloor(e Epoch) Token { return Token(e) << tokenCount }

// View is what a machine knows of the cluster: who is in it.
type View struct {
	Epoch   Epoch
	Self    NodeID
	Members []NodeID // sorted, each once, Self among them; never changed
}

// Index is the place of n among the members, or -1.
func (v *View) Index(n NodeID) int {
	for i, m := range v.Members {
		if m == n {
			return i
		}
	}
	return -1
}
