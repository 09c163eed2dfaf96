package member_test

import (
	"errors"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// client is a host's way to the storage.
type client struct {
	hangUntil int64    // real time until which operations are not carried out
	waiting   []func() // what is to be done then
	slow      int64    // ms that an operation takes at most; 0: options.slowAt
	slowMin   int64
	linkErrs  bool                   // every link fails, for good
	errs      float64                // part of the operations that fail,
	done      float64                // of these, part that are carried out,
	late      float64                // and part that are carried out after the error
	lateBy    int64                  // ms at most
	stale     int64                  // ms that its listings are old, at least
	stopAt    point                  // stop the process there, once
	stopFor   int64                  // ms
	atLink    func(op member.LinkOp) // what happens to the process at its next link
}

// point is a place in a storage operation.
type point int

const (
	noPoint      point = iota
	beforeLink         // the machine has decided, nothing has happened
	afterLink          // the link is carried out, the reply is not seen
	afterListing       // the same of a look
)

// begin starts a storage operation.
func (n *node) begin(op member.Op) {
	w, d := n.w, &n.disk
	began := n.clock()
	link, isLink := op.(member.LinkOp)
	_, isLook := op.(member.LookOp)
	if isLink {
		n.claims(link)
		if f := d.atLink; f != nil {
			d.atLink = nil
			f(link)
			return
		}
	}
	if isLink && d.stopAt == beforeLink {
		d.stopAt = noPoint
		n.stop(d.stopFor)
		w.after(d.stopFor*ms, func() { n.perform(op, began) })
		return
	}
	slow := d.slow
	if slow == 0 {
		slow = max(w.opt.slowAt, 4)
	}
	n.whenWell(w.between(d.slowMin/2, slow/2), func() {
		if isLink && d.stopAt == afterLink || isLook && d.stopAt == afterListing {
			d.stopAt = noPoint
			n.stop(d.stopFor)
		}
		n.perform(op, began)
	})
}

var errIO = errors.New("input/output error")

// perform has the server carry op out, and sends the reply.
func (n *node) perform(op member.Op, began int64) {
	w, d := n.w, &n.disk
	res := member.Done{Op: op}
	fails := w.chance(d.errs)
	if _, link := op.(member.LinkOp); link && d.linkErrs {
		res.Err = errIO
		n.input(res)
		return
	}
	switch o := op.(type) {
	case member.LookOp:
		if fails {
			res.Err = errIO
			break
		}
		age := d.stale * ms
		if w.opt.stale > 0 {
			age = max(age, w.rng.Int64N(w.opt.stale*ms+1))
		}
		at := w.now - age
		res.Look = w.store.Look(at, o)
		res.Err = w.store.Unseen(o, res.Look)
		res.Look.Began = began
	default:
		switch {
		case !fails:
			res.Err = w.do(op)
		case w.chance(d.done):
			w.do(op)
			res.Err = errIO
		default:
			res.Err = errIO
			if w.chance(d.late) {
				w.after(w.between(0, d.lateBy), func() {
					w.logf("late: %v", op)
					w.do(op)
				})
			}
		}
	}
	slow := d.slow
	if slow == 0 {
		slow = max(w.opt.slowAt, 4)
	}
	n.whenWell(w.between(d.slowMin/2, slow/2), func() { n.input(res) })
}

// hang makes the client's storage hang for d more milliseconds; 0 ends it.
func (n *node) hang(d int64) {
	n.w.logf("the storage of %s hangs for %d ms", n.name, d)
	until := n.w.now + d*ms
	if d > 0 {
		until = max(until, n.disk.hangUntil)
	}
	n.disk.hangUntil = until
	n.w.after(until-n.w.now, func() {
		if n.disk.hangUntil <= n.w.now {
			waiting := n.disk.waiting
			n.disk.waiting = nil
			for _, f := range waiting {
				f()
			}
		}
	})
}

// whenWell does f in d microseconds, or when the storage hangs no more.
func (n *node) whenWell(d int64, f func()) {
	n.w.after(d, func() {
		if n.disk.hangUntil > n.w.now {
			n.disk.waiting = append(n.disk.waiting, f)
			return
		}
		f()
	})
}

// do carries an operation out at the server, whoever asked for it.
func (w *world) do(op member.Op) error {
	err := w.store.Do(w.now, op)
	if l, ok := op.(member.LinkOp); ok && err == nil {
		w.logf("linked: %v", l.View)
		w.check.linked(l.View)
		if d := w.damageNext; d > 0 {
			w.damageNext = 0
			w.logf("view %d is damaged for %d ms", l.View.Epoch, d)
			w.store.Damage(l.View.Epoch, member.ErrUnreadable)
			w.after(d*ms, func() { w.store.Damage(l.View.Epoch, nil) })
		}
	}
	w.store.Forget(w.now - 2*w.opt.stale*ms - 60*second)
	return err
}
