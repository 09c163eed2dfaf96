package web

import (
	"context"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
)

const (
	// within is how long a member has to answer for a snapshot that is not to wait
	// for it.
	within = 700 * time.Millisecond
	// pause is the time between two snapshots of a small cluster; one of 10,000
	// locks has pausePerLock for each besides.
	pause        = 400 * time.Millisecond
	pausePerLock = 50 * time.Microsecond
	// unwatched is how long snapshots are taken after somebody has asked for one.
	unwatched = 5 * time.Second
	// fresh is how old a snapshot may be that a page is made of, if no browser is
	// told of changes.
	fresh = time.Second
	// firstWait is how long a page waits for one that is fresh.
	firstWait = 2500 * time.Millisecond
)

// poller takes snapshots while somebody watches.
type poller struct {
	from snapshot.Source
	long time.Duration

	wake chan struct{} // has room for one

	mu      sync.Mutex
	last    *snapshot.Snapshot
	version uint64
	changed chan struct{} // closed when the version changes
	taken   chan struct{} // closed when there is a new snapshot
	asked   time.Time     // when a snapshot was asked for last
	lookers int           // who waits for changes
}

func newPoller(from snapshot.Source, long time.Duration) *poller {
	return &poller{from: from, long: long, wake: make(chan struct{}, 1), changed: make(chan struct{}), taken: make(chan struct{})}
}

// run takes snapshots until ctx ends.
func (p *poller) run(ctx context.Context) {
	for ctx.Err() == nil {
		rest := p.take(ctx)
		if !p.watched() {
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *poller) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lookers > 0 || time.Since(p.asked) < unwatched
}

// take takes a snapshot, and says how long to rest until the next one.
func (p *poller) take(ctx context.Context) time.Duration {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := snapshot.Take(limited, p.from, last, within)
	if ctx.Err() != nil {
		return 0
	}
	same := snapshot.Same(last, s, p.long)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = s
	close(p.taken)
	p.taken = make(chan struct{})
	if !same {
		p.version++
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return pause + time.Duration(len(s.Locks))*pausePerLock
}

// get is the last snapshot, or a new one if that is old. One that is old all the
// same, since the daemon does not answer, says so.
func (p *poller) get(ctx context.Context) (*snapshot.Snapshot, uint64) {
	limit := time.NewTimer(firstWait)
	defer limit.Stop()
	for {
		p.mu.Lock()
		p.asked = time.Now()
		s, v, taken, may := p.last, p.version, p.taken, fresh
		if p.lookers > 0 {
			may = unwatched // the next one is under way: who searches does not wait for it
		}
		p.mu.Unlock()
		p.poke()
		if s != nil && time.Since(s.At) < may {
			return s, v
		}
		select {
		case <-taken:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		if s == nil {
			return snapshot.None(time.Now(), errSlow), v
		}
		old := *s
		old.Err = errSlow
		return &old, v
	}
}

// poke has a snapshot taken soon, if nobody watched.
func (p *poller) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// watch calls each with the version when it is another one than the last, until
// ctx ends or each fails; and beat when nothing happened for a while.
func (p *poller) watch(ctx context.Context, each func(version uint64) error, beat func() error) error {
	p.mu.Lock()
	p.lookers++
	version, changed := p.version, p.changed
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lookers--
	}()
	p.poke()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	if err := each(version); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			err = beat()
		case <-changed:
			p.mu.Lock()
			version, changed = p.version, p.changed
			p.mu.Unlock()
			err = each(version)
		}
		if err != nil {
			return err
		}
	}
}
