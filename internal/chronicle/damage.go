package chronicle

import (
	"fmt"
	"sync"
	"time"
)

// damages remembers what was not complete on the storage when its lock went to
// another host, for `dmxfs status`. The journal keeps it.
type damages struct {
	mu     sync.Mutex
	latest string
	at     time.Time
	count  int // since the last one that was shown no more
}

// damageShown is for how long it is a problem after the latest.
const damageShown = time.Hour

func (d *damages) note(what string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.at) > damageShown {
		d.count = 0
	}
	d.latest, d.at = what, now
	d.count++
}

// problem is what status says, or empty.
func (d *damages) problem(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 || now.Sub(d.at) > damageShown {
		return ""
	}
	return fmt.Sprintf("data is damaged, %d times in the last hours, at last %s ago: %s", d.count, now.Sub(d.at).Round(time.Second), d.latest)
}
