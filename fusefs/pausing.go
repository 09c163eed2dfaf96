package fusefs

import (
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
)

// The process that serves a mount can be replaced while programs use it, see
// [Server.Pause]. For that it is brought to rest:
//
//   - no request is read any more;
//   - requests that wait for other hosts go on waiting, and what they wait for
//     leads to nothing: they stay at the gate. None of them has changed
//     anything, so the next process does them anew, see bequeathed;
//   - all others end, and are answered;
//   - background tasks end, or rest; so does what the lock engine asks for when a
//     lock comes or goes (Refresh, Flush);
//   - then the kernel is told nothing unasked any more, the lock engine waits, and
//     no lock is given up.
//
// A notification that is under way may wait for a request that is not read: then
// the mount goes on for a moment, and is paused again.

// pausing is whether a mount is at rest, or on its way there.
type pausing struct {
	on   atomic.Bool // no request is read, and who has waited stays at the gate
	shut atomic.Bool // all is at rest, see notifications and guard

	// waiting are the requests that wait where they can be bequeathed. busy are
	// the background tasks that do not rest; telling are the notifications, and
	// what the lock engine asks for.
	waiting, busy, telling atomic.Int64

	// served is the Locker of the mount; nil before Serve has set it.
	served atomic.Pointer[guard]

	// succeeded is closed when the next process goes on.
	succeeded chan struct{}

	mu     sync.Mutex
	goesOn chan struct{} // closed by the end of a pause
	owed   []owedUnlock  // what was to be given up since shut
}

// bequeathed is the status of a request that is not answered: the next process
// does it anew. It is none that the kernel would accept.
const bequeathed = fuse.Status(maxErrno)

func newPausing() *pausing { return &pausing{succeeded: make(chan struct{})} }

func (p *pausing) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goesOn = make(chan struct{})
	p.on.Store(true)
}

func (p *pausing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on.Swap(false) {
		close(p.goesOn)
	}
}

// gate waits while the mount is paused. It is false if the next process goes on.
func (p *pausing) gate() bool {
	for p.on.Load() {
		p.mu.Lock()
		goesOn := p.goesOn
		p.mu.Unlock()
		select {
		case <-goesOn:
		case <-p.succeeded:
			return false
		}
	}
	return true
}

// enter is called by a request that has changed nothing yet, before it waits for
// another host; then leave or give.
func (p *pausing) enter() { p.waiting.Add(1) }

// leave ends the wait of a request that goes on now. If it is false it must not:
// it is bequeathed.
func (p *pausing) leave() bool {
	for {
		p.waiting.Add(-1)
		if !p.on.Load() {
			return true
		}
		p.waiting.Add(1)
		if !p.gate() {
			p.waiting.Add(-1)
			return false
		}
	}
}

// giveUp ends the wait of a request that ends now.
func (p *pausing) giveUp() { p.waiting.Add(-1) }

// stay is called by a request that has changed something, or has locked what
// only it gives up: it is not bequeathed, wherever it waits until done is called.
func (p *pausing) stay() (done func()) {
	p.waiting.Add(-1)
	return func() { p.waiting.Add(1) }
}

// rest is called by a background task that waits for something to do; then work.
func (p *pausing) rest() { p.busy.Add(-1) }

// work is false if the next process goes on with the task.
func (p *pausing) work() bool {
	for {
		p.busy.Add(1)
		if !p.on.Load() {
			return true
		}
		p.busy.Add(-1)
		if !p.gate() {
			p.busy.Add(1)
			return false
		}
	}
}

// tell is called before a notification, or what the lock engine asks for, and told
// after it. It is false if the next process makes it needless.
func (p *pausing) tell() bool {
	for {
		p.telling.Add(1)
		if !p.shut.Load() {
			return true
		}
		p.telling.Add(-1)
		if !p.gate() {
			return false
		}
	}
}

func (p *pausing) told() { p.telling.Add(-1) }

// owedUnlock is a lock that is to be given up by the next process.
type owedUnlock struct {
	key    locks.Key
	handle locks.HandleID // 0: owner and rg say what
	owner  locks.OwnerID
	rg     locks.Range
	why    string
}

// guard is a Locker that keeps back what is given up while all is at rest: the
// lock engine may be on its way to the next process.
type guard struct {
	Locker
	pause *pausing
}

// keeps reports whether x is kept back.
func (l *guard) keeps(x owedUnlock) bool {
	p := l.pause
	if !p.shut.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shut.Load() {
		return false
	}
	p.owed = append(p.owed, x)
	return true
}

func (l *guard) Unlock(k locks.Key, o locks.OwnerID, rg locks.Range) bool {
	return !l.keeps(owedUnlock{key: k, owner: o, rg: rg}) && l.Locker.Unlock(k, o, rg)
}

func (l *guard) UnlockOwner(k locks.Key, o locks.OwnerID) {
	if !l.keeps(owedUnlock{key: k, owner: o, rg: locks.Whole}) {
		l.Locker.UnlockOwner(k, o)
	}
}

func (l *guard) UnlockHandle(k locks.Key, h locks.HandleID, why string) {
	if !l.keeps(owedUnlock{key: k, handle: h, why: why}) {
		l.Locker.UnlockHandle(k, h, why)
	}
}

// giveUp gives up what was kept back.
func (x *owedUnlock) giveUp(l Locker) {
	if x.handle != 0 {
		l.UnlockHandle(x.key, x.handle, x.why)
		return
	}
	l.Unlock(x.key, x.owner, x.rg)
}

// open gives up what was kept back, and goes on.
func (p *pausing) open() {
	l := p.served.Load().Locker
	p.mu.Lock()
	p.shut.Store(false)
	owed := p.owed
	p.owed = nil
	p.mu.Unlock()
	for i := range owed {
		owed[i].giveUp(l)
	}
}

// await waits for done, or until over is closed, for a request that has changed
// nothing yet. then says how it goes on.
func (p *pausing) await(done, over <-chan struct{}, then func() fuse.Status) fuse.Status {
	p.enter()
	select {
	case <-done:
		if !p.leave() {
			return bequeathed
		}
		return then()
	case <-p.succeeded:
		p.giveUp()
		return bequeathed
	case <-over:
		p.giveUp()
		return fuse.EINTR
	}
}
