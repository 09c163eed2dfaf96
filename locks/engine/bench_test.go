package engine

import (
	"testing"

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
func BenchmarkLock(b *testing.B) {
	for _, c := range []locks.Class{locks.Flock, locks.Posix, locks.Open} {
		b.Run(c.String(), func(b *testing.B) {
			e := costly(b, 1)
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
