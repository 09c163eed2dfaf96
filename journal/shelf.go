package journal

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// shelf keeps the records of requests that are open for long, like 250,000 ranges
// of one file, in some 80 bytes each, and so that the garbage collector has no
// pointers to follow. What the records of one owner have in common is kept once;
// the rest is numbers, most of them small, in pieces of memory that many share.
type shelf struct {
	at    map[uint64]place
	slabs []slab
	free  []uint32 // slabs with nothing in them
	last  int      // the slab that is added to; -1: none
	base  int64    // about when they were, in Unix nanoseconds
	heads heads
	one   []byte // for put
}

// place is where the records of a request are.
type place struct{ slab, at uint32 }

// slab is what many requests are in, one behind the other, with what has gone.
type slab struct {
	b    []byte
	dead int // bytes of what has gone
}

// slabSize is when a slab is full.
const slabSize = 64 << 10

func newShelf() shelf {
	return shelf{at: map[uint64]place{}, last: -1, heads: heads{index: map[string]uint32{}}}
}

// What a record of a request has, in its first byte.
const (
	shelvedFinal  = 1 << iota
	shelvedHead   // another head than the one before
	shelvedRange  // another range than the one before
	shelvedTail   // that range goes to the end of the file
	shelvedCost   // wait and messages
	shelvedToken  // a token
	shelvedStamp  // a stamp
	shelvedReason // a reason
)

// put adds the records of a request that is not there.
func (s *shelf) put(id uint64, recs []Record) {
	if len(s.at) == 0 {
		s.base = recs[0].Time.UnixNano()
	}
	b := wire.Uint(wire.Uint(s.one[:0], id), uint(len(recs)))
	head, seq, now, rng := noHead, uint64(0), s.base, locks.Range{}
	for i := range recs {
		r := &recs[i]
		flags := byte(0)
		set := func(is bool, flag byte) {
			if is {
				flags |= flag
			}
		}
		h := s.heads.use(r)
		set(r.Final, shelvedFinal)
		set(h != head, shelvedHead)
		set(r.Range != rng, shelvedRange)
		set(r.Range != rng && r.Range.End == locks.MaxOffset, shelvedTail)
		set(r.Wait > 0 || r.Messages > 0, shelvedCost)
		set(r.Token != 0, shelvedToken)
		set(r.Stamp.SN != 0 || r.Stamp.N != 0, shelvedStamp)
		set(r.Reason != "", shelvedReason)
		b = wire.Uint(wire.Uint(b, r.Event), flags)
		if flags&shelvedHead != 0 {
			b = wire.Uint(b, h)
		}
		t := r.Time.UnixNano()
		b = wire.Uint(wire.Uint(b, r.Seq-seq), zigzag(t-now))
		head, seq, now = h, r.Seq, t
		if flags&shelvedRange != 0 {
			rng = r.Range
			if b = wire.Uint(b, rng.Start); flags&shelvedTail == 0 {
				b = wire.Uint(b, rng.End-rng.Start)
			}
		}
		if flags&shelvedCost != 0 {
			b = wire.Uint(wire.Uint(b, uint64(max(r.Wait, 0))), uint64(max(r.Messages, 0)))
		}
		if flags&shelvedToken != 0 {
			b = wire.Uint(b, r.Token)
		}
		if flags&shelvedStamp != 0 {
			b = wire.Uint(wire.Uint(b, r.Stamp.SN), r.Stamp.N)
		}
		if flags&shelvedReason != 0 {
			b = wire.String(b, cut(r.Reason))
		}
	}
	s.one = b
	s.at[id] = s.add(b)
}

// add adds what is a request's.
func (s *shelf) add(b []byte) place {
	for s.last < 0 || len(s.slabs[s.last].b) > 0 && len(s.slabs[s.last].b)+binary.MaxVarintLen32+len(b) > slabSize {
		full := s.last
		s.next()
		// What it has may have been dropped while it was the last one. Nobody may
		// come back to it.
		if full >= 0 && 2*s.slabs[full].dead > len(s.slabs[full].b) {
			s.empty(uint32(full))
		}
	}
	c := &s.slabs[s.last]
	p := place{uint32(s.last), uint32(len(c.b))}
	c.b = wire.String(c.b, b)
	return p
}

// next has another slab be added to.
func (s *shelf) next() {
	if n := len(s.free); n > 0 {
		s.last, s.free = int(s.free[n-1]), s.free[:n-1]
		if c := &s.slabs[s.last]; c.b == nil {
			c.b = make([]byte, 0, slabSize)
		}
		return
	}
	size := slabSize
	if len(s.slabs) == 0 {
		size = 0 // as long as there are few, it grows
	}
	s.last = len(s.slabs)
	s.slabs = append(s.slabs, slab{b: make([]byte, 0, size)})
}

// bytes are those of what is at p, and how many they are with their length.
func (s *shelf) bytes(p place) (b []byte, size int) {
	b = s.slabs[p.slab].b[p.at:]
	n, k := binary.Uvarint(b)
	return b[k : k+int(n)], k + int(n)
}

// drop forgets the records of a request, if they are there.
func (s *shelf) drop(id uint64) {
	p, ok := s.at[id]
	if !ok {
		return
	}
	delete(s.at, id)
	b, size := s.bytes(p)
	s.each(b, func(h uint32, _ *Record) { s.heads.drop(h) })
	if len(s.at) == 0 && len(s.slabs) > 1 {
		*s = newShelf()
		return
	}
	c := &s.slabs[p.slab]
	c.dead += size
	if int(p.slab) != s.last && 2*c.dead > len(c.b) {
		s.empty(p.slab)
	}
}

