package journal

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Recovery is what a journal found when it was opened.
type Recovery struct {
	// Clean: the last run closed the journal and left no request open, or
	// there was none.
	Clean bool
	// Lost are the records that were added for requests that the last run held
	// when it ended, and Withdrawn for those that it waited for.
	Lost, Withdrawn []Record
	// Damaged are parts of the journal that can't be read any more.
	Damaged []Damage
	// Rebuilt: the database was damaged, and was made anew of what is left.
	// The damaged one is kept here; it can be deleted.
	Rebuilt string
}

const (
	reasonLost      = "the daemon ended without releasing it"
	reasonWithdrawn = "the daemon ended while it waited"
	reasonEnded     = "it had ended when the daemon was killed, or was made again: the record of that is lost"
)

// restore reads what is in the store, and adds the records that close what the
// last run left open. They take the way of all records: if we stop before they
// are written, the next run adds them again; if we stop between some of them,
// it adds the rest.
func (j *Journal) restore() error {
	s, err := j.load()
	if err != nil {
		return err
	}
	if j.idx.floor > s.first {
		// The last run did not come to the end of deleting.
		if err := j.st.drop(j.idx.floor); err != nil {
			j.log.Warn("the space of old records can't be given back now", "error", err)
		}
	}
	if !s.closed {
		if err := j.replay(&s); err != nil {
			return err
		}
	}
	now := time.Now()
	last := now
	if s.newest != math.MinInt64 {
		last = time.Unix(0, s.newest)
	}
	j.age = newAgeClock(s.last.age, last, now, j.opt.up)
	j.buf.next = j.idx.end
	j.buf.stored = j.idx.end - 1
	j.w.next = j.idx.end
	j.recovery.Clean = !s.any || s.closed
	j.recovery.Damaged = j.damage.from(j.idx.floor)
	switch {
	case j.recovery.Clean:
	case !j.opt.GoesOn:
		j.closeOpen(now)
	case j.opt.Resumed != nil:
		j.closeEnded(now)
	}
	if old := j.recovery.Rebuilt; old != "" {
		j.Append(Record{Event: Note, Reason: "the journal's database was damaged and made anew of what is left; the old one is " + old})
	}
	j.noteDamage(j.recovery.Damaged)
	return nil
}

// survey is what a first look at all blocks finds.
type survey struct {
	any    bool
	first  uint64 // number of the first block
	begin  uint64 // number of the first record; 0: there is none
	last   block  // head of the last block
	closed bool   // it says that the journal was closed, and nothing open
	newest int64  // wall clock in the last block of records, Unix nanoseconds
	// state is where the newest complete state stands, if hasState.
	state    uint64
	hasState bool
	parts    parts
}

// parts puts together the state blocks of one place.
type parts struct {
	at    uint64
	next  uint16 // the part that is missing
	valid bool   // none is missing so far
}

// add reports whether the state at k.seq is now complete.
func (p *parts) add(k blockKey, b *block) bool {
	if k.part == 0 {
		*p = parts{at: k.seq, valid: true}
	}
	p.valid = p.valid && k.seq == p.at && k.part == p.next
	p.next++
	return p.valid && b.flags&flagMore == 0
}

// load reads the heads of all blocks into the index.
func (j *Journal) load() (survey, error) {
	s := survey{newest: math.MinInt64}
	x := &j.idx
	x.end = 1
	var seq sequence
	note := func(d Damage, ok bool) {
		if ok {
			j.damage.add(d)
		}
	}
	err := j.st.scan(blockKey{}, endKey, func(k blockKey, v []byte) bool {
		if !s.any {
			s.any, s.first = true, k.seq
		}
		s.closed = false
		x.end = max(x.end, k.seq)
		b, err := checkBlock(k, v)
		if err != nil {
			note(seq.damaged(k, err))
			return true
		}
		x.add(&b, len(v))
		s.last = b
		s.last.body = nil
		if !b.state() {
			if s.begin == 0 {
				s.begin = b.first - b.gap
			}
			note(seq.block(&b))
			s.newest = b.newest
		} else if s.parts.add(k, &b) {
			s.state, s.hasState = k.seq, true
			s.closed = b.flags&flagClosed != 0 && b.count == 0
		}
		return true
	})
	note(seq.end(0))
	if start := max(x.floor, 1); s.begin > start {
		note(Damage{First: start, Last: s.begin - 1, Err: errMissing}, true)
	}
	if err == nil && s.first < x.floor {
		err = j.reload()
	}
	x.end = max(x.end, seq.next)
	x.state, x.hasState = s.state, s.hasState
	return s, err
}

