package fusefs

import (
	"context"
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// refresh is [Server.Refresh]: it drops what is cached here when a lock of k
// arrives. Whose pages and attributes go is said by unprotected.concerned; names
// and what is kept for long go altogether.
func (c *coherence) refresh(k locks.Key) error {
	c.stats.Refreshes.Add(1)
	if d := c.redo.dropped; d != nil {
		<-d
	}
	now := time.Now()
	c.arrivals.last.Store(&now)
	if k.Class != locks.Open {
		c.arrivals.explicit.Add(1)
	}
	own, others := c.unprotected.concerned(k)
	defer c.tree.unpinAll(own, others)
	var failed error
	for _, ns := range [...][]*node{own, others} {
		for _, n := range ns {
			n.forgetVersion()
			if err := c.client.lookAgain(n); err != nil && failed == nil {
				failed = fmt.Errorf("look again at %q: %w", c.tree.pathTo(n), err)
			}
		}
	}
	// An answer to the kernel that was prepared before this is not to be kept:
	// either its maker sees the change, or what follows sees that there is
	// something to drop.
	c.arrivals.all.Add(1)
	for _, ns := range [...][]*node{own, others} {
		for _, n := range ns {
			if err := c.refreshPages(n); err != nil && failed == nil {
				failed = err
			}
		}
	}
	c.unprotected.forgot(own)
	c.unprotected.forgot(others)
	c.longCache.drop(context.Background())
	c.attrs.forgetTold()
	c.entries.expireEntries()
	return failed
}

// refreshPages makes the kernel forget what it has of n. Pages of a file that
// nobody has open are dropped by the next open, because its version is not known.
func (c *coherence) refreshPages(n *node) error {
	c.attrs.awaitSizes(n)
	opened := len(n.openHandles()) > 0
	if opened {
		if err := c.pages.dropPages(n); err != nil {
			return err
		}
	}
	c.attrs.dropOld(n)
	if opened && c.attrs.grow(n) {
		// What was read meanwhile may be of a file that was shorter still.
		return c.pages.dropPages(n)
	}
	return nil
}
