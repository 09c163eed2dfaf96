package systemtest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// client is a host's way to the storage. Only the one goroutine touches it.
type client struct {
	p         *proc
	rng       *rand.Rand
	hangUntil time.Duration // until then nothing is carried out
	waiting   []func()      // what is to be done then
	slow      time.Duration // that an operation takes at most; 0: 4 ms
	errs      float64       // part of the operations on views that fail,
	done      float64       // of these, part that are carried out,
	late      float64       // and part that are carried out after the error
	lateBy    time.Duration // at most
	stopAt    point         // stop the process there, once
	stopFor   time.Duration
	bareUntil time.Duration // until then another directory, which is empty, is there
	oldest    bool          // its listings are as old as they may be
	// atLink is called as the process tries its next link; was it killed there?
	atLink func(op member.LinkOp) bool
}

// point is a place in a storage operation.
type point int

const (
	noPoint      point = iota
	beforeLink         // the machine has decided, nothing has happened
	afterLink          // the link is carried out, the reply is not seen
	afterListing       // the same of a look
)

func (c *client) init(p *proc) {
	c.p, c.rng = p, rand.New(rand.NewPCG(p.w.opt.seed, uint64(p.serial)+3000))
}

// latency is how long a small operation takes, one way.
func (c *client) latency() time.Duration {
	if c.slow > 0 {
		return between(c.rng, 0, c.slow/2)
	}
	return between(c.rng, 50*time.Microsecond, 2*ms)
}

// whenWell does f in d, or when the storage hangs no more.
func (c *client) whenWell(d time.Duration, f func()) {
	c.p.w.after(d, func() {
		if c.hangUntil > c.p.w.now() {
			c.waiting = append(c.waiting, f)
			return
		}
		f()
	})
}

// hang makes the storage hang for d more; 0 ends it.
func (c *client) hang(d time.Duration) {
	w := c.p.w
	w.logf("the storage of %s hangs for %v", c.p.name, d)
	until := w.now() + d
	if d > 0 {
		until = max(until, c.hangUntil)
	}
	c.hangUntil = until
	w.after(until-w.now(), func() {
		if c.hangUntil <= w.now() {
			waiting := c.waiting
			c.waiting = nil
			for _, f := range waiting {
				f()
			}
		}
	})
}

// storage is where views are decided.
type storage proc

func (s *storage) Do(op member.Op) (member.Look, error) {
	p := (*proc)(s)
	began := p.clock()
	x := p.await("views", func(done func(outcome)) { p.disk.begin(op, done) })
	x.look.Began = began
	if p.w.opt.bug == "a look is stamped when it ends" {
		x.look.Began = p.clock()
	}
	return x.look, x.err
}

// begin starts an operation.
func (c *client) begin(op member.Op, reply func(outcome)) {
	w := c.p.w
	link, isLink := op.(member.LinkOp)
	_, isLook := op.(member.LookOp)
	if f := c.atLink; isLink && f != nil && c.p.alive() {
		if c.atLink = nil; f(link) {
			return
		}
	}
	if isLink && c.stopAt == beforeLink && c.p.alive() {
		c.stopAt = noPoint
		c.p.stop(c.stopFor)
		w.after(c.stopFor, func() { c.perform(op, reply) })
		return
	}
	c.whenWell(c.latency(), func() {
		if isLink && c.stopAt == afterLink || isLook && c.stopAt == afterListing {
			c.stopAt = noPoint
			c.p.stop(c.stopFor)
		}
		c.perform(op, reply)
	})
}

var errIO = errors.New("input/output error")

