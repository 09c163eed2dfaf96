package engine

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// LedgerView is the view of which a ledger says what its process held. It is good as long as
// that process is a member of the view of the cluster, also of a later one: no view has gone
// on without what it had to say. Who takes its place in the cluster has the members see to
// that.
type LedgerView struct {
	Self   locks.NodeID // the process
	Epoch  locks.Epoch
	Tenure locks.Tenure
}

// ReadLedgerView is the view of a ledger; the error is [ErrNoTenure] if it names none.
func ReadLedgerView(from LedgerReader) (x LedgerView, err error) {
	rd := &ledgerReading{from: from, at: from.Clock(), l: &legacy{}}
	if err := rd.node(); err != nil {
		return x, fmt.Errorf("what the daemon has left of its locks: %w", err)
	}
	return LedgerView{rd.l.self, rd.l.epoch, rd.l.tenure}, nil
}