// empty moves what a slab still has to another one.
func (s *shelf) empty(i uint32) {
	old := s.slabs[i].b
	for at := 0; at < len(old); {
		p := place{i, uint32(at)}
		b, size := s.bytes(p)
		id, _ := binary.Uvarint(b)
		if now, ok := s.at[id]; ok && now == p {
			s.at[id] = s.add(b)
		}
		at += size
	}
	s.slabs[i] = slab{}
	if len(s.free) == 0 {
		s.slabs[i].b = old[:0]
	}
	s.free = append(s.free, i)
}

// records appends those of a request, in the order of their sequence.
func (s *shelf) records(id uint64, to []Record) []Record {
	p, ok := s.at[id]
	if !ok {
		return to
	}
	b, _ := s.bytes(p)
	s.each(b, func(_ uint32, r *Record) { to = append(to, *r) })
	return to
}

// each calls f for each of the records in b, with its head. It panics if they
// cannot be read: memory is damaged.
func (s *shelf) each(b []byte, f func(head uint32, r *Record)) {
	in := wire.NewReader(b)
	id := in.Uint()
	head, seq, now, rng := noHead, uint64(0), s.base, locks.Range{}
	for range in.Len(2) {
		event, flags := Event(in.Uint()), byte(in.Uint())
		if flags&shelvedHead != 0 {
			head = uint32(in.Uint())
		}
		r := *s.heads.of(head)
		r.Request, r.Event, r.Final = id, event, flags&shelvedFinal != 0
		seq += in.Uint()
		now += unzigzag(in.Uint())
		if flags&shelvedRange != 0 {
			if rng = (locks.Range{Start: in.Uint(), End: locks.MaxOffset}); flags&shelvedTail == 0 {
				rng.End = rng.Start + in.Uint()
			}
		}
		r.Seq, r.Time, r.Range = seq, time.Unix(0, now), rng
		if flags&shelvedCost != 0 {
			r.Wait, r.Messages = time.Duration(in.Uint()), int(in.Uint())
		}
		if flags&shelvedToken != 0 {
			r.Token = locks.Token(in.Uint())
		}
		if flags&shelvedStamp != 0 {
			r.Stamp.SN, r.Stamp.N = in.Uint(), in.Uint()
		}
		if flags&shelvedReason != 0 {
			r.Reason = in.String()
		}
		if in.Err() != nil {
			break
		}
		f(head, &r)
	}
	if err := in.End(); err != nil {
		panic(fmt.Sprintf("journal: a record that was packed here cannot be read: %v", err))
	}
}

// heads are what records of many requests have in common: who asks, and for what.
type heads struct {
	index map[string]uint32
	all   []headOf
	free  []uint32
	buf   []byte
	// One of them as a record, since it is mostly the same one.
	known uint32
	rec   Record
}

type headOf struct {
	bytes string
	refs  int // by records
}

// noHead is that of no record.
const noHead = uint32(1<<32 - 1)

// use is the head of r, which refers to it from now on.
func (h *heads) use(r *Record) uint32 {
	b := wire.Uint(wire.Uint(wire.Uint(h.buf[:0], r.Epoch), r.Key.Class), r.Mode)
	b = wire.Uint(wire.Uint(b, zigzag(int64(r.PID))), r.UID)
	for _, x := range [...]string{r.Key.File, r.Path, r.Algorithm, string(r.Node), string(r.Peer), r.Command} {
		b = wire.String(b, cut(x))
	}
	own := r.Stamp.Site == r.Node // as mostly, and long
	if b = wire.Bool(b, own); !own {
		b = wire.String(b, cut(string(r.Stamp.Site)))
	}
	h.buf = b
	i, ok := h.index[string(b)]
	if !ok {
		x := headOf{bytes: string(b)}
		if n := len(h.free); n > 0 {
			i, h.free = h.free[n-1], h.free[:n-1]
			h.all[i] = x
		} else {
			i = uint32(len(h.all))
			h.all = append(h.all, x)
		}
		h.index[x.bytes] = i
	}
	h.all[i].refs++
	return i
}

// drop takes back one use.
func (h *heads) drop(i uint32) {
	x := &h.all[i]
	if x.refs--; x.refs > 0 {
		return
	}
	delete(h.index, x.bytes)
	*x = headOf{}
	h.free = append(h.free, i)
	if h.known == i {
		h.rec = Record{}
	}
}

// of is a record with that head and nothing else, as long as nothing changes.
func (h *heads) of(i uint32) *Record {
	r := &h.rec
	if h.known == i && r.Seq != 0 {
		return r
	}
	in := wire.NewReader([]byte(h.all[i].bytes))
	h.known = i
	*r = Record{Seq: 1, Epoch: locks.Epoch(in.Uint()), Key: locks.Key{Class: locks.Class(in.Uint())}, Mode: locks.Mode(in.Uint())}
	r.PID, r.UID = int(unzigzag(in.Uint())), uint32(in.Uint())
	r.Key.File, r.Path, r.Algorithm = in.String(), in.String(), in.String()
	r.Node, r.Peer, r.Command = locks.NodeID(in.String()), locks.NodeID(in.String()), in.String()
	if r.Stamp.Site = r.Node; !in.Bool() {
		r.Stamp.Site = locks.NodeID(in.String())
	}
	if err := in.End(); err != nil {
		panic(fmt.Sprintf("journal: what was packed here cannot be read: %v", err))
	}
	return r
}
