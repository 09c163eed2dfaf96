package systemtest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// program takes a lock, reads and writes under it, gives it up, and begins
// again. All of it happens in the one goroutine, but for what waits.
type program struct {
	w    *world
	proc *proc // which may be replaced
	pid  int
	rng  *rand.Rand

	req     locks.Request
	cancel  chan struct{}
	waiting bool   // for a lock
	busy    bool   // it holds one
	gone    bool   // the mount was taken away
	doing   string // for the report of a failure
	grant   locks.Grant
	begun   int // requests
	granted int
	// knows are the grants that it was told of; guarded by world.mu.
	knows map[knownGrant]bool
}

// result is what a program was told that had to wait for it.
type result struct {
	program *program
	then    func()
}

func sortResults(rs []result) {
	slices.SortStableFunc(rs, func(a, b result) int { return cmp.Compare(a.program.pid, b.program.pid) })
}

// post hands a result to the one goroutine.
func (g *program) post(then func()) {
	w := g.w
	w.mu.Lock()
	w.results = append(w.results, result{g, then})
	w.mu.Unlock()
	w.signal()
}

func newProgram(p *proc, i int) *program {
	pid := (p.serial+1)*100 + i
	return &program{w: p.w, proc: p, pid: pid, knows: map[knownGrant]bool{}, rng: rand.New(rand.NewPCG(p.w.opt.seed, uint64(pid)+4000))}
}

// later has the program do something in d, if its process still lives then.
func (g *program) later(d time.Duration, do func()) {
	g.proc.w.after(d, func() {
		g.deliver(func() {
			if !g.gone {
				do()
			}
		})
	})
}

func (g *program) think() {
	w := g.proc.w
	g.busy, g.doing = false, "nothing"
	pause := 2 * w.opt.think
	if w.opt.many && g.proc.serial%3 > 0 {
		pause *= 16 // so that there is one to delegate to
	}
	g.later(between(g.rng, 0, pause), func() {
		if !w.draining && !g.proc.closing {
			g.ask()
		}
	})
}

// request is for some lock.
func (g *program) request() locks.Request {
	w := g.proc.w
	shared := w.opt.rules || algorithms[w.opt.algorithm].Shared
	r := locks.Request{
		Key:    locks.Key{File: fmt.Sprintf("f%d", g.rng.IntN(w.opt.files)), Class: locks.Posix},
		Owner:  locks.OwnerID(g.pid),
		Handle: locks.HandleID(g.pid),
		Mode:   locks.Write, Range: locks.Whole,
		Try:     g.rng.IntN(6) == 0,
		Program: locks.Program{PID: g.pid, Command: fmt.Sprintf("p%d", g.pid)},
	}
	r.Path = r.Key.File
	if g.rng.IntN(3) == 0 && shared {
		r.Mode = locks.Read
	}
	kind := g.rng.IntN(6)
	if w.opt.many && g.rng.IntN(4) > 0 {
		kind = 1
	}
	switch kind {
	case 0:
		r.Key.Class = locks.Flock
	case 1:
		r.Key.Class = locks.Open
		r.Try = false
	default:
		if a := g.rng.IntN(2 * cells); a < cells && shared {
			b := a + g.rng.IntN(cells-a)
			r.Range = locks.Range{Start: cellRange[a].Start, End: cellRange[b].End}
		}
	}
	return r
}

// ask asks for a lock.
func (g *program) ask() {
	p := g.proc
	if all, _ := p.engine.Delegation(); all {
		p.w.delegated++
	}
	g.doing = "asking"
	g.req, g.cancel, g.waiting = g.request(), make(chan struct{}), true
	g.begun++
	serial, cancel := g.begun, g.cancel
	req := g.req
	g.lock(&req, cancel, g.told)
	if g.rng.IntN(12) == 0 {
		g.later(between(g.rng, 0, 2*time.Second), func() {
			if g.waiting && g.begun == serial {
				g.waiting = false
				close(cancel)
			}
		})
	}
}

