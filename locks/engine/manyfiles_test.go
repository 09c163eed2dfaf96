package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// manyFiles is a cluster whose programs open many files, as program does: what
// is stored, what each node has cached and not written out, and who has what
// open.
type manyFiles struct {
	ids []locks.NodeID
	*net
	seed uint64

	mu     sync.Mutex
	files  map[locks.Key]*testFile
	recent []locks.Key
	last   int // number of the last new file
	err    error
	grants int
	silent int          // first locks of a file to write for which no message was sent
	loaned int          // moments at which a node had all delegations
	asking int          // moments at which a node asked something back
	rests  atomic.Int64 // times that an engine was let go of in the middle of something
	filesKind
}

// filesKind is what else happens in a run.
type filesKind struct {
	// hard: programs try locks, nodes are suspended and expelled, renewing
	// takes time, and most of what is written is on the storage at once.
	hard bool
	// flocks of a few files, which are given up a moment after they are
	// closed, instead of open locks of many.
	flocks bool
	// parts: the engine is let go of wherever that is possible, for a while.
	parts bool
}

type testFile struct {
	truth, stored int                  // versions
	unwritten     map[locks.NodeID]int // versions that are not stored yet
	cached        map[locks.NodeID]int
	holders       map[*locks.Request]locks.NodeID
	written       locks.Token // the greatest of a grant to write
	granted       locks.Token // and of any
}

// fail keeps the first failure. REQUIRES: f.mu held.
func (f *manyFiles) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("at %v: %s", f.at(), fmt.Sprintf(format, args...))
	}
}

func (f *manyFiles) at() time.Duration { return time.Duration(f.nodes["n0"].Moment()) }

func (f *manyFiles) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// numbers is how many files there are at a time.
func (f *manyFiles) numbers() int {
	if f.flocks {
		return 2
	}
	return 40
}

// pick is a file for n to open; made: it is a new one, of which n has nothing in
// its cache, and nobody has anything to write out.
func (f *manyFiles) pick(n *node, rnd *rand.Rand, busy bool) (k locks.Key, made bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.recent) > 0 && (!busy || rnd.IntN(3) == 0) {
		return f.recent[rnd.IntN(len(f.recent))], false
	}
	f.last++
	// The numbers of files come again.
	k = locks.Key{File: fmt.Sprintf("i%d", f.last%f.numbers()), Class: locks.Open}
	if f.flocks {
		k.Class = locks.Flock
	}
	if f.files[k] == nil {
		f.files[k] = &testFile{unwritten: map[locks.NodeID]int{}, cached: map[locks.NodeID]int{}, holders: map[*locks.Request]locks.NodeID{}}
	}
	f.recent = append(f.recent, k)
	if len(f.recent) > 12 {
		f.recent = f.recent[1:]
	}
	x := f.files[k]
	if made = len(x.holders) == 0 && x.stored == x.truth; made {
		delete(x.cached, n.id)
	}
	return k, made
}

// begin is told of a grant, and reads.
func (f *manyFiles) begin(n *node, r *locks.Request, g locks.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.files[r.Key]
	if g.Tenure != n.Tenure() {
		return
	}
	for o, at := range x.holders {
		if at != n.id && (o.Mode == locks.Write || r.Mode == locks.Write) {
			f.fail("%s has %v in mode %v while %s has it in mode %v", n.id, r.Key, r.Mode, at, o.Mode)
		}
	}
	least := x.granted
	if r.Mode == locks.Read {
		least = x.written
	} else {
		x.written = g.Token
	}
	if g.Token <= least {
		f.fail("%s has %v in mode %v by token %v, after %v", n.id, r.Key, r.Mode, g.Token, least)
	}
	x.granted = max(x.granted, g.Token)
	x.holders[r] = n.id
	f.grants++
	v, ok := x.cached[n.id]
	if !ok {
		if v, ok = x.unwritten[n.id]; !ok {
			v = x.stored
		}
		x.cached[n.id] = v
	}
	if v != x.truth {
		f.fail("%s reads version %d of %v, in mode %v, where %d was written", n.id, v, r.Key, r.Mode, x.truth)
	}
}

// end is the last moment of the lock.
func (f *manyFiles) end(n *node, r *locks.Request, g locks.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.files[r.Key]
	if g.Tenure != n.Tenure() {
		delete(x.holders, r)
		return
	}
	if r.Mode == locks.Write {
		x.truth++
		if f.hard && x.truth%3 != 0 {
			x.cached[n.id], x.stored = x.truth, x.truth
			delete(x.unwritten, n.id)
			delete(x.holders, r)
			return
		}
		x.cached[n.id], x.unwritten[n.id] = x.truth, x.truth
	}
	delete(x.holders, r)
}

