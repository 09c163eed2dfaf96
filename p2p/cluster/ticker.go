package cluster

import "time"

// ticker is a time.Ticker whose ticks a goroutine sends: nothing is done by who
// receives one that is due. Who receives from the channel of a timer that is due
// runs it, if nobody has waited for it; and in a bubble of testing/synctest the race
// detector of Go 1.26 breaks when another timer of the bubble runs meanwhile. That
// is so for a node that a test has stopped, and that goes on.
type ticker struct {
	c     chan struct{} // of one tick at most
	every time.Duration
	timer *time.Timer
}

func newTicker(every time.Duration) *ticker {
	c := make(chan struct{}, 1)
	return &ticker{c, every, time.AfterFunc(every, func() { c <- struct{}{} })}
}

// again has the next tick come. It is called once after each.
func (t *ticker) again() { t.timer.Reset(t.every) }

func (t *ticker) stop() { t.timer.Stop() }