// perform has the server carry op out, and sends the reply.
func (c *client) perform(op member.Op, reply func(outcome)) {
	w := c.p.w
	fails := c.rng.Float64() < c.errs
	var look member.Look
	var err error
	switch o := op.(type) {
	case member.LookOp:
		if fails {
			err = errIO
			break
		}
		age := time.Duration(0)
		if w.opt.cache > 0 {
			age = between(c.rng, 0, time.Duration(w.opt.cache)*ms)
			if c.oldest {
				age = time.Duration(w.opt.cache) * ms
			}
		}
		if c.bareUntil > w.now() {
			break
		}
		look = w.store.Look(int64(w.now()-age), o)
	default:
		switch {
		case c.bareUntil > w.now():
			err = errIO // there is no directory for it
		case !fails:
			err = w.do(op)
		case c.rng.Float64() < c.done:
			_ = w.do(op)
			err = errIO
		default:
			err = errIO
			if c.rng.Float64() < c.late {
				w.after(between(c.rng, 0, c.lateBy), func() {
					w.logf("late: %v", op)
					_ = w.do(op)
				})
			}
		}
	}
	c.whenWell(c.latency(), func() { reply(outcome{look, err}) })
}

// do carries an operation out at the server, whoever asked for it.
func (w *world) do(op member.Op) error {
	if l, ok := op.(member.LinkOp); ok && w.opt.bug == "a link replaces what is there" {
		w.store.Remove(int64(w.now()), l.View.Epoch)
	}
	err := w.store.Do(int64(w.now()), op)
	if l, ok := op.(member.LinkOp); ok && err == nil {
		w.logf("linked: %v", l.View)
		w.check.linked(l.View)
	}
	w.store.Forget(int64(w.now() - 2*time.Duration(w.opt.cache)*ms - 60*time.Second))
	return err
}

// cells is into how many parts a file is divided that can be locked apart.
const cells = 4

var cellRange = func() (r [cells]locks.Range) {
	for i := range r {
		r[i] = locks.Range{Start: uint64(i) * 10, End: uint64(i)*10 + 10}
	}
	r[cells-1].End = locks.MaxOffset
	return r
}()

// cell is a part of a file on the storage: what matters of it is how often it
// was written, and by whom last.
type cell struct {
	version int
	token   locks.Token // of the last write
	late    bool        // the last write was kept back by its host for longer than is promised
}

// data are all files. Only the one goroutine touches it.
type data struct {
	w     *world
	files map[locks.Key][]cell
	// Counts of what happened, for the report.
	reads, writes, lateWrites int
}

func newData(w *world) *data { return &data{w: w, files: map[locks.Key][]cell{}} }

func (d *data) file(k locks.Key) []cell {
	f := d.files[k]
	if f == nil {
		f = make([]cell, cells)
		d.files[k] = f
	}
	return f
}

func (d *data) versions(k locks.Key) []int {
	f := d.file(k)
	v := make([]int, cells)
	for i := range f {
		v[i] = f[i].version
	}
	return v
}

// write is one that was admitted and is on its way, or in its host's memory.
type write struct {
	p       *proc
	node    member.Node
	tenure  locks.Tenure
	key     locks.Key
	cells   []int
	version []int // of each cell, that it makes
	token   locks.Token
	began   time.Duration
	landed  bool
}

// newest is the version of a cell that whoever has the lock must see: what is on
// the storage, or was written since by one who has not lost its lock. It is not
// sure while something is under way from one who has.
func (d *data) newest(k locks.Key, c int) (version int, sure bool) {
	f := d.file(k)
	version, sure = f[c].version, !f[c].late
	token := f[c].token
	for _, h := range d.w.hosts {
		for _, x := range h.dirty.writes {
			i := slices.Index(x.cells, c)
			switch {
			case x.key != k || i < 0:
			case x.p.alive() && x.p.engine.Tenure() == x.tenure && !d.w.check.dropped[x.node]:
				if x.token >= token { // in the order of the list, if they are the same
					version, token = x.version[i], x.token
				}
			default:
				sure = false
			}
		}
	}
	return version, sure
}

