package engine

import (
	"time"
)

// alarm wakes Engine.Run, which sweeps.
type alarm struct {
	kick    chan struct{}
	sweepAt time.Time // when Run sweeps next, by itself
}

// set notes when Run sweeps next.
func (a *alarm) set(t time.Time) { a.sweepAt = t }

// wakeFor makes Run look for work at t at the latest. Most waits are over long
// before anything is due for them, and most sweeps would come in time anyway.
func (a *alarm) wakeFor(t time.Time) {
	if a.sweepAt.IsZero() || t.Before(a.sweepAt) {
		a.wake()
	}
}

// wake makes Run look for work.
func (a *alarm) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}
