package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/rw"
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
			e := New(Options{
				Transport: nothing{}, Files: nothing{}, Recorder: nothing{}, Log: slog.New(slog.DiscardHandler),
				Algorithms: map[string]*locks.Algorithm{"rw": &rw.Algorithm},
				Rule:       func(string) string { return "rw" },
				Live:       func(time.Duration) bool { return true },
			})
			e.Install(&locks.View{Epoch: 1, Self: "n0", Members: []locks.NodeID{"n0"}})
			if err := e.Sync("n0", 1, e.State()); err != nil {
				b.Fatal(err)
			}
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
