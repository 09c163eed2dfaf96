package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// LegacyVersion is that of the form of what Bequeath gives and Inherit takes. It
// grows with every change: who reads another one refuses it.
const LegacyVersion = 1

// legacy is what an engine leaves to the one that takes its place in another
// process, see bequest.go. Times are told by how long ago they were.
type legacy struct {
	epoch    locks.Epoch
	self     locks.NodeID
	tenure   locks.Tenure
	lastID   uint64
	floor    locks.Token
	moment   locks.Moment
	newRules bool
	serial   uint64 // of words of damage
	pinned   []legacyPin
	words    []legacyWord
	told     []locks.Key // damaged, but no program of this node was told
	places   []legacyPlace
	requests []*request
	keys     []legacyKey
}

type legacyPin struct {
	key       locks.Key
	algorithm string
}

type legacyWord struct {
	key    locks.Key
	serial uint64
	ago    time.Duration
}

type legacyPlace struct {
	place
	stamp      locks.Stamp
	since, ago time.Duration // ago: since it was interrupted
}

// legacyKey is an entry that has tickets, or whose file is to be written out.
type legacyKey struct {
	key             locks.Key
	path, algorithm string
	beside, dirty   bool
	messages        int
	joined          int    // at its gate
	machine         []byte // see locks.Heir
	tickets         []legacyTicket
}

// The states of a ticket.
const (
	legacyHeld     = iota // its owner has it
	legacyUnderway        // it was granted, and its program has not been told
	legacyAsks            // it waits, and the machine knows it
	legacyGated           // it waits at the gate
	legacyStates   = iota
)

type legacyTicket struct {
	id     locks.TicketID
	handle locks.HandleID
	mode   locks.Mode
	rng    locks.Range
	state  byte
	told   bool // the journal knows for whom it waits
	token  locks.Token
	stamp  locks.Stamp
	since  time.Duration
	req    int // index of requests
}

func appendAgo(b []byte, d time.Duration) []byte { return wire.Uint(b, uint64(max(d, 0))) }

func readAgo(r *wire.Reader) time.Duration { return time.Duration(r.Max(math.MaxInt64)) }

// ago is how long t is ago; 0 for a time that was not set.
func ago(now, t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(now.Sub(t), 1)
}

// before is the inverse of ago.
func before(now time.Time, d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return now.Add(-d)
}

func appendStamp(b []byte, s locks.Stamp) []byte {
	return wire.Uint(wire.String(wire.Uint(b, s.SN), s.Site), s.N)
}

func readStamp(r *wire.Reader) locks.Stamp {
	return locks.Stamp{SN: r.Uint(), Site: locks.NodeID(r.String()), N: r.Uint()}
}

// appendList appends a list.
func appendList[T any](b []byte, of []T, add func([]byte, T) []byte) []byte {
	b = wire.Uint(b, uint(len(of)))
	for _, x := range of {
		b = add(b, x)
	}
	return b
}

// readList is the inverse of appendList, of things of at least size bytes.
func readList[T any](r *wire.Reader, size int, read func(*wire.Reader) T) []T {
	var of []T
	for range r.Len(size) {
		if of = append(of, read(r)); r.Err() != nil {
			return nil
		}
	}
	return of
}

func (l *legacy) bytes(now time.Time) []byte {
	b := wire.Uint(nil, uint(LegacyVersion))
	b = wire.String(wire.Uint(b, l.epoch), l.self)
	b = wire.Uint(wire.Uint(wire.Uint(b, l.tenure), l.lastID), l.floor)
	b = wire.Uint(wire.Bool(wire.Uint(b, uint64(l.moment)), l.newRules), l.serial)
	b = appendList(b, l.pinned, func(b []byte, p legacyPin) []byte { return wire.String(appendKey(b, p.key), p.algorithm) })
	b = appendList(b, l.words, func(b []byte, w legacyWord) []byte { return appendAgo(wire.Uint(appendKey(b, w.key), w.serial), w.ago) })
	b = appendList(b, l.told, appendKey)
	b = appendList(b, l.places, func(b []byte, p legacyPlace) []byte {
		b = wire.Uint(wire.Uint(appendKey(b, p.key), p.owner), uint(p.pid))
		b = appendStamp(wire.Range(wire.Uint(b, p.mode), p.rng), p.stamp)
		return appendAgo(appendAgo(b, p.since), p.ago)
	})
	b = appendList(b, l.requests, func(b []byte, r *request) []byte { return appendRequest(b, r, now) })
	return appendList(b, l.keys, func(b []byte, k legacyKey) []byte {
		b = wire.String(wire.String(appendKey(b, k.key), k.path), k.algorithm)
		b = wire.Bool(wire.Bool(b, k.beside), k.dirty)
		b = wire.String(wire.Uint(wire.Uint(b, uint(k.messages)), uint(k.joined)), k.machine)
		return appendList(b, k.tickets, appendTicket)
	})
}

func appendRequest(b []byte, r *request, now time.Time) []byte {
	p := &r.Program
	b = wire.String(appendKey(wire.Uint(b, r.id), r.Key), r.Path)
	b = wire.Range(wire.Uint(wire.Uint(wire.Uint(b, r.Owner), r.Handle), r.Mode), r.Range)
	b = wire.Uint(wire.Bool(wire.Bool(b, r.Try), r.Blind), uint64(r.Patience))
	b = wire.Uint(wire.Uint(wire.Uint(b, uint(p.PID)), uint(p.TID)), p.Process)
	b = wire.String(wire.Uint(wire.Uint(b, p.Task), p.UID), p.Command)
	b = appendAgo(appendAgo(b, ago(now, r.asked)), ago(now, r.granted))
	return wire.Uint(b, uint(r.messages))
}