// reload makes the index anew, without what is before the floor and was not yet
// deleted. To cut that off would not do: an extent may begin before the floor
// and end after it.
func (j *Journal) reload() error {
	x := &j.idx
	x.extents, x.bytes, x.records = nil, 0, 0
	return j.st.scan(before(x.floor), endKey, func(k blockKey, v []byte) bool {
		if b, err := checkBlock(k, v); err == nil {
			x.add(&b, len(v))
		}
		return true
	})
}

// checkBlock parses the block that is stored under k.
func checkBlock(k blockKey, v []byte) (block, error) {
	b, err := parseBlock(v)
	if err == nil && b.key() != k {
		err = errors.New("it is in the place of another one")
	}
	return b, err
}

// replay finds the open requests: those of the last state, and what changed
// since.
func (j *Journal) replay(s *survey) error {
	from := blockKey{}
	if s.hasState {
		from = before(s.state)
	}
	var d decoder
	var buf []byte
	var p parts
	whole := !s.hasState
	return j.st.scan(from, endKey, func(k blockKey, v []byte) bool {
		b, err := checkBlock(k, v)
		if err != nil {
			return true // it is known
		}
		if b.state() {
			if whole || k.seq != from.seq {
				return true // it is not whole, or it would be the newest
			}
			whole = p.add(k, &b)
		}
		err = b.records(&d, &buf, func(r *Record) bool {
			j.open.apply(r)
			return true
		})
		if err != nil {
			j.damage.add(Damage{First: b.first, Last: b.last, Err: err})
		}
		return true
	})
}

// closeOpen adds the records that end the open requests, in their order.
func (j *Journal) closeOpen(now time.Time) {
	for recs := range j.open.stories() {
		r := story(recs)
		r.Time = now
		if held(recs) {
			r.Event, r.Reason = Lost, reasonLost
		} else {
			r.Event, r.Reason = Withdrawn, reasonWithdrawn
		}
		r.Final, r.Peer = false, ""
		j.buf.append(&r)
		if r.Event == Lost {
			j.recovery.Lost = append(j.recovery.Lost, r)
		} else {
			j.recovery.Withdrawn = append(j.recovery.Withdrawn, r)
		}
	}
	j.Append(Record{
		Time: now, Event: Recovered,
		Reason: fmt.Sprintf("the last run did not end in order: %d locks lost, %d waiting requests withdrawn",
			len(j.recovery.Lost), len(j.recovery.Withdrawn)),
	})
}

// closeEnded adds the records that end what is open and does not go on.
func (j *Journal) closeEnded(now time.Time) {
	for recs := range j.open.stories() {
		r := story(recs)
		if j.opt.Resumed(r.Request) {
			continue
		}
		r.Event, r.Final = Withdrawn, false
		if held(recs) {
			r.Event, r.Final = Released, true
		}
		r.Time, r.Reason, r.Peer = now, reasonEnded, ""
		j.buf.append(&r)
	}
}

// noteDamage tells those who read the journal what is missing from it.
func (j *Journal) noteDamage(ds []Damage) {
	if len(ds) == 0 {
		return
	}
	const most = 8
	var s strings.Builder
	for i, d := range ds {
		if i == most {
			fmt.Fprintf(&s, "; and %d more", len(ds)-most)
			break
		}
		if i > 0 {
			s.WriteString("; ")
		}
		s.WriteString(d.String())
	}
	j.log.Warn("the journal is damaged", "lost", s.String())
	j.Append(Record{Event: Note, Reason: "records can't be read: " + s.String()})
}
