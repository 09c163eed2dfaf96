package engine

import (
	"time"

	"dmxfs/locks"
)

// place identifies a request that a program may repeat after a signal: the
// kernel sends it again with SA_RESTART, the Go runtime retries it itself.
type place struct {
	key   locks.Key
	owner locks.OwnerID
	pid   int
	mode  locks.Mode
	rng   locks.Range
}

func placeOf(r *locks.Request) place {
	return place{r.Key, r.Owner, r.Program.PID, r.Mode, r.Range}
}

// places remembers the stamps of requests that were interrupted. It holds up
// nobody: others are granted meanwhile what they can be. But one that comes
// again stands before all that came after it.
type places struct {
	m map[place]kept
}

type kept struct {
	stamp locks.Stamp
	until time.Time
}

func (p *places) put(r *locks.Request, s locks.Stamp, now time.Time) {
	if r.Try || s.IsZero() {
		return
	}
	if p.m == nil {
		p.m = map[place]kept{}
	}
	p.m[placeOf(r)] = kept{s, now.Add(placeFor)}
}

func (p *places) take(r *locks.Request, now time.Time) locks.Stamp {
	if len(p.m) == 0 || r.Try {
		return locks.Stamp{}
	}
	k, ok := p.m[placeOf(r)]
	if !ok {
		return locks.Stamp{}
	}
	delete(p.m, placeOf(r))
	if now.After(k.until) {
		return locks.Stamp{}
	}
	return k.stamp
}

// expire forgets what is too old, and returns when to look again; 0 if there
// is nothing left.
func (p *places) expire(now time.Time) time.Duration {
	next := time.Duration(0)
	for k, v := range p.m {
		left := v.until.Sub(now)
		if left <= 0 {
			delete(p.m, k)
		} else if next == 0 || left < next {
			next = left
		}
	}
	return next
}

func (p *places) clear() { clear(p.m) }
