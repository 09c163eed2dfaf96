package fusefs

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// closings closes descriptors in the background. With the last one of a file
// that was removed its blocks are freed, which for a large file takes as long
// as a disk takes. The FORGET that brings it about would hold up requests that
// come after it, see readers. The zero value is ready.
type closings struct {
	mu   sync.Mutex
	fds  []int
	done chan struct{} // closed when all are; nil while there are none
}

// maxClosings is how many descriptors wait to be closed. Those beyond are
// closed at once: so programs that remove files faster than the storage frees
// them are slowed down, and the limit of open files is not reached.
const maxClosings = 256

// add takes fd.
func (c *closings) add(fd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fds) >= maxClosings {
		unix.Close(fd)
		return
	}
	c.fds = append(c.fds, fd)
	if c.done == nil {
		c.done = make(chan struct{})
		go c.run() // until there are none; see wait
	}
}

func (c *closings) run() {
	for {
		c.mu.Lock()
		fds := c.fds
		c.fds = nil
		if len(fds) == 0 {
			close(c.done)
			c.done = nil
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}

// pending is closed when all that is to be closed now is; nil if that is nothing.
func (c *closings) pending() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// wait waits until all is closed that is to be closed now, for some seconds at
// most. It reports whether there was something, and it was closed.
func (c *closings) wait(cancel <-chan struct{}) bool {
	closed := c.pending()
	if closed == nil {
		return false
	}
	select {
	case <-closed:
		return true
	case <-cancel:
	case <-time.After(freeingTime):
	}
	return false
}

// freeingTime is how long a call waits for space that is being freed.
const freeingTime = 5 * time.Second

// spaceFreed is asked after a call that has failed with err. If the storage has
// no space left, but some is being freed, it waits for that and reports that
// the call should be made once more: a program that has just removed a file
// counts on its space.
// REQUIRES: the caller is not admitted to any file.
func (f *fileSystem) spaceFreed(cancel <-chan struct{}, err error) bool {
	return (err == unix.ENOSPC || err == unix.EDQUOT) && f.tree.closings.wait(cancel)
}
