package register

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Register is where views are decided. Its methods are called by one goroutine,
// one after another; each may block for any time.
type Register interface {
	// Look reads the listing and the newest view; see member.Look. The
	// caller sets Began.
	Look(op member.LookOp) (member.Look, error)
	// Link gives a view its name. The error wraps member.ErrExists if the
	// name is taken; after any error the view may have been linked, or be
	// linked later.
	Link(v *member.View, file []byte) error
	// Ask, Answer and Unask are for newcomers that reach no member.
	Ask(c member.Challenge) error
	Answer(a member.Answer) error
	Unask(op member.UnaskOp) error
	// Prune removes views below an epoch, but never the newest, and files
	// that were left behind.
	Prune(below locks.Epoch) error
}

// Do carries an operation of the machine out and returns its next input. Clock
// is CLOCK_BOOTTIME in milliseconds; it is read before a look begins.
func Do(r Register, op member.Op, clock func() int64) member.Done {
	d := member.Done{Op: op}
	switch op := op.(type) {
	case member.LookOp:
		began := clock()
		d.Look, d.Err = r.Look(op)
		d.Look.Began = began
	case member.LinkOp:
		d.Err = r.Link(op.View, op.File)
	case member.AskOp:
		d.Err = r.Ask(op.Challenge)
	case member.AnswerOp:
		d.Err = r.Answer(op.Answer)
	case member.UnaskOp:
		d.Err = r.Unask(op)
	case member.PruneOp:
		d.Err = r.Prune(op.Below)
	default:
		panic(fmt.Sprintf("unknown operation %T", op))
	}
	return d
}