// told is the answer to the request.
func (g *program) told(grant locks.Grant, err error) {
	w := g.proc.w
	g.waiting = false
	switch {
	case err == nil:
		g.granted++
		g.grant, g.busy = grant, true
		g.work(1 + g.rng.IntN(3))
	case errors.Is(err, locks.ErrWouldBlock), errors.Is(err, locks.ErrInterrupted), errors.Is(err, locks.ErrLost):
		g.think()
	case errors.Is(err, locks.ErrUnavailable):
		g.think()
	case errors.Is(err, locks.ErrDeadlock) && (w.opt.rules || w.opt.files > 1):
		g.think() // one that nests, or waits for what is held from before the rules changed
	default:
		w.check.failf("pid %d: %v", g.pid, err)
	}
}

// work does some I/O under the lock, and gives it up.
func (g *program) work(rounds int) {
	if rounds == 0 || g.proc.closing {
		g.unlock()
		return
	}
	if g.rng.IntN(8) == 0 && g.proc.w.opt.files > 1 {
		g.nest(rounds)
		return
	}
	g.read(func(versions []int) {
		next := func() { g.later(between(g.rng, 0, 40*ms), func() { g.work(rounds - 1) }) }
		if g.req.Mode == locks.Read {
			next()
			return
		}
		g.later(between(g.rng, 0, 30*ms), func() { g.write(versions, next) })
	})
}

func (g *program) unlock() {
	g.release(&g.req)
	g.think()
}

func (g *program) release(r *locks.Request) {
	e := g.proc.engine
	switch r.Key.Class {
	case locks.Open:
		e.UnlockHandle(r.Key, r.Handle, "closed")
	default:
		e.Unlock(r.Key, r.Owner, r.Range)
	}
}

// nest takes a lock on another file beside the one that is held, in whatever
// order: with others that do the same it may be a deadlock. It is one of fcntl,
// since only that knows EDEADLK.
func (g *program) nest(rounds int) {
	w := g.proc.w
	first := g.req
	for g.req.Key.File == first.Key.File || g.req.Key.Class != locks.Posix {
		g.req = g.request()
	}
	second := g.req
	g.req = first
	g.doing = fmt.Sprintf("asking for %v, too", second.Key)
	g.cancel, g.waiting = make(chan struct{}), true
	cancel := g.cancel
	g.lock(&second, cancel, func(_ locks.Grant, err error) {
		next := func() { g.work(rounds - 1) }
		switch {
		case err == nil:
			g.later(between(g.rng, 0, 50*ms), func() {
				g.release(&second)
				next()
			})
		case errors.Is(err, locks.ErrWouldBlock), errors.Is(err, locks.ErrInterrupted), errors.Is(err, locks.ErrDeadlock):
			next()
		case errors.Is(err, locks.ErrLost):
			g.fail()
		case errors.Is(err, locks.ErrUnavailable):
			g.unlock()
		default:
			w.check.failf("pid %d: %v", g.pid, err)
		}
	})
}

