package locktest

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// The file has a value per byte: the number of the last write to it. What a
// node reads and writes is its own copy; it writes out, and reads in again,
// only when the machine says so.

// storage is what all nodes share, and what it should be: truth is the last
// value that was written under a lock, wherever it is now.
type storage struct {
	stored, truth [bytesSeen]int
	writes        int
	writer        [bytesSeen]*node // who wrote the truth
}

// A cache is what a node has cached.
type cache struct {
	value [bytesSeen]int
	dirty [bytesSeen]bool
	// stale: to be read in again at the next grant. New: there was no machine
	// that could have said so.
	stale, fresh bool
	// read counts how often the cache was read in again; idle, how often
	// nothing had changed.
	read, idle int
}

// renew is for a node whose machine is new.
func (c *cache) renew() { c.stale, c.fresh = true, true }

// refresh reads the cache in again if it is stale.
func (c *cache) refresh(s *storage) {
	if !c.stale {
		return
	}
	c.writeOut(s)
	if !c.fresh {
		c.read++
		if c.value == s.stored {
			c.idle++
		}
	}
	c.value, c.stale, c.fresh = s.stored, false, false
}

func (c *cache) writeOut(s *storage) {
	for i := range c.dirty {
		if c.dirty[i] {
			s.stored[i], c.dirty[i] = c.value[i], false
		}
	}
}

func (or *oracle) writeOut(n *node) { n.data.writeOut(&or.data) }

// write is a write of n to all of r.
func (or *oracle) write(n *node, r locks.Range) {
	s := &or.data
	from, to := seen(r)
	s.writes++
	for i := from; i < to; i++ {
		s.truth[i], s.writer[i] = s.writes, n
		n.data.value[i], n.data.dirty[i] = s.writes, true
	}
}

// read checks what n sees of r.
func (or *oracle) read(n *node, r locks.Range) error {
	from, to := seen(r)
	for i := from; i < to; i++ {
		if got, want := n.data.value[i], or.data.truth[i]; got != want {
			return fmt.Errorf("byte %c is write %d, but the last one was %d", 'A'+i, got, want)
		}
	}
	return nil
}

// lose takes what n had not written out.
func (s *storage) lose(n *node) {
	for i, d := range n.data.dirty {
		if d {
			s.truth[i] = s.stored[i]
			n.data.dirty[i] = false
		}
	}
}
