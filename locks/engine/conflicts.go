package engine

import (
	"iter"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// holding adds tickets that are held to ids, which are most then.
func (en *entry) holding(ids []locks.TicketID, most int) []locks.TicketID {
	if len(ids) >= most {
		return ids
	}
	for _, t := range en.tickets {
		if t.held && !slices.Contains(ids, t.ID) {
			if ids = append(ids, t.ID); len(ids) == most {
				break
			}
		}
	}
	return ids
}

// inTheWay yields the held tickets of this node that stand in the way of mode on
// r, those of except left out, in no order.
func (en *entry) inTheWay(mode locks.Mode, r locks.Range, except *locks.OwnerID) iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		if en.free(mode) {
			return
		}
		for t := range en.withHandle() {
			if (except == nil || t.req.Owner != *except) && en.stands(t, mode, r) && !yield(t) {
				return
			}
		}
		for id, o := range en.owners {
			if except != nil && id == *except {
				continue
			}
			for t := range en.inWay(o, mode, r) {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// withHandle yields what is held through open files, in class Open, and what is
// on its way.
func (en *entry) withHandle() iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		for _, t := range en.handles {
			if !yield(t) {
				return
			}
		}
		for _, ts := range en.underway {
			for _, t := range slices.Clone(ts) { // some may arrive meanwhile
				if !yield(t) {
					return
				}
			}
		}
	}
}

// free reports whether nothing that is held stands in the way of mode, whatever
// the range, as at a glance.
func (en *entry) free(mode locks.Mode) bool {
	return !en.apart() && mode == locks.Read && en.written == 0
}

// apart reports whether what is held of en excludes everything else, whatever
// its range and mode.
func (en *entry) apart() bool { return !en.alg.Shared || len(en.barrier) > 0 }

// inWay yields what o holds that stands in the way of mode on r, by offset.
func (en *entry) inWay(o *owner, mode locks.Mode, r locks.Range) iter.Seq[*ticket] {
	if en.apart() {
		return o.slice(0, o.len())
	}
	only := locks.Mode(0)
	if mode == locks.Read {
		only = locks.Write
	}
	lo, hi := o.window(r)
	return func(yield func(*ticket) bool) {
		for t := range o.some(lo, hi, only) {
			if en.stands(t, mode, r) && !yield(t) {
				return
			}
		}
	}
}

// stands reports whether t, which is held, stands in the way of mode on r.
func (en *entry) stands(t *ticket, mode locks.Mode, r locks.Range) bool {
	return en.apart() || t.Range.Overlaps(r) && (t.Mode == locks.Write || mode == locks.Write)
}

// conflict is t as it is told of. rng is the range of the lock that it is a
// piece of.
func (en *entry) conflict(t *ticket, rng locks.Range) locks.Conflict {
	if !en.alg.Shared {
		return locks.Conflict{Mode: locks.Write, Range: locks.Whole, PID: t.req.Program.PID}
	}
	return locks.Conflict{Mode: t.Mode, Range: rng, PID: t.req.Program.PID}
}
