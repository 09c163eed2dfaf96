package fusefs

import (
	"context"
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/locks"
)

// What a request of a process that was killed has done is found by what that has noted
// of it: its answer, which is written; or the change that was made, with its outcome,
// which is not made again whatever has happened since; or that a change was begun. Then
// the system call may have been made or not, and a kill in it is one at its end.
// Mostly it can simply be made again, by who still has the lock under which it was begun.
// Whether that is so is looked at when it is admitted (see heldThrough); if not it fails
// with EIO, as one whose wait for that ends.
//
// What cannot be made again is found out by what there is now, and what there was before:
//
//	made         nothing has the name: it is made again, as the storage decides. What
//	             has it is unchanged since before, or of another kind, or a symbolic
//	             link to elsewhere: EEXIST, by that. Without O_EXCL open(2) opens
//	             whatever has the name.
//	linked       the same; "of another kind" is: another file
//	removed,     the old name leads to the file, which is unchanged: it is made again. A
//	renamed      file of the same inode number that was made anew has changed later.
//	appended     the file is not longer than it was: it is made again. Under a lock that
//	             has held what stands there counts, as if no other host could have.
//	set          setxattr(2) with XATTR_CREATE finds no such attribute, or one with
//	             another value: it is made again. removexattr(2) finds one: the same.
//
// What looks done otherwise may have been done by another host: two would have made one lock
// file, or removed it. So all others are asked (Options.Others, package recent). If they, and
// this host's own memory, know of everything since the change was begun,
//
//	a name       was made, taken away or moved by it, or not, if there is no order in
//	             which all can have happened that anybody has seen, and it is otherwise.
//	             What it has made must be there still, look like it (of that kind, not older
//	             than the last change of the directory, with nothing in it, of that owner,
//	             with no more permissions), and be what is opened.
//	appended     and nobody has touched the file: it is done if what stands where the file
//	             ended is what was to be written. The same with attributes, and with names
//	             that change places.
//	written      and nobody has touched the file, where an explicit lock of the program has
//	             gone meanwhile: it is done if what was to be written stands there, and
//	             otherwise made again, within one page. A client of the storage that keeps
//	             data is made to look at it first.
//
// All are asked before it is admitted, so that nobody who is asked waits for it; and what there is
// is looked at by then. What says that the change can be made goes on saying it, whatever other
// hosts do until it is admitted; but for remote storage, whose server may still carry out what was
// sent: there it is looked at again. If it cannot be known, for askTime, the change fails with EIO,
// and the log names it.
//
// The process that finds this out may be killed, too, as any number after it. As long as it has
// not made the change again nothing is other than it was: what was noted when the change was
// begun is in the slot of the request still, and the next process asks by that. What is made again
// is begun anew, with what there is by then: so what has happened before counts no more, and what
// the first process had begun is one of the things that this host may have done before. What was
// found to be made is noted as that (Memory.Decide), and is not asked again.
//
// Locks do not help with names: a program that holds one may count on
// mkdir(2) against hosts that do not lock. That this process had a descriptor of what has
// the name now would not prove that it has made it: it may have closed that file, which
// another host has then renamed. Nor does a server that was asked to make a file by a
// call which is killed need to have given a descriptor.

// past is what another process has done of a request.
type past struct {
	phase   phase // phaseBegun or phaseMade
	step    step
	matched bool // its step has come
	decided bool // see redo
}

// stepOf tells the changes apart that one request makes.
func stepOf(c *change) (op uint32, off int64) {
	const offset, prime = 2166136261, 16777619 // FNV-1a
	op = offset
	for i := range len(c.op) {
		op = (op ^ uint32(c.op[i])) * prime
	}
	return op, c.off
}

// tracked is a change of which it is noted how far it has got.
type tracked struct {
	slot slot // none: it is not
	past *past
	// verdict is what is known of past by asking others; asked: of what is written there.
	verdict recent.Verdict
	asked   bool
}

