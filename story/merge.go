package story

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

// Part is what one member's journal has, in its order.
type Part struct {
	Member  string // peer ID
	Host    string
	Records []journal.Record
}

// Entry is a record, with whose journal has it.
type Entry struct {
	Member, Host string
	journal.Record
}

// item is an entry on its way into the order.
type item struct {
	Entry
	epoch  locks.Epoch // the record's, or of the last one before it that has one
	before int         // items that must come first and have not
	after  []*item     // items that must come later
	placed bool
}

// compare is the order among items that may come next.
func compare(a, b *item) int {
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), a.Time.Compare(b.Time), strings.Compare(a.Member, b.Member), cmp.Compare(a.Seq, b.Seq))
}

// ready is a heap of the items that nothing has to come before.
type ready []*item

func (r ready) Len() int           { return len(r) }
func (r ready) Less(i, j int) bool { return compare(r[i], r[j]) < 0 }
func (r ready) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ready) Push(x any)        { *r = append(*r, x.(*item)) }
func (r *ready) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}

// Merge puts the journals of several members into one order.
func Merge(parts []Part) []Entry {
	var all []*item
	for _, p := range parts {
		var last *item
		for _, r := range viewsFirst(p.Records) {
			x := &item{Entry: Entry{p.Member, p.Host, r}, epoch: r.Epoch}
			if last != nil {
				x.epoch = max(x.epoch, last.epoch)
				precede(last, x)
			}
			all = append(all, x)
			last = x
		}
	}
	byTokens(all)
	var next ready
	for _, x := range all {
		if x.before == 0 {
			next = append(next, x)
		}
	}
	heap.Init(&next)
	out := make([]Entry, 0, len(all))
	left := all // for journals that contradict each other
	for len(out) < len(all) {
		if len(next) == 0 {
			left = slices.DeleteFunc(left, func(x *item) bool { return x.placed })
			x := slices.MinFunc(left, compare)
			x.before = 0
			next = append(next, x)
		}
		x := heap.Pop(&next).(*item)
		if x.placed {
			continue
		}
		x.placed = true
		out = append(out, x.Entry)
		for _, y := range x.after {
			if y.before--; y.before == 0 {
				heap.Push(&next, y)
			}
		}
	}
	return out
}

// viewsFirst puts what is said of a view in front of what a journal has of its epoch: a
// node grants in a new epoch as soon as it has begun, which may be before that is
// written down.
func viewsFirst(records []journal.Record) []journal.Record {
	ofView := func(r *journal.Record) bool {
		return r.Epoch != 0 && (r.Event == journal.View || r.Event == journal.Join || r.Event == journal.Leave)
	}
	out := slices.Clone(records)
	begins := 0 // where the records of this epoch begin that are not of its view
	for i := range out {
		if i > 0 && out[i].Epoch != out[i-1].Epoch {
			begins = i
		}
		if ofView(&out[i]) {
			r := out[i]
			copy(out[begins+1:i+1], out[begins:i])
			out[begins] = r
			begins++
		}
	}
	return out
}

func precede(a, b *item) {
	a.after = append(a.after, b)
	b.before++
}

// lease is a lock from its grant to its end, which may not be known.
type lease struct{ grant, end *item }

// lookBack is with how many grants before it one is compared: as many may be held
// beside each other.
const lookBack = 64

// byTokens orders the grants of each file by their tokens, and each behind the end of
// those that it excludes.
func byTokens(all []*item) {
	type request struct {
		member string
		id     uint64
	}
	held := map[request]*lease{}
	files := map[locks.Key][]*lease{}
	var keys []locks.Key
	for _, x := range all {
		id := request{x.Member, x.Request}
		switch {
		case x.Request == 0:
		case x.Event == journal.Granted && x.Token != 0:
			l := &lease{grant: x}
			held[id] = l
			if files[x.Key] == nil {
				keys = append(keys, x.Key)
			}
			files[x.Key] = append(files[x.Key], l)
		case x.Event == journal.Released && x.Final, x.Event == journal.Lost:
			if l := held[id]; l != nil {
				l.end = x
				delete(held, id)
			}
		}
	}
	for _, k := range keys {
		ls := files[k]
		slices.SortStableFunc(ls, func(a, b *lease) int { return cmp.Compare(a.grant.Token, b.grant.Token) })
		for i, b := range ls {
			for _, a := range ls[max(0, i-lookBack):i] {
				if a.grant.Member == b.grant.Member || a.grant.Token == b.grant.Token || !exclude(a.grant, b.grant) {
					continue
				}
				precede(a.grant, b.grant)
				if a.end != nil && a.end.epoch <= b.grant.epoch {
					precede(a.end, b.grant)
				}
			}
		}
	}
}

// exclude reports whether two grants exclude one another. An algorithm other than rw
// knows neither readers nor ranges.
func exclude(a, b *item) bool {
	if a.Algorithm != "rw" || b.Algorithm != "rw" {
		return true
	}
	return (a.Mode == locks.Write || b.Mode == locks.Write) && max(a.Range.Start, b.Range.Start) < min(a.Range.End, b.Range.End)
}
