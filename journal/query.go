package journal

import (
	"context"
	"errors"
	"fmt"
)

// Query calls f for the records that pass the filter, in the order of their
// numbers, until f returns an error, which is then returned, or ctx ends, whose
// cause is then returned. Records that were appended before the call are found,
// also those that are not yet written. Without Follow it returns nil after the
// last one.
//
// A query does not hold up the journal, however slow f is; but what the
// journal deletes meanwhile, a slow one misses. Damaged records are left out,
// and reported in the log and by a record of their own.
func (j *Journal) Query(ctx context.Context, filter Filter, f func(Record) error) error {
	m, err := newMatcher(filter)
	if err != nil {
		return err
	}
	select {
	case <-j.stop:
		return fmt.Errorf("journal: %w", ErrClosed)
	default:
	}
	if filter.Follow && j.readOnly {
		return fmt.Errorf("journal: %w: there will be no new records to follow", ErrReadOnly)
	}
	q := &query{j: j, ctx: ctx, m: m, f: f}
	if m.Last > 0 {
		q.tail = &lastOf{max: m.Last}
	}
	err = q.run()
	if errors.Is(err, errStop) {
		err = q.err
	}
	return err
}

// query is a query under way.
type query struct {
	j   *Journal
	ctx context.Context
	m   *matcher
	f   func(Record) error
	err error // of f, or of ctx; then all methods return errStop

	at   blockKey // blocks before it are done
	seen uint64   // records up to this one are done
	tail *lastOf  // records wait here, if only the last ones count
	seq  sequence
	dec  decoder
	buf  []byte
}

var errStop = errors.New("the query ends")

func (q *query) run() error {
	if err := q.carried(); err != nil {
		return err
	}
	q.at = q.j.idx.begin(q.m)
	until := q.j.buf.last()
	recent := make([]Record, 512)
	for first := true; ; {
		// What is stored now is read from the store, what is not from memory.
		// In between some is stored that is found in neither: then once more.
		_, stored, _ := q.j.buf.after(q.seen, nil)
		if q.seen < stored {
			if err := q.fromStore(stored); err != nil {
				return err
			}
		}
		n, stored, more := q.j.buf.after(q.seen, recent)
		if q.seen < stored {
			continue
		}
		for i := range recent[:n] {
			if err := q.put(&recent[i]); err != nil {
				return err
			}
			q.seen = recent[i].Seq
		}
		if first {
			if n == len(recent) && q.seen < until {
				continue
			}
			first = false
			if err := q.flushTail(); err != nil {
				return err
			}
			if !q.m.Follow {
				return nil
			}
			continue
		}
		if n == len(recent) {
			continue
		}
		select {
		case <-more:
		case <-q.j.stopped:
			if n == 0 {
				return fmt.Errorf("journal: %w", ErrClosed)
			}
		case <-q.ctx.Done():
			return context.Cause(q.ctx)
		}
	}
}

// put hands over a record that may pass.
func (q *query) put(r *Record) error {
	if q.ctx.Err() != nil {
		q.err = context.Cause(q.ctx)
		return errStop
	}
	if !q.m.match(r) {
		return nil
	}
	if q.tail != nil {
		q.tail.add(*r)
		return nil
	}
	if q.err = q.f(*r); q.err != nil {
		return errStop
	}
	return nil
}

func (q *query) flushTail() error {
	if q.tail == nil {
		return nil
	}
	recs := q.tail.take()
	q.tail = nil
	for i := range recs {
		if q.err = q.f(recs[i]); q.err != nil {
			return errStop
		}
	}
	return nil
}

// carried hands over the records of open requests that are repeated in the
// newest state, since they themselves are deleted.
func (q *query) carried() error {
	x := &q.j.idx
	for {
		x.mu.RLock()
		state, ok, floor := x.state, x.hasState, x.floor
		x.mu.RUnlock()
		q.seen = max(q.m.After, floor-min(floor, 1))
		if !ok {
			return nil
		}
		var recs []Record
		var p parts
		whole := false
		err := q.j.st.scan(before(state), blockKey{seq: state, kind: kindRecords}, func(k blockKey, v []byte) bool {
			b, err := checkBlock(k, v)
			if err != nil {
				q.report(q.seq.damaged(k, err))
				return true
			}
			if whole {
				return false
			}
			whole = p.add(k, &b)
			_ = b.records(&q.dec, &q.buf, func(r *Record) bool {
				if r.Seq < floor {
					recs = append(recs, *r)
				}
				return true
			})
			return true
		})
		if err != nil {
			return err
		}
		x.mu.RLock()
		again := x.floor != floor
		x.mu.RUnlock()
		if again {
			continue
		}
		for i := range recs {
			if err := q.put(&recs[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// fromStore hands over the records in the store up to number stored.
func (q *query) fromStore(stored uint64) error {
	var stop error
	err := q.j.st.scan(q.at, endKey, func(k blockKey, v []byte) bool {
		b, err := checkBlock(k, v)
		if err != nil {
			q.report(q.seq.damaged(k, err))
			return true
		}
		q.at = k.next()
		if b.state() {
			return true
		}
		q.report(q.seq.block(&b))
		if b.last <= q.seen {
			return true
		}
		if !q.m.block(&b) {
			q.seen = b.last
			return true
		}
		err = b.records(&q.dec, &q.buf, func(r *Record) bool {
			if r.Seq > q.seen {
				stop = q.put(r)
				q.seen = r.Seq
			}
			return stop == nil
		})
		if err != nil {
			q.report(Damage{First: b.first, Last: b.last, Err: err}, true)
			q.seen = b.last
		}
		return stop == nil
	})
	if stop != nil {
		return stop
	}
	if err != nil {
		return fmt.Errorf("journal: reading: %w", err)
	}
	q.report(q.seq.end(stored))
	q.seen = max(q.seen, stored)
	return nil
}

// report tells of damage, unless it is known, or what is missing was deleted.
func (q *query) report(d Damage, found bool) {
	if !found {
		return
	}
	x := &q.j.idx
	x.mu.RLock()
	floor := x.floor
	x.mu.RUnlock()
	if d.First < floor || !q.j.damage.add(d) {
		return
	}
	q.j.noteDamage([]Damage{d})
}