func (f *fence) track(c *change) (t tracked) {
	if f.conn == nil || f.conn.requests == nil {
		return t
	}
	rs := f.conn.readers
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.serving[c.in.Unique]; r != nil {
		t.slot, t.past = r.slot, r.past
	}
	if t.past != nil && t.past.matched {
		t.past = nil
	}
	return t
}

// wasMade reports whether c was made by a process before this one, and with what outcome.
// What that says of the tenure holds for this one.
func (f *fence) wasMade(t *tracked, c *change) (yes bool, err error) {
	p := t.past
	if p == nil {
		return false, nil
	}
	op, off := stepOf(c)
	c.repeated = true
	if p.step.op != op || p.step.off != off {
		// A later one was begun, so this one had succeeded.
		if p.step.op == op {
			c.length = int(p.step.off - off)
		}
		return true, nil
	}
	p.matched = true
	if p.phase == phaseBegun {
		c.repeated = false
		return false, nil
	}
	f.redo.decide(p)
	c.length, c.partly = int(p.step.n), p.step.n > 0
	if c.fd != nil {
		*c.fd = int(p.step.fd) - 1
	}
	if p.step.errno != 0 {
		err = unix.Errno(p.step.errno)
	}
	if c.fd != nil && err == nil && *c.fd < 0 {
		err = c.reopen()
	}
	if err != nil && !c.partly {
		return true, err
	}
	if a := (admission{h: c.h, protected: p.step.protected != 0, tenure: locks.Tenure(p.step.tenure)}); !f.inTime(&a, c) {
		err = unix.EIO
	}
	return true, err
}

// findOut asks other hosts whether they have done what another process had begun for c, where
// what there is does not say. c is not admitted: another host may be waiting for a lock.
func (f *fence) findOut(t *tracked, c *change) {
	p := t.past
	if p == nil || p.phase != phaseBegun || c.data != nil && p.step.protected != 0 {
		return
	}
	f.asks(t, c, func(ctx context.Context) (recent.Verdict, error) {
		return f.evidence.find(ctx, c, &p.step, func() { f.conn.willWait(c.in.Unique) })
	})
	f.pointAt(c, atAsked)
}

// asks has the verdict be what find says, which is called until that is known or never will be.
func (f *fence) asks(t *tracked, c *change, find func(context.Context) (recent.Verdict, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		v, err := find(ctx)
		if t.verdict = v; err == nil || errors.Is(err, recent.ErrNever) {
			return
		}
		f.evidence.close(c)
		select {
		case <-ctx.Done():
			f.log.Warn("whether another host has done what this one had begun cannot be found out", "change", c.op, "err", err)
			return
		case <-time.After(pause):
		}
	}
}

// errNotHeld: what had protected a write has not done so all the time. It may be that another
// thread of its program has given up a lock that was not for this file.
var errNotHeld = errors.New("what protected a write that was begun has gone")

// findOutWritten is findOut for that. What was not written before can be now: the program has not
// been told that it was, so it may come after whatever others do with the lock that has gone.
func (f *fence) findOutWritten(t *tracked, c *change) {
	t.asked = true
	f.conn.willWait(c.in.Unique)
	f.asks(t, c, func(ctx context.Context) (recent.Verdict, error) { return f.evidence.written(ctx, c, &t.past.step) })
}

// do makes the system call of c, which is admitted as a says, and notes that before and
// after it.
func (f *fence) do(t *tracked, c *change, a *admission, call func() error) (err error) {
	s := &t.slot
	if s.slotHead == nil {
		u := f.touches.begin(c)
		err = call()
		f.touches.end(&u, c, err)
		return err
	}
	if t.past != nil {
		return f.doPast(t, c, call)
	}
	return f.doStep(s, c, f.newStep(c, a), nil, call)
}