// program opens files of n until it has opened so many.
func (f *manyFiles) program(n *node, pid int, opens int, wg *sync.WaitGroup) {
	defer wg.Done()
	rnd := rand.New(rand.NewPCG(f.seed, uint64(pid)))
	sleep := func(ms int) { time.Sleep(time.Duration(rnd.IntN(1000*ms+1)) * time.Microsecond) }
	busy := rnd.IntN(2) == 0
	for i := range opens {
		if f.failed() != nil {
			return
		}
		if rnd.IntN(20) == 0 {
			busy = !busy
		}
		if !busy {
			sleep(400)
		}
		born := n.Moment()
		k, made := f.pick(n, rnd, busy)
		r := &locks.Request{
			Key: k, Path: k.File, Owner: locks.OwnerID(pid*1000 + i), Handle: locks.HandleID(pid*1000 + i),
			Mode: locks.Write, Range: locks.Whole, Program: locks.Program{PID: pid},
		}
		if made && rnd.IntN(2) == 0 {
			r.Born = born
			if rnd.IntN(4) == 0 {
				r.Mode = locks.Read
			}
		} else if rnd.IntN(2) == 0 {
			r.Mode = locks.Read
		}
		if f.hard && r.Born == 0 && rnd.IntN(5) == 0 {
			r.Try = true
		}
		if rnd.IntN(4) == 0 {
			sleep(60)
		}
		cancel := make(chan struct{})
		var stop *time.Timer
		if rnd.IntN(15) == 0 {
			stop = time.AfterFunc(time.Duration(rnd.IntN(5000))*time.Microsecond, func() { close(cancel) })
		}
		var err error
		g, ok := n.LockNow(r)
		if !ok {
			g, err = n.Lock(cancel, r)
		}
		if stop != nil {
			stop.Stop()
		}
		if errors.Is(err, locks.ErrInterrupted) {
			continue
		}
		if f.hard && (errors.Is(err, locks.ErrLost) || r.Try && (errors.Is(err, locks.ErrWouldBlock) || errors.Is(err, locks.ErrUnavailable))) {
			sleep(2)
			continue
		}
		if err != nil {
			f.mu.Lock()
			f.fail("%s opens %v: %v", n.id, k, err)
			f.mu.Unlock()
			return
		}
		f.begin(n, r, g)
		sleep(1 + rnd.IntN(2)*rnd.IntN(20))
		f.end(n, r, g)
		if f.hard && k.Class == locks.Flock && rnd.IntN(2) == 0 {
			n.Closing(k, r.Handle)
			if rnd.IntN(2) == 0 {
				sleep(3)
			} else if rnd.IntN(4) == 0 {
				sleep(80)
			}
		}
		n.UnlockHandle(k, r.Handle, "closed")
	}
}

// flush, forget and clean are the files of n.
func (f *manyFiles) flush(n *node, k locks.Key) error {
	f.mu.Lock()
	x := f.files[k]
	v, ok := x.unwritten[n.id]
	f.mu.Unlock()
	if ok {
		time.Sleep(time.Duration(v%4) * time.Millisecond)
		f.mu.Lock()
		x.stored = max(x.stored, v)
		if x.unwritten[n.id] == v {
			delete(x.unwritten, n.id)
		}
		f.mu.Unlock()
	}
	return nil
}

func (f *manyFiles) forget(n *node, k locks.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.files[k].cached, n.id)
	return nil
}

func (f *manyFiles) clean(n *node, k locks.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.files[k]
	if x == nil {
		return true
	}
	_, ok := x.unwritten[n.id]
	return !ok
}

// look compares what the nodes think of each other: I1 of package rw, with what
// is delegated.
func (f *manyFiles) look() {
	var nodes []*node
	for _, id := range f.ids {
		nodes = append(nodes, f.nodes[id])
	}
	for _, n := range nodes {
		n.Engine.mu.Lock()
		defer n.Engine.mu.Unlock()
		if n.phase != active || n.view.Epoch != f.epoch {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range nodes {
		if n.borrowed.all {
			f.loaned++
		}
		for k, en := range n.entries.all {
			if en.back != nil && en.back.ticket != 0 {
				f.asking++
			}
			if err := en.machine.Check(); err != nil {
				f.fail("%s %v: %v", n.id, k, err)
			}
			asks := map[locks.NodeID]bool{}
			for _, id := range en.machine.Suspects(locks.Write, locks.Whole) {
				asks[id] = true
			}
			for _, o := range nodes {
				if o == n || asks[o.id] {
					continue
				}
				gave := o.lent.to == n.id
				if there := o.entries.all[k]; there != nil {
					gave = false
					for _, id := range there.machine.Suspects(locks.Read, locks.Whole) {
						gave = gave || id == n.id
					}
				}
				if !gave {
					f.fail("I1: %s may write %v without asking %s, which does not know that", n.id, k, o.id)
				}
			}
		}
		for _, o := range nodes {
			if o != n && n.lent.to == o.id && o.lent.to == n.id {
				f.fail("%s and %s delegate to each other", n.id, o.id)
			}
		}
	}
}

// idle checks that n has forgotten everything.
func (f *manyFiles) idle(n *node) {
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	b, l := n.borrowed, n.lent
	if len(n.entries.all) > 0 || b.all || l.to != "" || b.told != nil || len(b.asked)+len(b.from) > 0 || b.giving || b.since != nil {
		f.fail("%s still has %d files, and borrowed %+v, lent %+v", n.id, len(n.entries.all), *b, *l)
	}
}

// noErrors is a log. An error in it is one of the program: no member does
// anything here that it may not.
type noErrors manyFiles

func (l *noErrors) Enabled(_ context.Context, v slog.Level) bool { return v >= slog.LevelError }
func (l *noErrors) WithAttrs([]slog.Attr) slog.Handler           { return l }
func (l *noErrors) WithGroup(string) slog.Handler                { return l }

func (l *noErrors) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	f := (*manyFiles)(l)
	go func() { // it is called with mutexes held
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fail("an error is logged: %s", text)
	}()
	return nil
}
