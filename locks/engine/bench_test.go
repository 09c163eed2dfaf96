package engine

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
)

// nothing is the surroundings of an engine that measure nothing of their own.
type nothing struct{}

func (nothing) Send(locks.Epoch, locks.NodeID, []byte) {}
func (nothing) Flush(locks.Key) error                  { return nil }
func (nothing) Refresh(locks.Key) error                { return nil }
func (nothing) Expelled()                              {}
func (nothing) Record(Event)                           {}
func (nothing) Healthy() error                         { return nil }

// BenchmarkLock is a lock that this node has the permission for, and its unlock.
func BenchmarkLock(b *testing.B) { benchmarkLock(b, nil) }

// BenchmarkLockWithLedger is the same, written down for a process that comes after.
func BenchmarkLockWithLedger(b *testing.B) { benchmarkLock(b, withLedger) }

// withLedger has an engine keep one, of the size that daemons have.
func withLedger(tb testing.TB, o *Options) {
	tables, err := shm.Create("test", 1, ledgerForm(0))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tables.Close() })
	o.Ledger = tables
}

func benchmarkLock(b *testing.B, tune func(testing.TB, *Options)) {
	for _, c := range []locks.Class{locks.Flock, locks.Posix, locks.Open} {
		b.Run(c.String(), func(b *testing.B) {
			e := tuned(b, 1, tune)
			r := req(c, 1, locks.Write, locks.Whole)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Lock(nil, r); err != nil {
					b.Fatal(err)
				}
				if c == locks.Open {
					e.UnlockHandle(r.Key, r.Handle, "closed")
				} else {
					e.Unlock(r.Key, r.Owner, r.Range)
				}
			}
		})
	}
}