// land is the moment when a write reaches the storage.
func (d *data) land(w *write) {
	if w.landed {
		return
	}
	w.landed = true
	d.writes++
	d.w.logf("%s: a write of %v under token %v reaches the storage: cells %v, versions %v", w.node.Peer, w.key, w.token, w.cells, w.version)
	f := d.file(w.key)
	// What takes longer from its admission than this is not promised to be
	// ahead of the next holder's.
	late := d.w.now()-w.began > time.Duration(d.w.opt.params.Guard+d.w.opt.params.Delta)*ms
	if late {
		d.lateWrites++
	}
	for i, c := range w.cells {
		switch {
		case late && w.token < f[c].token && d.w.opt.cutsOff:
			d.w.check.failf("a write of %v under token %v reaches the storage after one under token %v, in spite of the fence command", w.node, w.token, f[c].token)
		case late && w.token < f[c].token:
			f[c].late = true
			continue
		case w.token < f[c].token:
			d.w.check.failf("a write under token %v of %v reaches the storage after one under token %v", w.token, w.key, f[c].token)
		case w.version[i] != f[c].version+1 && !f[c].late && !late:
			d.w.check.failf("an update of %v is lost: version %d of cell %d is written over version %d", w.key, w.version[i], c, f[c].version)
		}
		f[c] = cell{version: w.version[i], token: w.token, late: late}
	}
}

// dirtyPages are the writes that a host has begun and the storage has not got.
// They outlive the process. Only the one goroutine touches it.
type dirtyPages struct {
	w       *world
	writes  []*write
	waiting []func()
}

func newDirtyPages(w *world) *dirtyPages { return &dirtyPages{w: w} }

func (d *dirtyPages) add(w *write) { d.writes = append(d.writes, w) }

// land writes out. What the host wrote to the same pages before goes first,
// also that of a former process whose call still hangs: whoever wrote since has
// read it there, and a page reaches the storage as a whole.
func (d *dirtyPages) land(w *write) {
	if w.landed {
		return
	}
	for _, x := range d.writes {
		if x == w {
			break
		}
		if x.key == w.key && slices.ContainsFunc(x.cells, func(c int) bool {
			return slices.Contains(w.cells, c) && x.token >= d.w.data.file(x.key)[c].token
		}) {
			d.w.data.land(x)
		}
	}
	d.w.data.land(w)
	d.settle()
}

// settle forgets what has landed.
func (d *dirtyPages) settle() {
	d.writes = slices.DeleteFunc(d.writes, func(x *write) bool { return x.landed })
	if len(d.writes) == 0 {
		waiting := d.waiting
		d.waiting = nil
		for _, f := range waiting {
			f()
		}
	}
}

// whenClean does f when all is written out: syncfs.
func (d *dirtyPages) whenClean(f func()) {
	if len(d.writes) == 0 {
		f()
		return
	}
	d.waiting = append(d.waiting, f)
	if d.w.opt.writeBack {
		for _, x := range slices.Clone(d.writes) {
			d.land(x)
		}
	}
}

// files is the mount as the engine sees it.
type files proc

func (f *files) Flush(k locks.Key) error {
	p := (*proc)(f)
	if p.w.opt.bug == "nothing is written out" || p.w.opt.bug == "a state without a write-out" && p.stating.Load() {
		return nil
	}
	return p.await("flush "+k.String(), func(done func(outcome)) {
		p.disk.whenWell(p.disk.latency(), func() {
			if p.w.opt.writeBack {
				for _, x := range slices.Clone(p.host.dirty.writes) {
					if x.key == k {
						p.host.dirty.land(x)
					}
				}
			}
			done(outcome{})
		})
	}).err
}

func (f *files) Refresh(k locks.Key) error {
	p := (*proc)(f)
	if p.w.opt.bug == "nothing is read anew" {
		return nil
	}
	return p.await("refresh "+k.String(), func(done func(outcome)) {
		delete(p.cache, k)
		p.dropped[k]++
		p.w.after(p.disk.latency(), func() { done(outcome{}) })
	}).err
}

func (f *files) Expelled() { f.expelled++ }
