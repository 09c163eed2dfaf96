package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/printing"
)

// logLongWaits logs each request of a program of this host that waits for
// longer than the threshold, with those who are in its way; and again when it
// has waited twice as long, and so on.
func (t *lockTable) logLongWaits(ctx context.Context, threshold time.Duration, log *slog.Logger) {
	if threshold <= 0 {
		return
	}
	tick := time.NewTicker(min(max(threshold/4, 50*time.Millisecond), time.Second))
	defer tick.Stop()
	next := map[uint64]time.Duration{} // by request: the wait to log at
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		waits := t.engine.LongWaits(threshold)
		due := map[uint64]bool{}
		still := make(map[uint64]time.Duration, len(waits))
		for _, w := range waits {
			waited, at := time.Since(w.Since), max(next[w.Request], threshold)
			if waited >= at {
				due[w.Request] = true
				for at <= waited {
					at *= 2
				}
			}
			still[w.Request] = at
		}
		next = still
		if len(due) > 0 {
			t.logWaits(ctx, due, log)
		}
	}
}

// mostWaits bounds what is logged at a time.
const mostWaits = 10

// logWaits logs the requests of this node that are in due and still wait.
func (t *lockTable) logWaits(ctx context.Context, due map[uint64]bool, log *slog.Logger) {
	logged := 0
	for _, l := range t.all(ctx, false).Locks {
		if l.Node != t.self || l.State != "waiting" || !due[l.Request] {
			continue
		}
		if logged++; logged > mostWaits {
			continue
		}
		log.Warn("a program waits long for a lock", "path", l.Path, "class", l.Class, "mode", l.Mode, "bytes", printing.Span(l.Start, l.End),
			"pid", l.PID, "command", l.Command, "waited", time.Since(l.Since).Round(time.Millisecond).String(), "holders", holdersText(l.WaitsFor))
	}
	if logged > mostWaits {
		log.Warn("more programs wait long for locks (see dmxfs locks)", "count", logged-mostWaits)
	}
}

// holdersText says in words who is in the way.
func holdersText(all []admin.Blocker) string {
	var out []string
	for i, w := range all {
		if i == 8 {
			out = append(out, fmt.Sprintf("and %d others", len(all)-i))
			break
		}
		if w.PID == 0 {
			out = append(out, "host "+w.Host)
		} else {
			out = append(out, fmt.Sprintf("process %d (%s) on host %s", w.PID, w.Command, w.Host))
		}
	}
	if len(out) == 0 {
		return "nobody: it waits for its turn"
	}
	return strings.Join(out, ", ")
}
