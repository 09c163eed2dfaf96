package main

import (
	"fmt"
	"sync"
	"time"

	"dmxfs/journal"
	"dmxfs/locks/engine"
	"dmxfs/p2p/member"
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

// damaged records that what was written under a lock is not all on the storage.
// It does not wait.
func (d *daemon) damaged(x engine.Damage) {
	name := x.Path
	if name == "" {
		name = x.Key.String()
	}
	r := journal.Record{Event: journal.Note, Path: x.Path, Key: x.Key, Peer: x.Node}
	if x.Err != nil {
		r.Reason = fmt.Sprintf("what was written under the lock of %s could not be written out before the lock was handed over: %v", name, x.Err)
	} else {
		host := string(x.Node)
		if n, err := member.ParseNode(x.Node); err == nil {
			host = n.Peer
		}
		r.Reason = fmt.Sprintf("%s could not write out what it wrote under the lock of %s; the first program here that gets the lock is told (EIO)", host, name)
	}
	d.damages.note(r.Reason, time.Now())
	d.journal.Append(r)
}
