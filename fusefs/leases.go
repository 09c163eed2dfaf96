package fusefs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/lease"
)

// LeasePath is what the lock of all names and attributes is called, in the place
// of the path of a file: a name that no program gets at. Its algorithm must be one
// with shared locks, on all nodes.
const LeasePath = privateDir + "/names"

// leaseKey is that lock; see package lease. (It is an open lock because only of
// those the engine tells when another node wants them.)
var leaseKey = locks.Key{File: LeasePath, Class: locks.Open}

// leases see to it that other hosts keep nothing for long while this one changes
// names or attributes, and decide what this one may keep.
type leases struct {
	*base
	longCache *longCache

	// on: the nodes have agreed to ask before they change anything. keeps: this
	// one may keep something, since it sees at once what others change.
	on, keeps bool

	mu     sync.Mutex
	m      lease.Machine
	handle locks.HandleID // by which the lock is held; 0: it is not
	keptAt int64          // when it was last granted to keep something, on the server's clock
	trusts int64          // from when on what a client that lingers says is new, likewise
	tenure locks.Tenure   // of its grant
	round  *leaseRound    // what changes that have to wait wait for
	unsure locks.Tenure   // for which somebody waits to know whether this node is cut off; or 0
	asked  locks.HandleID // by which the lock is asked for; 0: it is not
	broken bool           // an admin has broken it since

	// former is the handle by which the process before this one had the lease, and given is
	// closed when that is given up.
	former locks.HandleID
	given  chan struct{}

	kick chan struct{}   // has an element when run is to look
	over <-chan struct{} // closed when the mount ends
}

// leaseRound ends when those who wait may try again, or with an error.
type leaseRound struct {
	done chan struct{}
	err  error // set before done is closed
}

func newLeaseRound() *leaseRound { return &leaseRound{done: make(chan struct{})} }

// open finds out whether anything is kept here for long: not where the client of
// the storage has caches of its own, since what it does not see yet would be kept
// as if it were true, unless these are known to be short (see clientForgets); and
// not where names that differ in case are one, of which the kernel does not know,
// and would keep one name when the other one is removed.
func (l *leases) open(folds bool) {
	l.on = l.opts.CacheTime > l.opts.TTL
	l.m.Haste = int64(l.opts.LeaseHaste)
	s := &l.storage
	l.keeps = l.on && l.entryTTL > 0 && s.Known && s.StableInodes && (!s.ClientCache || s.Lingers) && !l.tree.ids.paths && !folds
}

func (l *leases) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// again lets those who wait try again. REQUIRES: l.mu held.
func (l *leases) again(err error) {
	l.round.err = err
	close(l.round.done)
	l.round = newLeaseRound()
}

// begin asks whether a change may begin now; if so, end must be called when it is
// over. If not it has to wait for the round, and then be asked again. So it has where
// this node is cut off, as far as it knows: then others may keep what is changed.
func (l *leases) begin() (wait *leaseRound) {
	if !l.on {
		return nil
	}
	l.mu.Lock()
	begun, wait, tenure := l.m.Begin(l.now()), l.round, l.tenure
	l.mu.Unlock()
	if !begun {
		l.wake()
		return wait
	}
	if l.locker.Admit(closedChan, tenure) == nil {
		return nil
	}
	l.end(true)
	l.awaitAdmission(tenure)
	return wait
}

// awaitAdmission ends the round when this node is sure again that it has the lease. If it
// has lost it, lost does that.
func (l *leases) awaitAdmission(tenure locks.Tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsure == tenure {
		return
	}
	l.unsure = tenure
	l.background(func() {
		l.pause.rest()
		err := l.locker.Admit(l.over, tenure)
		l.pause.work()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.unsure == tenure {
			l.unsure = 0
		}
		if !errors.Is(err, locks.ErrLost) && !closed(l.over) {
			l.again(err)
		}
	})
}

// end ends a change. One that has not begun here, since it must not wait, has who
// keeps what it has changed drop that now.
func (l *leases) end(begun bool) {
	if !l.on || !begun && l.begin() != nil {
		return
	}
	l.mu.Lock()
	l.m.End(l.now())
	awaited := l.m.Awaited()
	l.mu.Unlock()
	if awaited {
		l.wake()
	}
}

