package fusefs

import (
	"sync"
	"sync/atomic"
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
	many atomic.Bool   // there are more than maxClosings; it changes under mu
	done chan struct{} // closed when all are; nil while there are none
	left bool          // see leave
}

// leave has descriptors stay open from now on: the process that goes on with the mount has
// been told of them, or is about to be. What it has not is closed by execve(2).
func (c *closings) leave() {
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
}

func (c *closings) isLeft() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// maxClosings is how many descriptors wait to be closed, see relieve.
const maxClosings = 256

// add takes fd. It waits for nothing: it is called with tree.mu held, by who calls
// relieve when that was given up, unless it may not wait.
func (c *closings) add(fd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return
	}
	c.fds = append(c.fds, fd)
	c.many.Store(len(c.fds) > maxClosings)
	if c.done == nil {
		c.done = make(chan struct{})
		go c.run() // until there are none; see wait
	}
}

// relieve closes descriptors itself while too many wait for that: so programs
// that remove files faster than the storage frees them are slowed down, and the
// limit of open files is not reached.
func (c *closings) relieve() {
	for c.many.Load() {
		c.mu.Lock()
		fd := -1
		if last := len(c.fds) - 1; last >= maxClosings {
			fd, c.fds = c.fds[last], c.fds[:last]
		}
		c.many.Store(len(c.fds) > maxClosings)
		c.mu.Unlock()
		closeFD(fd)
	}
}

func (c *closings) run() {
	for {
		c.mu.Lock()
		fds := c.fds
		c.fds = nil
		c.many.Store(false)
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