// doStep is do with x as what is noted, in place of p, unless that is nil. What there is is looked
// at before the change is among those under way, so that a kill meanwhile leaves no doubt whether it
// was made.
func (f *fence) doStep(s *slot, c *change, x step, p *past, call func() error) error {
	before := s.phase.Load()
	x.began = recent.Now()
	x.was = was{}
	f.evidence.lookBefore(c, &x.was)
	x.looked = recent.Now()
	u := f.touches.begin(c)
	x.touched = u.ids()
	f.beginStep(s, x)
	if p != nil {
		f.touches.decide(p, c, false)
	}
	f.pointAt(c, atBegun)
	err := call()
	f.pointAt(c, atCalled)
	f.touches.end(&u, c, err)
	if err == errBehind { // nothing was done: it is made again
		s.phase.Store(before)
		return err
	}
	f.madeStep(s, c, err)
	f.pointAt(c, atMade)
	return err
}

// doPast is do for what another process had begun.
func (f *fence) doPast(t *tracked, c *change, call func() error) error {
	s, p := &t.slot, t.past
	defer f.redo.decide(p)
	asks := c.writes != nil && p.step.token == 0 // the lock of another file may have gone
	if !f.heldThrough(c, &p.step) && !(t.asked && t.verdict != recent.Unsure) {
		if asks && !t.asked {
			return errNotHeld
		}
		// Another host may have come between, and nothing is evidence.
		f.evidence.close(c)
		err := f.evidence.guess(c)
		f.madeStep(s, c, err)
		return err
	}
	done, err := f.evidence.conclude(c, &p.step, t.verdict)
	if done || err != nil {
		c.repeated = done
		if done {
			f.touches.decide(p, c, true)
		}
		f.madeStep(s, c, err)
		return err
	}
	// It is begun anew, after what there is now, so that the next process has to find out only
	// whether this one has made it. It depends on what it has depended on.
	c.again = true
	x := p.step
	x.n, x.errno, x.fd = 0, 0, 0
	return f.doStep(s, c, x, p, call)
}

// heldThrough reports whether what protected the step x, which another process had begun
// for c, protects it still, so that no other host can have been let in between. c is
// admitted, in the tenure of x. Of explicit locks one has to be left that is as old, unless
// nobody has given any up since: what was closed before is gone later.
func (f *fence) heldThrough(c *change, x *step) bool {
	switch {
	case x.protected == 0:
		return true
	case f.redo.late.Load():
		return false
	case x.token == ownToken:
		return c.h != nil && c.h.holds.Load() // which it has taken anew
	case x.token != 0:
		return c.h != nil && c.h.holds.Load() && uint64(c.h.open.token) == x.token
	case c.back:
		return true // no open lock has left, see redo
	}
	for _, h := range [...]*handle{c.h, c.from, c.through} {
		if h != nil && (h != c.h && h.holds.Load() || h.holdsSince(x.turn) || h.proc.holdsSince(x.turn)) {
			return true
		}
	}
	p := f.procs.find(c.in.Pid)
	for depth := 0; p != nil && depth < maxAncestors; depth++ {
		if p.holdsSince(x.turn) {
			return true
		}
		for _, n := range c.files {
			if n != nil && n.opensFor(p) {
				return true
			}
		}
		p = f.procs.ancestor(p)
	}
	return x.unlocks == noUnlocks || f.records.unlocks.Load() == x.unlocks
}

func (f *fence) pointAt(c *change, where string) {
	if f.point != nil {
		f.point(c.in.Opcode, where)
	}
}

// newStep is c, admitted as a says.
func (f *fence) newStep(c *change, a *admission) step {
	x := step{tenure: uint64(a.tenure), turn: f.records.turns.Load(), unlocks: f.records.unlocks.Load()}
	if !a.explicit {
		x.unlocks = noUnlocks
	}
	if a.protected {
		x.protected = 1
	}
	x.op, x.off = stepOf(c)
	if c.h != nil && c.h.holds.Load() {
		if x.token = uint64(c.h.open.token); c.h.line == nil {
			x.token = ownToken
		}
	}
	return x
}

