package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Damage is a part of the journal that can't be read. All else can.
type Damage struct {
	// First and Last are the numbers of the records in it. Last is an upper
	// bound where damage is at the end of the journal. When no record was
	// lost, but only a state block, Last is less than First.
	First, Last uint64
	Err         error
}

func (d Damage) String() string {
	if d.Last < d.First {
		return fmt.Sprintf("the state before record %d: %v", d.First, d.Err)
	}
	return fmt.Sprintf("records %d to %d: %v", d.First, d.Last, d.Err)
}

var errMissing = errors.New("missing")

// sequence follows the blocks of a scan and finds what is damaged or missing.
type sequence struct {
	next uint64  // the number that should come; 0: any
	bad  *Damage // its end is not known yet
}

// damaged takes account of a block that can't be read.
func (s *sequence) damaged(k blockKey, err error) (Damage, bool) {
	if k.kind == kindState {
		return Damage{First: k.seq, Last: k.seq - 1, Err: err}, true
	}
	if s.bad == nil {
		s.bad = &Damage{First: k.seq, Err: err}
	}
	return Damage{}, false
}

// block takes account of a block of records, and returns the damage before it.
func (s *sequence) block(b *block) (Damage, bool) {
	begin := b.first - b.gap
	d := Damage{First: s.next, Last: begin - 1, Err: errMissing}
	lost := s.next != 0 && begin > s.next
	if s.bad != nil {
		d.First, d.Err = s.bad.First, s.bad.Err
		lost = begin > d.First
		s.bad = nil
	}
	s.next = b.last + 1
	return d, lost
}

// end is called when there are no more blocks. All records up to last should
// have come; 0: that is not known.
func (s *sequence) end(last uint64) (Damage, bool) {
	if s.bad != nil {
		d := *s.bad
		s.bad = nil
		d.Last = max(last, d.First)
		if last == 0 {
			d.Last = d.First + blockRecords - 1
		}
		s.next = d.Last + 1
		return d, true
	}
	if s.next != 0 && s.next <= last {
		d := Damage{First: s.next, Last: last, Err: errMissing}
		s.next = last + 1
		return d, true
	}
	return Damage{}, false
}

// damageLog remembers damage, so that it is reported once.
type damageLog struct {
	mu  sync.Mutex
	all []Damage // in order of First
}

// add takes account of damage, and reports whether it was new.
func (l *damageLog) add(d Damage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearchFunc(l.all, d, func(a, b Damage) int {
		return cmp.Compare(a.First, b.First)
	})
	if !found {
		l.all = slices.Insert(l.all, i, d)
	}
	return !found
}

// from is the damage at or after floor.
func (l *damageLog) from(floor uint64) []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ds []Damage
	for _, d := range l.all {
		if d.First < floor && d.Last >= floor {
			d.First = floor
		}
		if d.First >= floor {
			ds = append(ds, d)
		}
	}
	return ds
}