// keepsSome reports whether the kernel may keep something for long.
func (l *leases) keepsSome() bool {
	if !l.keeps {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Held() == lease.Keep
}

// since is when something was found out: under which lease, and after how many
// locks have come here and names were changed.
type since struct {
	lease    uint64 // of [lease.Machine.Look]; 0: nothing is kept for long
	arrivals uint64 // arrivals.all
	renames  uint64 // longCache.renames
}

// look is called before the storage is asked for what the kernel could keep.
func (l *leases) look() since {
	arrivals := l.arrivals.all.Load() // before: a lock that comes later ends what is found out
	return since{l.lookNow(), arrivals, l.longCache.renames.Load()}
}

// clientForgets is after how long a client that lingers goes by nothing that it knew
// before: it answers from its caches for a second, and the kernel keeps such an answer
// for another one. It is waited for twice, since the kernel counts from when it has taken
// the answer over, which can be late on a busy machine.
const clientForgets = 2500 * time.Millisecond

// lookNow is [lease.Machine.Look]. For a while after a lock has come here others
// are likely to come, and each would make the kernel drop it all.
func (l *leases) lookNow() (gen uint64) {
	if !l.keeps {
		return 0
	}
	l.stats.Looks.Add(1)
	rest := handoverTime
	if l.storage.Lingers {
		rest = 2 * clientForgets
	}
	if t := l.arrivals.last.Load(); t != nil && time.Since(*t) <= rest {
		return 0
	}
	l.mu.Lock()
	gen, ask := l.m.Look(l.now())
	tenure := l.tenure
	if l.storage.Lingers && l.now() <= l.trusts {
		gen = 0 // the client may know something from before others changed it
	}
	l.mu.Unlock()
	if ask {
		l.wake()
	}
	if gen != 0 && l.locker.Admit(closedChan, tenure) != nil {
		return 0 // cut off, it seems: others may go on
	}
	return gen
}

// current reports whether a client that lingers knows what was changed until now, so that
// it need not be made to look anew at what it was made to look at before: nobody else
// changes anything, and what it knew while others did it has forgotten.
func (l *leases) current() bool { return l.storage.Lingers && l.lookNow() != 0 }

// reads is called before and after a directory is read that was opened at a time: a translator
// of GlusterFS (readdir-ahead) may have read it then, and what that tells, the others take for
// new.
func (l *leases) reads(opened int64) {
	if !l.keeps || !l.storage.Lingers {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if opened <= l.keptAt+clientForgets.Milliseconds() {
		l.trusts = max(l.trusts, l.now()+clientForgets.Milliseconds())
	}
}

// keep writes down what the kernel is going to be told, and reports whether it may
// keep that for Options.CacheTime.
func (l *leases) keep(s since, in *fuse.InHeader, x cachedName, what cachedThing) bool {
	if s.lease == 0 || in.Pid == 0 {
		return false // when that thread has taken the answer over could not be seen
	}
	l.mu.Lock()
	tenure := l.tenure
	l.mu.Unlock()
	if l.locker.Admit(closedChan, tenure) != nil {
		return false // the storage took long to answer, and others may have gone on
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Keeps(s.lease) && l.longCache.add(in, x, what, s, l.now())
}

// renamed is longCache.renamed, during a change.
func (l *leases) renamed(x, y cachedName, exchange, done bool) {
	if !l.keeps {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.longCache.renamed(x, y, exchange, done) {
		l.m.Added()
	}
}

// stillKeeps reports whether what was found out since look gave gen may be kept.
func (l *leases) stillKeeps(gen uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m.Keeps(gen)
}

// wanted tells that another node wants to change something. It returns at once.
func (l *leases) wanted() {
	l.mu.Lock()
	l.m.Wanted()
	l.mu.Unlock()
	l.wake()
}

// lost tells that this node has lost its locks.
func (l *leases) lost() {
	if !l.on {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose()
}

// lose is lost. REQUIRES: l.mu held.
func (l *leases) lose() {
	l.m.Lost()
	l.handle = 0
	l.again(nil)
	l.wake()
}

// run does what the machine says, until ctx ends: then it gives the lock up.
func (l *leases) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.mu.Lock()
		task, at := l.m.Next(l.now())
		l.mu.Unlock()
		switch task {
		case lease.LockChange:
			l.lock(ctx, locks.Read)
		case lease.TryKeep:
			l.lock(ctx, locks.Write)
		case lease.Drop:
			l.mu.Lock()
			l.again(nil) // see [lease.Machine.Begin]
			l.mu.Unlock()
			l.background(func() {
				l.longCache.drop(ctx)
				l.mu.Lock()
				l.m.Dropped()
				l.mu.Unlock()
				l.wake()
			})
		case lease.Release:
			l.release()
		case lease.Nothing:
			wait := time.Hour
			if at > 0 {
				wait = time.Duration(max(at-l.now(), 1)) * time.Millisecond
			}
			timer.Reset(wait)
			l.pause.rest()
			select {
			case <-l.kick:
			case <-timer.C:
			case <-ctx.Done():
			}
			if !l.pause.work() {
				return
			}
		}
	}
	l.release()
	l.mu.Lock()
	l.again(locks.ErrUnavailable) // what comes now is of no program any more
	l.mu.Unlock()
}

// lock takes the lock: for reading, to change; or tries it for writing, to keep.
func (l *leases) lock(ctx context.Context, mode locks.Mode) {
	h := locks.HandleID(l.newID())
	l.mu.Lock()
	l.asked, l.broken = h, false
	l.mu.Unlock()
	g, err := l.lockBehind(ctx.Done(), &locks.Request{
		Key: leaseKey, Path: LeasePath, Owner: sharedOwner, Handle: h, Mode: mode, Range: locks.Whole,
		Try: mode == locks.Write, Blind: true, Program: locks.Program{Command: defaultSubtype},
	})
	if errors.Is(err, locks.ErrBequeathed) {
		return
	}
	l.mu.Lock()
	old := l.handle
	l.asked = 0
	switch {
	case err == nil && l.locker.Tenure() == g.Tenure && !l.broken:
		l.handle, l.tenure = h, g.Tenure
		l.ledger.leased(uint64(h))
		if mode == locks.Write {
			l.keptAt = l.now() // before this, others changed names
			l.trusts = l.keptAt + 2*clientForgets.Milliseconds()
		}
		l.m.Got(l.now())
		l.again(nil)
	case mode == locks.Write:
		l.m.Refused(l.now())
		h, old = 0, 0
		l.again(nil)
	default:
		l.m.Failed()
		h, old = 0, 0
		if errors.Is(err, locks.ErrLost) {
			err = nil // this node is about to join anew
		}
		l.again(err)
	}
	l.mu.Unlock()
	if old != 0 {
		l.locker.UnlockHandle(leaseKey, old, "replaced")
	}
	if mode == locks.Write && h != 0 && l.locker.Wanted(leaseKey) != 0 {
		l.wanted() // by one that has asked just before the grant
	}
}

// giveUp gives up the lease that is held by one of handles, which an admin breaks: one to
// keep as it would be for another node that wants to change something, unless that takes
// longer than the kernel keeps anything.
func (l *leases) giveUp(ctx context.Context, handles []locks.HandleID) error {
	late := time.NewTimer(l.opts.CacheTime + tickSlack)
	defer late.Stop()
	if l.former != 0 && slices.Contains(handles, l.former) {
		select {
		case <-l.given:
		case <-late.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	}
	for over := false; ; {
		l.mu.Lock()
		round, held := l.round, l.handle != 0 && slices.Contains(handles, l.handle)
		if slices.Contains(handles, l.asked) {
			l.broken = true // the grant was seen before it got here
		}
		if held && (l.m.Held() != lease.Keep || over) {
			l.lose()
			held = false
		}
		if held {
			l.m.Wanted()
		}
		l.mu.Unlock()
		if !held {
			return nil
		}
		l.wake()
		select {
		case <-round.done:
		case <-late.C:
			over = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *leases) release() {
	l.mu.Lock()
	h := l.handle
	l.handle = 0
	l.mu.Unlock()
	if h != 0 {
		l.locker.UnlockHandle(leaseKey, h, "idle, or another node waits")
	}
	l.mu.Lock()
	l.m.Released(l.now())
	l.again(nil)
	l.mu.Unlock()
}
