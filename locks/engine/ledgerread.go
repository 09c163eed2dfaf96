package engine

import (
	"cmp"
	queue "container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// ErrNoTenure is the error of a ledger in which nothing is begun: its process was no
// member of the cluster, or not any more. There is nothing to go on with.
var ErrNoTenure = errors.New("the daemon that was killed was not a member of the cluster")

// ReadLedger is what [Engine.Inherit] needs to go on in the place of a process that
// was killed, and kept a ledger. That process must be dead: also its last system call.
// The ledger stays as it is: the engine that takes over has another one, which counts
// as soon as Inherit returns. An error means that nothing of it can be used.
//
// The rules may have changed since, for all that is known here: so the successor tells
// the others of all that it holds, as at new rules.
func ReadLedger(from LedgerReader) (state []byte, err error) {
	rd, err := readLedger(from)
	if err != nil {
		return nil, fmt.Errorf("what the daemon has left of its locks: %w", err)
	}
	return rd.l.bytes(rd.now), nil
}

func readLedger(from LedgerReader) (*ledgerReading, error) {
	rd := &ledgerReading{from: from, at: from.Clock(), now: time.Now(), l: &legacy{newRules: true},
		keys: map[uint32]*foundKey{}, byKey: map[locks.Key]*foundKey{}, requests: map[uint64]int{}, askers: map[asker]*asker{}}
	for _, part := range []func() error{rd.node, rd.readKeys, rd.readTickets, rd.rest, rd.settle, rd.l.check} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return rd, nil
}

// ledgerReading makes a legacy of a ledger.
type ledgerReading struct {
	from     LedgerReader
	at       time.Duration // now, by the ledger's clock
	now      time.Time
	l        *legacy
	keys     map[uint32]*foundKey // by number
	byKey    map[locks.Key]*foundKey
	requests map[uint64]int // index of l.requests, by ID
	askers   map[asker]*asker
}

// foundKey is a key as it was found.
type foundKey struct {
	legacyKey
	serial  uint64
	tickets []foundTicket
}

type foundTicket struct {
	legacyTicket
	owner  locks.OwnerID
	serial uint64
}

// ago is how long a time of the ledger is ago; 0 if it is none.
func (rd *ledgerReading) ago(x uint64) time.Duration {
	if x == 0 {
		return 0
	}
	return max(rd.at-time.Duration(min(x, math.MaxInt64)), 1)
}

func (rd *ledgerReading) node() error {
	found := false
	for _, w := range rd.from.All(tableNode) {
		if found || len(w) != nodeWords {
			return errors.New("it is of two nodes, or of another form")
		}
		found = true
		l := rd.l
		l.self, l.epoch, l.tenure = locks.NodeID(rd.from.String(w[nodeSelf])), locks.Epoch(w[nodeEpoch]), locks.Tenure(w[nodeTenure])
		l.lastID, l.floor, l.serial = w[nodeReserved], locks.Token(w[nodeFloor]), w[nodeSerial]
		start := time.Duration(w[nodeStart])
		if start > rd.at {
			return fmt.Errorf("it begins in the future: %v, and it is %v", start, rd.at)
		}
		l.moment = locks.Moment(rd.at - start)
	}
	if !found {
		return ErrNoTenure
	}
	return nil
}

func class(x uint64) (locks.Class, error) {
	if c := locks.Class(x & 0xff); slices.Contains(locks.Classes[:], c) {
		return c, nil
	}
	return 0, fmt.Errorf("there is no class %d", x&0xff)
}

func (rd *ledgerReading) readKeys() error {
	for n, w := range rd.from.All(tableKeys) {
		c, err := class(w[keyFlags])
		if err != nil {
			return err
		}
		k := &foundKey{serial: w[keySerial], legacyKey: legacyKey{
			key:  locks.Key{File: rd.from.String(w[keyFile]), Class: c},
			path: rd.from.String(w[keyPath]), algorithm: rd.from.String(w[keyAlgorithm]),
			dirty: w[keyFlags]&keyDirty != 0, beside: w[keyFlags]&keyBeside != 0,
			messages: int(w[keyCounts] >> 32 & math.MaxInt32), joined: int(w[keyCounts] & math.MaxInt32),
		}}
		if k.algorithm == "" {
			return fmt.Errorf("%v is served by nothing", k.key)
		}
		var b []byte
		for _, x := range w[keyLegacy:] {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		if int(b[0]) > maxLegacy {
			return fmt.Errorf("what the machine of %v leaves has %d bytes", k.key, b[0])
		}
		k.machine = b[1 : 1+b[0]]
		rd.keys[n] = k
	}
	return nil
}

func (rd *ledgerReading) readTickets() error {
	for _, w := range rd.from.All(tableTickets) {
		k := rd.keys[uint32(w[ticketKey]>>32)]
		if k == nil || k.serial != w[ticketKeySerial] {
			return fmt.Errorf("ticket %d is of a file that is not there", w[ticketID])
		}
		flags := w[ticketKey]
		t := foundTicket{owner: locks.OwnerID(w[ticketOwner]), serial: w[ticketSerial], legacyTicket: legacyTicket{
			id: locks.TicketID(w[ticketID]), handle: locks.HandleID(w[ticketThrough]), mode: locks.Mode(flags >> ticketMode & ticketModes),
			rng: locks.Range{Start: w[ticketStart], End: w[ticketEnd]}, state: byte(flags & ticketStates), told: flags&ticketTold != 0,
			token: locks.Token(w[ticketToken]),
		}}
		if t.state >= legacyAsks {
			t.stamp = locks.Stamp{SN: w[ticketSN], Site: locks.NodeID(rd.from.String(w[ticketSite])), N: w[ticketN]}
			t.since = rd.ago(w[ticketSince])
		}
		i, ok := rd.requests[w[ticketRequest]]
		if !ok {
			i = len(rd.l.requests)
			rd.requests[w[ticketRequest]] = i
			rd.l.requests = append(rd.l.requests, rd.request(k.key, w))
		}
		t.req = i
		k.tickets = append(k.tickets, t)
	}
	return nil
}

// request is the one that the record of a ticket has.
func (rd *ledgerReading) request(k locks.Key, w []uint64) *request {
	by := asker{Key: k, Path: rd.from.String(w[ticketPath]), Owner: locks.OwnerID(w[ticketOwner])}
	by.Program = locks.Program{PID: int(int32(w[ticketPID] >> 32)), TID: int(int32(w[ticketPID])), Process: w[ticketProcess],
		Task: w[ticketTask], UID: uint32(w[ticketUser] >> 32), Command: rd.from.String(w[ticketCommand])}
	if rd.askers[by] == nil {
		rd.askers[by] = &by
	}
	flags := w[ticketKey]
	return &request{id: w[ticketRequest], asker: rd.askers[by], Handle: locks.HandleID(w[ticketHandle]),
		Range: locks.Range{Start: w[ticketAskedStart], End: w[ticketAskedEnd]}, Patience: int64(w[ticketPatience] & math.MaxInt64),
		Mode: locks.Mode(flags >> ticketReqMode & ticketModes), Try: flags&ticketTry != 0, Blind: flags&ticketBlind != 0,
		messages: uint32(w[ticketUser]), asked: before(rd.now, rd.ago(w[ticketAsked])), granted: before(rd.now, rd.ago(w[ticketGranted]))}
}

// rest reads damage and places.
func (rd *ledgerReading) rest() error {
	for _, w := range rd.from.All(tableWords) {
		c, err := class(w[1])
		if err != nil {
			return err
		}
		rd.l.words = append(rd.l.words, legacyWord{locks.Key{File: rd.from.String(w[0]), Class: c}, w[2], rd.ago(w[3])})
		// The record of the node may not have been written since.
		rd.l.serial = max(rd.l.serial, w[2])
	}
	slices.SortFunc(rd.l.words, func(a, b legacyWord) int { return cmp.Compare(a.serial, b.serial) })
	for _, w := range rd.from.All(tableTold) {
		c, err := class(w[1])
		if err != nil {
			return err
		}
		rd.l.told = append(rd.l.told, locks.Key{File: rd.from.String(w[0]), Class: c})
	}
	slices.SortFunc(rd.l.told, locks.Key.Compare)
	rd.l.told = slices.Compact(rd.l.told) // a program was told, and then there was more
	for _, w := range rd.from.All(tablePlaces) {
		c, err := class(w[2])
		if err != nil {
			return err
		}
		rd.l.places = append(rd.l.places, legacyPlace{
			place: place{locks.Key{File: rd.from.String(w[0]), Class: c}, locks.OwnerID(w[3]), int(int32(w[4] >> 32)),
				locks.Mode(w[4]), locks.Range{Start: w[5], End: w[6]}},
			stamp: locks.Stamp{SN: w[7], Site: locks.NodeID(rd.from.String(w[1])), N: w[8]},
			since: rd.ago(w[9]), ago: rd.ago(w[10])})
	}
	slices.SortFunc(rd.l.places, func(a, b legacyPlace) int { return a.key.Compare(b.key) })
	return nil
}

// settle makes keys of what was found. Of a file that was forgotten while it was being
// written out, and used again, there are two: one of them says only that, mostly the older
// one.
func (rd *ledgerReading) settle() error {
	for _, k := range rd.keys {
		old := rd.byKey[k.key]
		if old == nil {
			rd.byKey[k.key] = k
			continue
		}
		if len(k.tickets) == 0 && (len(old.tickets) > 0 || old.serial > k.serial) {
			k, old = old, k
		}
		if len(old.tickets) > 0 {
			return fmt.Errorf("%v is there twice", k.key)
		}
		k.dirty = k.dirty || old.dirty
		rd.byKey[k.key] = k
	}
	for _, k := range rd.byKey {
		var rest []foundTicket
		owners := map[uint64][]foundTicket{}
		for _, t := range k.tickets {
			switch {
			case t.state != legacyHeld:
				rest = append(rest, t)
			case k.key.Class == locks.Open:
				owners[uint64(t.handle)] = append(owners[uint64(t.handle)], t)
			default:
				owners[uint64(t.owner)] = append(owners[uint64(t.owner)], t)
			}
		}
		for _, ts := range owners {
			if k.key.Class == locks.Open {
				// Of an open file the younger one counts.
				rest = append(rest, slices.MaxFunc(ts, func(a, b foundTicket) int { return cmp.Compare(a.serial, b.serial) }))
			} else {
				rest = append(rest, rd.youngest(ts)...)
			}
		}
		for _, t := range rest {
			k.legacyKey.tickets = append(k.legacyKey.tickets, t.legacyTicket)
		}
		slices.SortFunc(k.legacyKey.tickets, func(a, b legacyTicket) int { return cmp.Compare(a.id, b.id) })
		if len(k.legacyKey.tickets) > 0 || k.dirty {
			rd.l.keys = append(rd.l.keys, k.legacyKey)
		}
	}
	slices.SortFunc(rd.l.keys, func(a, b legacyKey) int { return a.key.Compare(b.key) })
	rd.prune()
	return nil
}

// prune drops requests of which nothing is left.
func (rd *ledgerReading) prune() {
	kept, to := []*request(nil), map[int]int{}
	for i := range rd.l.keys {
		ts := rd.l.keys[i].tickets
		for j := range ts {
			n, ok := to[ts[j].req]
			if !ok {
				n = len(kept)
				to[ts[j].req] = n
				kept = append(kept, rd.l.requests[ts[j].req])
			}
			ts[j].req = n
		}
	}
	rd.l.requests = kept
}

// youngest makes pieces that do not overlap of ts, which one owner has: of each byte
// the youngest counts. They overlap only if the process died between two writes.
func (rd *ledgerReading) youngest(ts []foundTicket) []foundTicket {
	slices.SortFunc(ts, func(a, b foundTicket) int { return cmp.Compare(a.rng.Start, b.rng.Start) })
	overlap := false
	for i := 1; i < len(ts) && !overlap; i++ {
		overlap = ts[i].rng.Start < ts[i-1].rng.End
	}
	if !overlap {
		return ts
	}
	var bounds []uint64
	for _, t := range ts {
		bounds = append(bounds, t.rng.Start, t.rng.End)
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	var out []foundTicket
	var on byAge
	used := map[locks.TicketID]bool{}
	for i, next := 0, 0; i+1 < len(bounds); i++ {
		for ; next < len(ts) && ts[next].rng.Start <= bounds[i]; next++ {
			queue.Push(&on, ts[next])
		}
		for len(on) > 0 && on[0].rng.End <= bounds[i] {
			queue.Pop(&on)
		}
		if len(on) == 0 {
			continue
		}
		piece := on[0]
		if last := len(out) - 1; last >= 0 && out[last].serial == piece.serial && out[last].rng.End == bounds[i] {
			out[last].rng.End = bounds[i+1]
			continue
		}
		if used[piece.id] {
			rd.l.lastID++
			piece.id = locks.TicketID(rd.l.lastID)
		}
		used[piece.id] = true
		piece.rng = locks.Range{Start: bounds[i], End: bounds[i+1]}
		out = append(out, piece)
	}
	return out
}

// byAge is a heap with the youngest on top.
type byAge []foundTicket

func (h byAge) Len() int           { return len(h) }
func (h byAge) Less(i, j int) bool { return h[i].serial > h[j].serial }
func (h byAge) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byAge) Push(x any)        { *h = append(*h, x.(foundTicket)) }
func (h *byAge) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
