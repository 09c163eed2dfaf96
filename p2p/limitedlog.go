package p2p

import (
	"log/slog"
	"sync"
	"time"
)

const (
	logEvery = time.Minute // one line in so much time for each cause
	logKeys  = 1024        // causes that are told apart
)

// limitedLog writes one line a minute for each cause, so that a peer that
// tries again and again does not fill the log.
type limitedLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]*logged
}

type logged struct {
	at         time.Time
	suppressed int
}

func newLimitedLog(log *slog.Logger) *limitedLog {
	return &limitedLog{log: log, last: make(map[string]*logged)}
}

// Warn logs msg unless the same cause was logged within the last minute. The
// next line of the cause tells how many were left out.
func (l *limitedLog) Warn(cause, msg string, args ...any) {
	if n, ok := l.due(cause, time.Now()); ok {
		if n > 0 {
			args = append(args, "suppressed", n)
		}
		l.log.Warn(msg, args...)
	}
}

func (l *limitedLog) due(cause string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.last[cause]
	switch {
	case e == nil && len(l.last) >= logKeys:
		for k, e := range l.last {
			if now.Sub(e.at) >= logEvery {
				delete(l.last, k)
			}
		}
		if len(l.last) >= logKeys { // somebody makes up causes: stay silent
			return 0, false
		}
	case e != nil && now.Sub(e.at) < logEvery:
		e.suppressed++
		return 0, false
	case e != nil:
		suppressed = e.suppressed
	}
	l.last[cause] = &logged{at: now}
	return suppressed, true
}
