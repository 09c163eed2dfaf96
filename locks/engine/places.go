package engine

import (
	"time"

	"github.com/dmxfs/dmxfs/locks"
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

// places remembers where requests that were interrupted stood, and since when.
// It holds up nobody: others are granted meanwhile what they can be. But one
// that comes again stands before all that came after it. Threads of a process
// may wait for the same; which of them comes again first does not matter.
type places struct {
	m map[place][]kept
	// came and left are told of each, unless they are nil.
	came func(*place, *kept)
	left func(*kept)
}

type kept struct {
	stamp locks.Stamp // zero: it had none yet, see gate
	since time.Time
	until time.Time
	line  uint32 // of the ledger
	era   uint32 // of the line
}

func (p *places) put(r *locks.Request, s locks.Stamp, since, now time.Time) {
	if r.Try {
		return
	}
	if p.m == nil {
		p.m = map[place][]kept{}
	}
	at := placeOf(r)
	ks := append(p.m[at], kept{stamp: s, since: since, until: now.Add(placeFor)})
	p.m[at] = ks
	if p.came != nil {
		p.came(&at, &ks[len(ks)-1])
	}
}

// take is the place of r; without one it is a new request, of now.
func (p *places) take(r *locks.Request, now time.Time) (s locks.Stamp, since time.Time) {
	if len(p.m) == 0 || r.Try {
		return locks.Stamp{}, now
	}
	for ks := p.m[placeOf(r)]; len(ks) > 0; {
		k := ks[0]
		p.goes(&k)
		if ks = ks[1:]; len(ks) == 0 {
			delete(p.m, placeOf(r))
		} else {
			p.m[placeOf(r)] = ks
		}
		if !now.After(k.until) {
			return k.stamp, k.since
		}
	}
	return locks.Stamp{}, now
}

// expire forgets what is too old, and returns when to look again; 0 if there
// is nothing left.
func (p *places) expire(now time.Time) time.Duration {
	next := time.Duration(0)
	for k, ks := range p.m {
		for len(ks) > 0 && !now.Before(ks[0].until) { // the oldest is the first
			p.goes(&ks[0])
			ks = ks[1:]
		}
		if len(ks) == 0 {
			delete(p.m, k)
			continue
		}
		p.m[k] = ks
		if left := ks[0].until.Sub(now); next == 0 || left < next {
			next = left
		}
	}
	return next
}

func (p *places) clear() { clear(p.m) }

func (p *places) goes(k *kept) {
	if p.left != nil {
		p.left(k)
	}
}
