package daemon

import (
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/boottime"
)

// times are when a daemon that goes on had come how far, since the one before it was found
// dead.
type times struct {
	began int64 // in ms of CLOCK_BOOTTIME

	mu     sync.Mutex
	marked []marked
}

type marked struct {
	what  string
	after time.Duration
}

// mark notes that the daemon has come so far, and returns after what time.
func (t *times) mark(what string) time.Duration {
	after := time.Duration(boottime.Milliseconds()-t.began) * time.Millisecond
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marked = append(t.marked, marked{what, after})
	return after
}

// of is what mark has returned; 0 if it was not called.
func (t *times) of(what string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.marked {
		if m.what == what {
			return m.after
		}
	}
	return 0
}

// all are arguments of a line of the log, in the order in which it was marked.
func (t *times) all() (args []any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.marked {
		args = append(args, m.what+"_ms", m.after.Milliseconds())
	}
	return args
}
