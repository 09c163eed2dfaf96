package fusefs

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// From the answers to SETATTR (chmod(2), chown(2), utimensat(2)) and CREATE the kernel
// takes over the size when the program that asked gets to run, whatever it has taken
// over meanwhile: no notification makes it ignore that. If another host has
// changed the size, and the lock has come here, a read(2) of the new holder could
// end at the old one. So whoever is told a size so is remembered, and a lock that
// comes here waits until those who were told another one have gone on.

// sizeAnswer is such an answer. Guarded by nodeCache.cacheMu.
type sizeAnswer struct {
	request uint64
	tid     uint32
	size    int64 // that it tells; unknownSize before it is found out
	at      int64 // when it was begun, on the server's clock
}

const unknownSize = -1

// answerSize is answerAttr for SETATTR.
func (c *attrCache) answerSize(n *node, in *fuse.InHeader, out *fuse.AttrOut) fuse.Status {
	return c.remembered(n, in, &out.Attr, func() fuse.Status { return c.answerAttr(n, out, true) })
}

// remembered calls tell, which finds out the size of n, and remembers who is told it
// in out. Nothing but the storage is waited for until the answer is out.
func (c *attrCache) remembered(n *node, in *fuse.InHeader, out *fuse.Attr, tell func() fuse.Status) fuse.Status {
	if !n.isRegular() {
		return tell()
	}
	a := &sizeAnswer{request: in.Unique, tid: in.Pid, size: unknownSize, at: c.now()}
	n.cacheMu.Lock()
	if n.answers == nil {
		n.answers = make(map[*sizeAnswer]struct{})
	}
	for old := range n.answers {
		if old.tid == a.tid && (a.tid != 0 || !c.conn.readers.serves(old.request)) || c.isOver(old) {
			delete(n.answers, old) // its thread has gone on, as far as is known
		}
	}
	n.answers[a] = struct{}{}
	n.cacheMu.Unlock()
	st := tell()
	n.cacheMu.Lock()
	if a.size = int64(out.Size); !st.Ok() {
		delete(n.answers, a)
	}
	n.cacheMu.Unlock()
	if st.Ok() {
		c.noteSize(n, a)
	}
	return st
}

// noteSize notes that a is about to be told of n.
func (c *attrCache) noteSize(n *node, a *sizeAnswer) {
	m := c.conn.requests
	if m == nil || a.tid == 0 {
		return
	}
	over := func(tid uint32, at int64) bool {
		return c.now()-at > takenOver || c.procs.hasGoneOn(tid, new(progress))
	}
	// All that have a note need nothing but a processor to go on.
	for !m.sizes.put(n.id, a, over) && !closed(c.conn.dead) {
		time.Sleep(settleEvery)
	}
}

// noteSizes notes what another process has told, or the program before this one.
func (c *attrCache) noteSizes(n *node) {
	n.cacheMu.Lock()
	var all []sizeAnswer
	for a := range n.answers {
		all = append(all, *a)
	}
	n.cacheMu.Unlock()
	for i := range all {
		c.noteSize(n, &all[i])
	}
}

// isOver reports whether the kernel has taken over a by now, however busy the
// machine is.
func (c *attrCache) isOver(a *sizeAnswer) bool {
	return c.now()-a.at > takenOver && !c.conn.readers.serves(a.request)
}

// awaitSizes waits until those have gone on who were told, or are being told,
// another size of n than it has. n is as the last holder of the lock has left it.
func (c *attrCache) awaitSizes(n *node) {
	n.cacheMu.Lock()
	answers := slices.Collect(maps.Keys(n.answers))
	n.cacheMu.Unlock()
	for _, a := range answers {
		c.awaitSize(n, a)
	}
}

// settleEvery is how often it is looked whether a thread has gone on.
const settleEvery = 200 * time.Microsecond

func (c *attrCache) awaitSize(n *node, a *sizeAnswer) {
	var ran progress
	for waits := false; !c.isOver(a) && !closed(c.conn.dead); time.Sleep(settleEvery) {
		if !c.conn.readers.serves(a.request) {
			if !c.isOtherSize(n, a) {
				return
			}
			if c.procs.hasGoneOn(a.tid, &ran) {
				break
			}
		}
		if !waits {
			waits = true
			c.stats.Settles.Add(1)
		}
	}
	n.cacheMu.Lock()
	delete(n.answers, a)
	n.cacheMu.Unlock()
}

// isOtherSize reports whether a, which is out, tells another size than n has.
func (c *attrCache) isOtherSize(n *node, a *sizeAnswer) bool {
	n.cacheMu.Lock()
	size := a.size
	n.cacheMu.Unlock()
	c.tree.pin(n)
	defer c.tree.unpin(n)
	var st unix.Stat_t
	return unix.Fstat(c.tree.anchorOf(n), &st) != nil || st.Size != size
}

// progress is how a thread gets on that has been answered.
type progress struct {
	seen bool
	from uint64 // for how long it had run when it was seen first, in ns
}

// afterAnswer is much more than the kernel computes, for a program that has been
// answered, before it has taken over the answer: in ns.
const afterAnswer = uint64(time.Millisecond)

// goesOn reports whether a thread has gone on since it was answered, from its
// state and for how long it has run in all. The answer made it runnable; so one
// that sleeps has run since.
func (p *progress) goesOn(state string, ran uint64) bool {
	if state != "R" {
		return true
	}
	if !p.seen {
		p.seen, p.from = true, ran
	}
	return ran-p.from > afterAnswer
}

// hasGoneOn reports whether a thread has gone on since it was answered. One that
// cannot be seen, out of a container, is taken to.
func (ps *processes) hasGoneOn(tid uint32, p *progress) bool {
	if tid == 0 {
		return true
	}
	status, err := ps.status(tid)
	if err != nil {
		return true // it is no more
	}
	times, _ := ps.readAbout(tid, "schedstat")
	ran := uint64(0)
	if w := bytes.Fields(times); len(w) > 0 {
		ran, _ = strconv.ParseUint(string(w[0]), 10, 64)
	}
	return p.goesOn(statusWord(status, "State:"), ran)
}
