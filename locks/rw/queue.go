package rw

import (
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// A queue is a list of claims in the order of their ranks.
type queue []*claim

// find is the place of c, or where it would be.
func (q queue) find(c *claim) int {
	i, _ := slices.BinarySearchFunc(q, c, func(a, b *claim) int { return a.compare(&b.rank) })
	return i
}

func (q *queue) insert(c *claim) { *q = slices.Insert(*q, q.find(c), c) }

func (q *queue) remove(c *claim) {
	i := q.find(c)
	if (*q)[i] != c {
		panic("rw: a claim is not where its rank belongs")
	}
	*q = slices.Delete(*q, i, i+1)
}

// A line is the waiting tickets of a node, in the order of their ranks.
type line struct {
	queue
	owners map[locks.OwnerID]int // how many are of each owner
}

func (l *line) add(t *claim) {
	l.insert(t)
	if l.owners == nil {
		l.owners = map[locks.OwnerID]int{}
	}
	l.owners[t.owner]++
}

// leave takes a ticket off for good.
func (l *line) leave(t *claim) {
	l.remove(t)
	if l.owners[t.owner]--; l.owners[t.owner] == 0 {
		delete(l.owners, t.owner)
	}
}

// looks are the claims that are to be looked at.
type looks struct {
	owed, waiting agenda
	// changed are owners of what waits that hold more or less than when it
	// last looked.
	changed map[locks.OwnerID]struct{}
}

func (l *looks) add(c *claim) {
	if c.from != nil {
		l.owed.push(c)
	} else {
		l.waiting.push(c)
	}
}

func (l *looks) empty() bool { return len(l.owed)+len(l.waiting)+len(l.changed) == 0 }

// An agenda is a queue in reverse, so that the first is taken from the end.
type agenda []*claim

// push adds c unless it is there.
func (a *agenda) push(c *claim) {
	if c.queued {
		return
	}
	c.queued = true
	if n := len(*a); n == 0 || (*a)[n-1].compare(&c.rank) > 0 { // as touch does it
		*a = append(*a, c)
		return
	}
	i, _ := slices.BinarySearchFunc(*a, c, func(x, y *claim) int { return y.compare(&x.rank) })
	*a = slices.Insert(*a, i, c)
}

// pop takes the first, or nil.
func (a *agenda) pop() *claim {
	n := len(*a)
	if n == 0 {
		return nil
	}
	c := (*a)[n-1]
	(*a)[n-1] = nil
	*a = (*a)[:n-1]
	c.queued = false
	return c
}