// readRequest shares the askers that were read before.
func readRequest(r *wire.Reader, now time.Time, askers map[asker]*asker) *request {
	x := &request{id: r.Uint(), asker: &asker{}}
	x.Key, x.Path = readKey(r), r.String()
	x.Owner, x.Handle, x.Mode, x.Range = locks.OwnerID(r.Uint()), locks.HandleID(r.Uint()), r.Mode(), r.Range()
	x.Try, x.Blind, x.Patience = r.Bool(), r.Bool(), int64(r.Max(math.MaxInt64))
	p := &x.Program
	p.PID, p.TID, p.Process = int(r.Max(math.MaxInt32)), int(r.Max(math.MaxInt32)), r.Uint()
	p.Task, p.UID, p.Command = r.Uint(), uint32(r.Max(math.MaxUint32)), r.String()
	x.asked, x.granted = before(now, readAgo(r)), before(now, readAgo(r))
	x.messages = uint32(r.Max(math.MaxUint32))
	if same := askers[*x.asker]; same != nil {
		x.asker = same
	} else {
		askers[*x.asker] = x.asker
	}
	return x
}

func appendTicket(b []byte, t legacyTicket) []byte {
	b = wire.Range(wire.Uint(wire.Uint(wire.Uint(b, t.id), t.handle), t.mode), t.rng)
	b = wire.Uint(wire.Bool(append(b, t.state), t.told), t.token)
	return wire.Uint(appendAgo(appendStamp(b, t.stamp), t.since), uint(t.req))
}

func readTicket(r *wire.Reader) legacyTicket {
	t := legacyTicket{id: locks.TicketID(r.Uint()), handle: locks.HandleID(r.Uint()), mode: r.Mode(), rng: r.Range()}
	t.state, t.told, t.token = byte(r.Max(legacyStates-1)), r.Bool(), locks.Token(r.Uint())
	t.stamp, t.since, t.req = readStamp(r), readAgo(r), int(r.Max(math.MaxInt32))
	return t
}

// readLegacy is the inverse of legacy.bytes.
func readLegacy(b []byte, now time.Time) (*legacy, error) {
	r := wire.NewReader(b)
	if v := r.Uint(); v != LegacyVersion {
		return nil, fmt.Errorf("it has version %d, this program understands %d", v, LegacyVersion)
	}
	l := &legacy{epoch: locks.Epoch(r.Uint()), self: locks.NodeID(r.String())}
	l.tenure, l.lastID, l.floor = locks.Tenure(r.Uint()), r.Uint(), locks.Token(r.Uint())
	l.moment, l.newRules, l.serial = locks.Moment(r.Max(math.MaxInt64)), r.Bool(), r.Uint()
	l.pinned = readList(r, 3, func(r *wire.Reader) legacyPin { return legacyPin{readKey(r), r.String()} })
	l.words = readList(r, 4, func(r *wire.Reader) legacyWord { return legacyWord{readKey(r), r.Uint(), readAgo(r)} })
	l.told = readList(r, 2, readKey)
	l.places = readList(r, 12, func(r *wire.Reader) legacyPlace {
		var p legacyPlace
		p.key, p.owner, p.pid = readKey(r), locks.OwnerID(r.Uint()), int(r.Max(math.MaxInt32))
		p.mode, p.rng, p.stamp = r.Mode(), r.Range(), readStamp(r)
		p.since, p.ago = readAgo(r), readAgo(r)
		return p
	})
	askers := map[asker]*asker{}
	l.requests = readList(r, 20, func(r *wire.Reader) *request { return readRequest(r, now, askers) })
	l.keys = readList(r, 10, func(r *wire.Reader) legacyKey {
		k := legacyKey{key: readKey(r), path: r.String(), algorithm: r.String(), beside: r.Bool(), dirty: r.Bool()}
		k.messages, k.joined = int(r.Max(math.MaxInt32)), int(r.Max(math.MaxInt32))
		k.machine, k.tickets = r.Bytes(), readList(r, 13, readTicket)
		return k
	})
	if err := r.End(); err != nil {
		return nil, err
	}
	return l, l.check()
}

// check is an error if l cannot be what an engine has left.
func (l *legacy) check() error {
	ids, keys := map[uint64]bool{}, map[locks.Key]bool{}
	once := func(id uint64) error {
		if id == 0 || id > l.lastID || ids[id] {
			return fmt.Errorf("the number %d is there twice, or was not given yet", id)
		}
		ids[id] = true
		return nil
	}
	if l.epoch == 0 || l.self == "" || l.tenure == 0 {
		return fmt.Errorf("of no member: %q at epoch %d", l.self, l.epoch)
	}
	for _, r := range l.requests {
		if err := once(r.id); err != nil {
			return err
		}
	}
	for _, k := range l.keys {
		if keys[k.key] {
			return fmt.Errorf("%v is there twice", k.key)
		}
		keys[k.key] = true
		for _, t := range k.tickets {
			if err := once(uint64(t.id)); err != nil {
				return err
			}
			if t.req >= len(l.requests) || l.requests[t.req].Key != k.key || t.token >= locks.TokenFloor(l.epoch+1) {
				return fmt.Errorf("ticket %d of %v is of a request that is not there, or from the future", t.id, k.key)
			}
		}
	}
	return nil
}
