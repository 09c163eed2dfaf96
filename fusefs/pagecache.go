package fusefs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// pageCache is the pages that the kernel has of files: it makes it drop them.
type pageCache struct {
	*base
	unprotected *unprotected
}

// pageDrop is a notification by which the kernel drops the pages of a file.
type pageDrop struct {
	done   chan struct{} // closed when it is over
	wanted int           // by how many
}

// drops are those of one file: one at a time, since it may hang while a request
// is parked, and takes a thread; and behind it one for all who come meanwhile.
// Guarded by nodeCache.cacheMu.
type drops struct {
	now, next *pageDrop     // or nil
	none      chan struct{} // closed when there is none any more
}

// want returns a drop that begins after this call. With begins the caller makes
// it; otherwise who makes the one under way goes on with it, see over.
func (d *drops) want() (x *pageDrop, begins bool) {
	x = &pageDrop{done: make(chan struct{})}
	switch {
	case d.now == nil:
		d.now, d.none = x, make(chan struct{})
		return x, true
	case d.next == nil:
		d.next = x
	}
	d.next.wanted++
	return d.next, false
}

// leave is called when what x was wanted for is done. If it has not begun, and
// nobody else wants it, it never does: the kernel would be notified at any time, and
// ignore what it is being answered then.
func (d *drops) leave(x *pageDrop) {
	if x.wanted--; x.wanted == 0 && x == d.next {
		d.next = nil
		close(x.done)
	}
}

// over ends the one under way, and returns the one to make now, or nil.
func (d *drops) over() *pageDrop {
	if d.now, d.next = d.next, nil; d.now == nil {
		close(d.none)
	}
	return d.now
}

// startDrop makes the kernel write out and drop the pages of n, and forget its
// attributes. The result is done when that is over.
func (c *pageCache) startDrop(n *node) *pageDrop {
	c.stats.PageDrops.Add(1)
	n.cacheMu.Lock()
	d, begins := n.drops.want()
	// Not before: who finds that nothing is cached must find this drop.
	n.cached.Store(false)
	n.cacheMu.Unlock()
	if begins {
		c.background(func() { c.runDrops(n, d) })
	} else {
		n.attrForgotten()
		c.dev.forgetAttr(n.id) // which waits for nothing
	}
	return d
}

// runDrops makes d, and those that are wanted when it is over.
func (c *pageCache) runDrops(n *node, d *pageDrop) {
	for d != nil {
		filled := n.filled.Load()
		awaitEnds(c.base, n)
		n.attrForgotten()
		c.dev.forgetPages(n.id, 0, 0)
		n.empty.Store(filled)
		n.cacheMu.Lock()
		over := d
		d = n.drops.over()
		n.cacheMu.Unlock()
		close(over.done)
	}
}

// drop makes the kernel write out and drop the pages of n, and forget its
// attributes, and waits until that is done. What programs have changed is on the
// storage then, and nothing is left that was read before.
//
// A request that is parked does not hold it up, since the lock that it waits for
// may be one that is not granted before drop returns. drop skips its pages:
// nobody can have changed them, and they are filled from what is on the storage
// when it goes on. The kernel may lock more together than those pages; then drop
// ends with an error after roundTime.
func (c *pageCache) drop(n *node) error {
	d := c.startDrop(n)
	err := c.awaitDrop(n, d.done, nil)
	if err != nil {
		n.cached.Store(true) // to who comes next
		c.unprotected.noteKnown(n)
		return err
	}
	n.cacheMu.Lock()
	n.drops.leave(d)
	n.cacheMu.Unlock()
	return nil
}

// dropPages is drop if there may be pages, or somebody else is dropping them.
func (c *pageCache) dropPages(n *node) error {
	if n.cached.Load() {
		return c.drop(n)
	}
	return c.awaitDropping(n, nil)
}

// dropLogged is drop for who cannot wait until it has succeeded.
func (c *pageCache) dropLogged(n *node) {
	if err := c.drop(n); err != nil {
		c.log.Error("the kernel did not drop what it has cached of a file: programs here may read what is not true any more", "path", c.tree.pathTo(n), "err", err)
	}
}

const (
	// roundTime is much longer than to write the pages of a file out takes.
	roundTime = 10 * time.Second
	// truncateTime is how long a truncate(2) that waits may keep changed pages
	// from being written out.
	truncateTime = time.Second
)

// awaitDrop waits until done is closed, or what is not of parked requests has
// been dropped in another way; or until giveUp is closed, with EINTR.
func (c *pageCache) awaitDrop(n *node, done, giveUp <-chan struct{}) error {
	late := time.NewTimer(roundTime)
	defer late.Stop()
	var truncates <-chan time.Time
	for {
		parked, more, less := n.parking()
		if slices.ContainsFunc(parked, func(p parkedRequest) bool { return p.kind == parkedFile }) {
			// The kernel drops pages, but writes none out.
			if truncates == nil {
				truncates = time.After(truncateTime)
			}
			select {
			case <-done:
				return nil
			case <-giveUp:
				return unix.EINTR
			case <-more:
			case <-less:
			case <-truncates:
				n.letGoParked(func(p *parkedRequest) bool { return p.kind == parkedFile })
				truncates = nil
			case <-late.C:
				return c.notDropped(n)
			}
			continue
		}
		truncates = nil
		parked = slices.DeleteFunc(parked, func(p parkedRequest) bool { return p.kind == parkedAside })
		if len(parked) == 0 {
			select {
			case <-done:
				return nil
			case <-giveUp:
				return unix.EINTR
			case <-more:
			}
			continue
		}
		if over, err := c.dropAround(n, parked, done, giveUp, more, late.C); over {
			return err
		}
	}
}

func (c *pageCache) notDropped(n *node) error {
	return fmt.Errorf("the kernel does not let go of pages of %q while a program waits for another host: %w", c.tree.pathTo(n), unix.EIO)
}

// dropAround drops what is not of parked requests. It is not over if it has to
// be begun again, because there are others now.
func (c *pageCache) dropAround(n *node, parked []parkedRequest, done, giveUp, more <-chan struct{}, late <-chan time.Time) (over bool, err error) {
	parked = slices.DeleteFunc(parked, func(p parkedRequest) bool { return !c.isLocked(n, &p) })
	slices.SortFunc(parked, func(a, b parkedRequest) int { return cmp.Compare(a.off, b.off) })
	parked = append(parked, parkedRequest{}) // behind the last one
	off := int64(0)
	for i, p := range parked {
		if last := i == len(parked)-1; last || p.off > off {
			length := p.off - off
			if last {
				length = 0 // to the end
			}
			from, part := off, make(chan struct{})
			c.background(func() {
				defer close(part)
				n.notified.Add(1)
				c.dev.forgetPages(n.id, from, length)
			})
			select {
			case <-part:
			case <-done:
				return true, nil
			case <-giveUp:
				return true, unix.EINTR
			case <-more:
				return false, nil
			case <-late:
				return true, c.notDropped(n)
			}
		}
		off = max(off, p.end)
	}
	return true, nil
}

// awaitDropping is awaitDrop for what others are dropping.
func (c *pageCache) awaitDropping(n *node, giveUp <-chan struct{}) error {
	n.cacheMu.Lock()
	none, now := n.drops.none, n.drops.now
	n.cacheMu.Unlock()
	if now == nil {
		return nil
	}
	return c.awaitDrop(n, none, giveUp)
}
