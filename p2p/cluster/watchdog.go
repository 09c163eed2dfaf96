package cluster

import (
	"errors"
	"time"
)

const (
	// engineLimit is how long the engine may take for one thing, in time that
	// this process was awake. Ordinary ones take milliseconds.
	engineLimit = 10 * time.Second
	// pingEvery is how often the engine is asked to show that it turns.
	pingEvery = time.Second
	// endPatience is how long Run waits, at its end, for the state directory.
	endPatience = 5 * time.Second
)

// ErrStuck ends Run: the engine has not made a turn for too long. The locks of
// this node stay where they are until the others have dropped it. The process
// has to end, since nothing of the engine can be trusted to return.
var ErrStuck = errors.New("the lock engine does not turn any more: the process has to end, and the other members go on without it")

// watchdog notices that the engine is stuck. Without it a node whose engine
// has a deadlock would go on to promise, and keep its locks for ever.
//
// It counts ticks and reads no clock: of the time in which the whole process
// was stopped nothing is the engine's fault.
type watchdog struct {
	serial uint64 // what the engine was busy with at the last tick
	busy   int64  // ms of ticks since it began with that
	idle   int64  // ms of ticks since it was asked last
}

// watch is called at every tick, of that many milliseconds. It reports that
// the engine is stuck.
func (w *watchdog) watch(q *queue, tick int64, ping func()) (stuck bool) {
	serial, busy := q.at()
	switch {
	case busy && serial == w.serial:
		w.busy += tick
	case busy:
		w.serial, w.busy = serial, 0
	default:
		w.busy = 0
		if w.idle += tick; w.idle >= pingEvery.Milliseconds() {
			w.idle = 0
			q.put(ping)
		}
	}
	return w.busy >= engineLimit.Milliseconds()
}
