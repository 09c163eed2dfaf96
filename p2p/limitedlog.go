package p2p

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/gologshim"
)

const (
	logEvery = time.Minute // one line in so much time for each cause
	logKeys  = 1024        // causes that are told apart
)

// limitedLog is a logger that can also write one line a minute for each cause,
// so that a peer that tries again and again does not fill the log.
type limitedLog struct {
	*slog.Logger

	mu   sync.Mutex
	last map[string]*logged
}

type logged struct {
	at         time.Time
	suppressed int
}

func newLimitedLog(log *slog.Logger) *limitedLog {
	return &limitedLog{Logger: log, last: make(map[string]*logged)}
}

// warnOnce warns, unless the same cause was logged within the last minute. The
// next line of the cause tells how many were left out.
func (l *limitedLog) warnOnce(cause, msg string, args ...any) {
	if n, ok := l.due(cause, time.Now()); ok {
		if n > 0 {
			args = append(args, "suppressed", n)
		}
		l.Warn(msg, args...)
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

// LogLibraries sends what libp2p logs to log, all of it at level debug: what an
// operator should know is logged by this package, in words of its own. It
// concerns the whole process, and has no effect once libp2p has logged
// something. Without it libp2p writes its errors to standard error.
func LogLibraries(log *slog.Logger) {
	gologshim.SetDefaultHandler(quietHandler{log.Handler()})
}

// quietHandler turns every level into debug.
type quietHandler struct{ h slog.Handler }

func (q quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo && q.h.Enabled(ctx, slog.LevelDebug)
}

func (q quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.AddAttrs(slog.String("level_there", r.Level.String()))
	r.Level = slog.LevelDebug
	return q.h.Handle(ctx, r)
}

func (q quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{q.h.WithAttrs(attrs)}
}

func (q quietHandler) WithGroup(name string) slog.Handler { return quietHandler{q.h.WithGroup(name)} }
