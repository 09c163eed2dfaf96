package engine

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// LedgerView is the view of which a ledger says what its process held.
type LedgerView struct {
	Self   locks.NodeID // the process
	Epoch  locks.Epoch
	Tenure locks.Tenure
}

// ErrViewOver is the error of a ledger whose process the others have dropped since: all
// that it held may be somebody else's.
var ErrViewOver = errors.New("the others have dropped the daemon that was killed")

// ReadLedgerView is the view of a ledger; the error is [ErrNoTenure] if it names none.
func ReadLedgerView(from LedgerReader) (x LedgerView, err error) {
	rd := &ledgerReading{from: from, at: from.Clock(), l: &legacy{}}
	if err := rd.node(); err != nil {
		return x, fmt.Errorf("what the daemon has left of its locks: %w", err)
	}
	return LedgerView{rd.l.self, rd.l.epoch, rd.l.tenure}, nil
}

// Check is nil if the ledger is good while v is the view: its process is a member of v,
// so no view has gone on without what it had to say. v may be a later one than that of
// the ledger, which waits for that; an earlier one was put in the place of one that is
// damaged. That v is the view somebody has to see to until the successor is a member.
func (x LedgerView) Check(v *locks.View) error {
	switch {
	case v.Index(x.Self) < 0:
		return fmt.Errorf("%w: %s is not a member at epoch %d", ErrViewOver, x.Self, v.Epoch)
	case v.Epoch < x.Epoch:
		return fmt.Errorf("%w: it was a member at epoch %d, and this is epoch %d", ErrViewOver, x.Epoch, v.Epoch)
	}
	return nil
}