// fail is what the mount does when a lock is lost: the handle is of no use any
// more, and the program closes it.
func (g *program) fail() {
	g.proc.w.check.toldLost(g)
	g.proc.engine.UnlockHandle(g.req.Key, g.req.Handle, "closed")
	g.think()
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// admit is the check before I/O: it may have to wait.
func (g *program) admit(then func()) {
	p, w := g.proc, g.proc.w
	if w.opt.bug == "no check before I/O" {
		then()
		return
	}
	tenure := g.grant.Tenure
	switch err := p.engine.Admit(closedChan, tenure); {
	case err == nil:
		then()
	case errors.Is(err, locks.ErrLost):
		g.fail()
	default:
		g.doing += ", suspended"
		go func() {
			err := p.engine.Admit(p.dead, tenure)
			g.post(func() {
				switch {
				case err == nil:
					g.admit(then) // asked again where it is used
				case errors.Is(err, locks.ErrLost):
					g.fail()
				case g.afterKill(p, func() { g.admit(then) }):
				case g.proc != p: // it was replaced
					g.admit(then)
				default:
					g.think() // the mount is going away
				}
			})
		}()
	}
}

// touched are the cells of the request.
func (g *program) touched() []int {
	var list []int
	for i, r := range cellRange {
		if r.Overlaps(g.req.Range) {
			list = append(list, i)
		}
	}
	return list
}

// read reads what is locked.
func (g *program) read(then func(versions []int)) {
	p, w, k := g.proc, g.proc.w, g.req.Key
	g.doing = "read"
	g.admit(func() {
		began, dropped := w.now(), p.dropped[k]
		finish := func(versions []int) {
			w.data.reads++
			// What takes longer may see what comes after its lock.
			if w.now()-began <= time.Duration(w.opt.params.Guard+w.opt.params.Delta)*ms {
				for _, c := range g.touched() {
					now, sure := w.data.newest(k, c)
					if versions[c] != now && sure {
						w.check.failf("pid %d reads version %d of cell %d of %v under token %v, where %d was written", g.pid, versions[c], c, k, g.grant.Token, now)
					}
				}
			}
			then(slices.Clone(versions))
		}
		if v := p.cache[k]; v != nil && g.hasAll(v) {
			finish(v)
			return
		}
		p.disk.whenWell(p.disk.latency(), func() {
			v := w.data.versions(k)
			f := w.data.file(k)
			for _, x := range p.host.dirty.writes { // what this host has not written out yet
				for i, c := range x.cells {
					if x.key == k && x.token >= f[c].token { // else it is a former process's, and late
						v[c] = x.version[i]
					}
				}
			}
			g.later(p.disk.latency(), func() {
				// The kernel drops also a page that is still being read.
				if p.dropped[k] == dropped {
					g.keep(v)
				}
				finish(v)
			})
		})
	})
}

// hasAll reports whether all cells of the request are in a cached file.
func (g *program) hasAll(v []int) bool {
	for _, c := range g.touched() {
		if v[c] < 0 {
			return false
		}
	}
	return true
}

// keep puts the cells of the request into the cache of the host.
func (g *program) keep(v []int) {
	p, k := g.proc, g.req.Key
	f := p.cache[k]
	if f == nil {
		f = []int{-1, -1, -1, -1}
		p.cache[k] = f
	}
	for _, c := range g.touched() {
		f[c] = v[c]
	}
}

// write writes the next version of all that is locked.
func (g *program) write(versions []int, then func()) {
	p, w := g.proc, g.proc.w
	g.doing = "write"
	g.admit(func() {
		x := &write{p: p, node: p.status().Self, tenure: g.grant.Tenure, key: g.req.Key, cells: g.touched(), token: g.grant.Token, began: w.now()}
		for _, c := range x.cells {
			x.version = append(x.version, versions[c]+1)
		}
		p.host.dirty.add(x)
		done := func() {
			for i, c := range x.cells {
				versions[c] = x.version[i]
			}
			g.keep(versions)
			g.inTime(then)
		}
		if w.opt.writeBack {
			done()
			w.after(5*time.Second, func() { p.host.dirty.land(x) })
			return
		}
		d := between(g.rng, 0, 5*ms)
		if g.rng.IntN(10) == 0 {
			d = between(g.rng, 0, 700*ms)
		}
		// The system call goes on whatever becomes of the process.
		p.disk.whenWell(d, func() {
			p.host.dirty.land(x)
			g.deliver(done)
		})
	})
}

// inTime is asked after a write: did the lock hold until its end?
func (g *program) inTime(then func()) {
	if g.proc.w.opt.bug == "no check before I/O" {
		then()
		return
	}
	g.admit(then)
}