// beginStep notes that x is begun.
func (f *fence) beginStep(s *slot, x step) {
	at := s.phase.Load() >> phaseBits & 1
	if s.phase.Load()&(1<<phaseBits-1) >= phaseBegun {
		at ^= 1 // the other one counts until this one does
	}
	s.steps[at] = x
	s.phase.Store(phaseBegun | at<<phaseBits)
}

// madeStep notes the outcome of c.
func (f *fence) madeStep(s *slot, c *change, err error) {
	at := s.phase.Load() >> phaseBits & 1
	x := &s.steps[at]
	x.n, x.errno = int64(c.length), int32(errnoWord(err))
	if c.fd != nil {
		x.fd = int32(*c.fd + 1)
	}
	s.phase.Store(phaseMade | at<<phaseBits)
}

// closes closes a descriptor that is noted with the steps, where it goes first: another
// file may get its number.
func (s *slot) closes(fd int) {
	for i := range s.steps {
		s.steps[i].fd = 0
	}
	closeFD(fd)
}

// closeMade closes what a request has made and opened, and does not answer with.
func (f *fence) closeMade(in *fuse.InHeader, fd int) {
	if f.conn != nil && f.conn.requests != nil {
		if r := f.conn.readers.of(in.Unique); r != nil && r.slot.slotHead != nil {
			r.slot.closes(fd)
			return
		}
	}
	closeFD(fd)
}

// isPast reports whether another process had begun the change that a request makes.
func (f *fence) isPast(in *fuse.InHeader) bool {
	if f.conn == nil || f.conn.requests == nil {
		return false
	}
	r := f.conn.readers.of(in.Unique)
	return r != nil && r.past != nil
}

// copied is how many bytes a process before this one had copied for a request to copy to
// off, or why it could not. If it had begun with more, what is told is less than what
// may be done, as the call may end early.
func (f *fence) copied(in *fuse.InHeader, off int64) (done int64, err error) {
	if !f.isPast(in) {
		return 0, nil
	}
	p := f.conn.readers.of(in.Unique).past
	if p.matched {
		return 0, nil
	}
	done = p.step.off - off
	if p.phase == phaseMade {
		if done += p.step.n; p.step.errno != 0 {
			err = unix.Errno(p.step.errno)
		}
	}
	if done > 0 || err != nil {
		p.matched = true
		f.redo.decide(p)
	}
	return done, err
}

// syncs is fsync(2) through h, by call. A process that is killed in it may have been told
// of a failure by the kernel, which is told no other time by this descriptor. So one more
// is opened before, and noted: it is told of it, too.
func (f *fence) syncs(in *fuse.InHeader, h *handle, call func(fd int) error) error {
	c := &change{in: in, op: "fsync", h: h}
	t := f.track(c)
	if t.slot.slotHead == nil {
		return retryEINTR(func() error { return call(h.fd) })
	}
	s, fd := &t.slot, -1
	if p := t.past; p != nil {
		p.matched = true
		f.redo.decide(p)
		if fd = int(p.step.fd) - 1; p.phase == phaseMade && p.step.errno != 0 {
			s.closes(fd)
			return unix.Errno(p.step.errno)
		}
	} else if w, err := unix.Openat(f.fds, itoa(h.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		fd = w
	}
	c.fd = &fd
	s.steps[0] = step{fd: int32(fd + 1)}
	defer s.closes(fd)
	s.steps[0].op, s.steps[0].off = stepOf(c)
	s.phase.Store(phaseBegun)
	f.pointAt(c, atBegun)
	err := retryEINTR(func() error { return call(h.fd) })
	if t.past != nil && fd >= 0 && err == nil {
		err = retryEINTR(func() error { return call(fd) })
	}
	f.pointAt(c, atCalled)
	f.madeStep(s, c, err)
	f.pointAt(c, atMade)
	return err
}
