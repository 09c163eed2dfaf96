package member

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// Op is an operation on the shared storage. The machine has at most one under
// way; each may take for ever. Package register carries them out.
type Op interface {
	isOp()
	String() string
}

// ErrExists: a link failed because its name exists.
var ErrExists = errors.New("view exists")

// LookOp looks at the directory of views.
type LookOp struct {
	// Known: views up to this epoch need not be read.
	Known locks.Epoch
	// Linked is the newest view that is known to be linked, also from before this
	// process. If the listing shows none as new, the look fails unless the name is
	// certain not to be there: a listing can leave out what cannot be seen just now.
	Linked locks.Epoch
	// Asks: the questions of newcomers are of interest.
	Asks bool
	// For, if not zero, is the newcomer whose answers are of interest.
	For Node
}

// LinkOp gives a view its name, if no file has it. The file has its whole
// content before it has its name.
type LinkOp struct {
	View *View
	File []byte // of View
	// Claim, if not empty, are this node, at the end, and those that have claimed
	// the same place before it. The driver keeps them for the node that this process
	// succeeds, in place of what it had kept for that, before it tries the link:
	// should this process be killed in between, the next one is given them as
	// [Heir.Claimed]. If they cannot be kept nothing is linked, and that is the result.
	Claim []Node
}

// AskOp puts a newcomer's question where the members see it.
type AskOp struct{ Challenge Challenge }

// AnswerOp answers one. The driver may fill in Answer.Tried.
type AnswerOp struct{ Answer Answer }

// UnaskOp removes the question of a node, and the answers to it. One that is
// not Own is named by its peer alone.
type UnaskOp struct {
	Node Node
	Own  bool
}

// PruneOp removes views below Below, and old files that nobody needs.
type PruneOp struct{ Below locks.Epoch }

func (LookOp) isOp()   {}
func (LinkOp) isOp()   {}
func (AskOp) isOp()    {}
func (AnswerOp) isOp() {}
func (UnaskOp) isOp()  {}
func (PruneOp) isOp()  {}

func (o LookOp) String() string   { return fmt.Sprintf("look above %d", o.Known) }
func (o LinkOp) String() string   { return "link " + o.View.String() }
func (o AskOp) String() string    { return fmt.Sprintf("ask %v", o.Challenge) }
func (o AnswerOp) String() string { return fmt.Sprintf("answer %v", o.Answer) }
func (o UnaskOp) String() string  { return "unask " + o.Node.Peer }
func (o PruneOp) String() string  { return fmt.Sprintf("prune below %d", o.Below) }

// Look is what a look saw. All of it is from one listing and the files in it.
type Look struct {
	// Began is the time (CLOCK_BOOTTIME) before the directory was opened. A
	// later time breaks the exclusion.
	Began int64
	// Newest is the greatest epoch in the listing, 0 if there is no view.
	Newest locks.Epoch
	// View is the newest view that could be read, nil if none above
	// LookOp.Known could. If it is not Newest, Bad says why that was not it.
	View *View
	// Bad wraps ErrUnreadable, ErrNewer or ErrForeign; nil if Newest was
	// read, or did not have to be.
	Bad error
	// Stray, if not 0, is the greatest number in the listing that is out of reach of
	// all views and whose file is none. It is as if it were not there.
	Stray locks.Epoch
	// Known: the name of the view LookOp.Known is in the listing.
	Known bool
	// Hidden: the listing shows no view as new as LookOp.Linked, and lacks the name
	// of that, but a file has it. So the listing is not whole, or is of before.
	Hidden bool
	// Asks are the questions of newcomers, if LookOp.Asks; Answers those to
	// LookOp.For.
	Asks    []Challenge
	Answers []Answer
}

func (l Look) String() string {
	s := fmt.Sprintf("began=%d newest=%d", l.Began, l.Newest)
	if l.View != nil {
		s += " view " + l.View.String()
	}
	if l.Bad != nil {
		s += " bad: " + l.Bad.Error()
	}
	if !l.Known {
		s += " own view missing"
	}
	if l.Hidden {
		s += " listing not whole"
	}
	for _, a := range l.Asks {
		s += fmt.Sprintf(" ask %v", a)
	}
	for _, a := range l.Answers {
		s += fmt.Sprintf(" answer %v", a)
	}
	return s
}

// Challenge is a newcomer's question on the storage: "I reach none of you. Is
// anybody there?" It decides nothing; see package comment.
type Challenge struct {
	Node  Node        `json:"node"`
	Host  string      `json:"host"`
	Addrs []string    `json:"addrs"`
	Base  locks.Epoch `json:"base"`
	Nonce Inc         `json:"nonce"`
	// Own: the question is whether another process has the sender's identity,
	// which may ask at the same time. Nobody is to connect to the sender.
	Own bool `json:"own,omitempty"`
}

func (c Challenge) String() string { return fmt.Sprintf("%v base=%d", c.Node, c.Base) }

// Answer is a member's answer to a challenge: "we are."
type Answer struct {
	To    Node        `json:"to"`    // whose challenge it answers
	Nonce Inc         `json:"nonce"` // and which
	Node  Node        `json:"node"`
	Host  string      `json:"host"`
	Addrs []string    `json:"addrs"`
	Epoch locks.Epoch `json:"epoch"`
	Own   bool        `json:"own,omitempty"` // as in the challenge
	// Tried are the addresses of the newcomer that the member tried, and what
	// came of it.
	Tried []Tried `json:"tried"`
}

// Tried is the outcome of trying to reach an address.
type Tried struct {
	Addr  string `json:"addr"`
	Error string `json:"error"`
}

func (a Answer) String() string { return fmt.Sprintf("%v to %v", a.Node, a.To) }
