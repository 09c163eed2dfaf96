package systemtest

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// ledger is that of an engine, which outlives it. Its clock is that of the test.
type ledger struct {
	*shm.Tables
	dead atomic.Bool // the process was killed: nothing is written any more
}

// ledgerForm is that of engine.LedgerTables, for few records.
func ledgerForm() shm.Form {
	const most = 1 << 10
	f := shm.Form{Version: engine.LedgerVersion, Texts: most}
	for _, t := range engine.LedgerTables {
		f.Tables = append(f.Tables, shm.Spec{Words: t.Words, Texts: t.Texts, Max: min(t.Max, most)})
	}
	return f
}

// newLedger is an empty one. Who has it closes it when no goroutine of the engine is left.
func newLedger() *ledger {
	tables, err := shm.Create("test", 1, ledgerForm())
	if err != nil {
		panic(err)
	}
	return &ledger{Tables: tables}
}

func (l *ledger) close() {
	if l == nil {
		return
	}
	if err := l.Tables.Close(); err != nil {
		panic(err)
	}
}

func (l *ledger) Put(table int, words []uint64) (uint32, error) {
	if l.dead.Load() {
		return ^uint32(0), nil
	}
	return l.Tables.Put(table, words)
}

func (l *ledger) Set(table int, number uint32, words []uint64) error {
	if l.dead.Load() {
		return nil
	}
	return l.Tables.Set(table, number, words)
}

func (l *ledger) Delete(table int, number uint32) {
	if !l.dead.Load() {
		l.Tables.Delete(table, number)
	}
}

func (l *ledger) Clear() {
	if !l.dead.Load() {
		l.Tables.Clear()
	}
}

func (l *ledger) Text(s string) (uint64, error) {
	if l.dead.Load() {
		return 1, nil
	}
	return l.Tables.Text(s)
}

func (l *ledger) SetFull(why string) {
	if !l.dead.Load() {
		l.Tables.SetFull(why)
	}
}

func (l *ledger) Clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// left is what the next process finds in the ledger of p; nil if that is nothing.
func (p *proc) left() *legacy {
	fd, err := unix.FcntlInt(uintptr(p.ledger.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	tables, err := shm.Open(fd, 1, ledgerForm())
	if err != nil {
		unix.Close(fd)
		p.w.check.failf("the ledger of %s: %v", p.name, err)
		return nil
	}
	defer tables.Close()
	l, err := readLedger(&ledger{Tables: tables})
	switch {
	case errors.Is(err, engine.ErrNoTenure):
		return nil
	case err != nil:
		p.w.check.failf("the ledger of %s: %v", p.name, err)
		return nil
	}
	l.former = p
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	l.heir.Claimed = slices.Clone(p.host.claimed)
	return l
}

func readLedger(found *ledger) (*legacy, error) {
	v, err := engine.ReadLedgerView(found)
	if err != nil {
		return nil, err
	}
	of, err := member.ParseNode(v.Self)
	if err != nil {
		return nil, err
	}
	state, err := engine.ReadLedger(found)
	return &legacy{state: state, heir: &member.Heir{Of: of, Epoch: v.Epoch}}, err
}

// claims is cluster.Options.Claim.
func (p *proc) claims(by []member.Node) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.isAlive {
		return errors.New("killed")
	}
	p.host.claimed = by
	return nil
}
