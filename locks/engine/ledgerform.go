package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// What the words of the records of a ledger mean. Texts come first.

// The record of the node.
const (
	nodeSelf = iota
	nodeEpoch
	nodeTenure
	nodeReserved // numbers up to this one may have been given
	nodeFloor
	nodeStart  // what the clock said at the engine's first moment
	nodeSerial // of words of damage
	nodeWords
)

// A key.
const (
	keyFile = iota
	keyPath
	keyAlgorithm
	keySerial
	keyFlags  // and the class
	keyCounts // messages, and those who joined
	keyLegacy // its length in the first byte
	keyWords  = keyLegacy + 3
)

const (
	keyDirty  = 1 << 8
	keyBeside = 1 << 9
)

// maxLegacy is how long what a machine leaves may be.
const maxLegacy = (keyWords-keyLegacy)*8 - 1

// A ticket and its request.
const (
	ticketPath = iota
	ticketCommand
	ticketSite // of its stamp
	ticketKey  // number of the key, and flags
	ticketKeySerial
	ticketSerial
	ticketID
	ticketRequest
	ticketOwner
	ticketHandle // of the request
	ticketThrough
	ticketAskedStart
	ticketAskedEnd
	ticketStart
	ticketEnd
	ticketPatience
	ticketPID
	ticketProcess
	ticketTask
	ticketUser
	ticketAsked
	ticketGranted
	ticketToken
	ticketSN
	ticketN
	ticketSince
	ticketWords
)

// The flags of a ticket, below the number of its key.
const (
	ticketStates  = 0x3
	ticketMode    = 2 // bits to shift
	ticketReqMode = 4
	ticketModes   = 0x3
	ticketTry     = 1 << 6
	ticketBlind   = 1 << 7
	ticketTold    = 1 << 8
	ticketFlags   = 1<<9 - 1
)

// The small ones.
const (
	wordWords  = 4
	toldWords  = 2
	placeWords = 11
)

// writeNode writes down who this is.
func (lg *ledger) writeNode() {
	if lg.view == nil || lg.l == nil || lg.node == unwritten {
		return
	}
	reserved := lg.lastID + idsAtOnce
	w := []uint64{nodeSelf: lg.text(string(lg.view.Self)), nodeEpoch: uint64(lg.view.Epoch), nodeTenure: uint64(lg.Tenure()),
		nodeReserved: reserved, nodeFloor: uint64(lg.entries.floor), nodeStart: uint64(lg.clock + lg.start.Sub(lg.anchor)),
		nodeSerial: lg.damages.serial}
	if lg.node == 0 {
		lg.node = lg.put(tableNode, w)
	} else {
		lg.set(tableNode, lg.node, w)
	}
	if lg.l != nil {
		lg.reserved = reserved
	}
}

// encodeKey makes w, which is what the ledger has of en, what there is to say of it.
func (lg *ledger) encodeKey(w *[keyWords]uint64, en *entry) {
	k := en.line
	if w[keyFile] == 0 {
		w[keyFile] = lg.text(en.key.File)
	}
	if k.path != en.path {
		w[keyPath], k.path = lg.text(en.path), en.path
	}
	if k.alg != en.alg {
		w[keyAlgorithm], k.alg = lg.text(en.alg.Name), en.alg
	}
	if k.machine != en.machine {
		k.machine = en.machine
		k.heir, _ = en.machine.(locks.Heir)
	}
	w[keySerial] = k.serial
	w[keyFlags] = uint64(en.key.Class)
	if lg.owes(en) {
		w[keyFlags] |= keyDirty
	}
	if lg.beside(en) {
		w[keyFlags] |= keyBeside
	}
	w[keyCounts] = uint64(uint32(en.messages))<<32 | uint64(uint32(en.gate.joined))
	if k.heir == nil {
		lg.fails(fmt.Errorf("%q is served by %s, which cannot be handed over", en.path, en.alg.Name))
		return
	}
	b := lg.b[:]
	clear(b)
	said := k.heir.Legacy(b[1:1])
	if len(said) > maxLegacy {
		lg.fails(fmt.Errorf("%q is served by %s, which leaves %d bytes", en.path, en.alg.Name, len(said)))
		return
	}
	b[0] = byte(len(said))
	for i := range keyWords - keyLegacy {
		w[keyLegacy+i] = binary.LittleEndian.Uint64(b[8*i:])
	}
}

// encodeTicket fills w.
func (lg *ledger) encodeTicket(w []uint64, t *ticket, state byte) {
	en, r := t.entry, t.req
	k := en.line
	p := &r.Program
	if r.Path == k.path {
		w[ticketPath] = k.words[keyPath]
	} else {
		w[ticketPath] = lg.text(r.Path)
	}
	w[ticketCommand] = lg.text(p.Command)
	flags := uint64(state) | uint64(t.Mode)<<ticketMode | uint64(r.Mode)<<ticketReqMode
	if r.Try {
		flags |= ticketTry
	}
	if r.Blind {
		flags |= ticketBlind
	}
	if t.told {
		flags |= ticketTold
	}
	w[ticketKey] = uint64(k.number)<<32 | flags
	w[ticketKeySerial], w[ticketSerial] = k.serial, lg.serial
	w[ticketID], w[ticketRequest], w[ticketOwner] = uint64(t.ID), r.id, uint64(r.Owner)
	w[ticketHandle], w[ticketThrough] = uint64(r.Handle), uint64(t.Handle)
	w[ticketAskedStart], w[ticketAskedEnd] = r.Range.Start, r.Range.End
	w[ticketStart], w[ticketEnd] = t.Range.Start, t.Range.End
	w[ticketPatience] = uint64(r.Patience)
	w[ticketPID] = uint64(uint32(p.PID))<<32 | uint64(uint32(p.TID))
	w[ticketProcess], w[ticketTask] = p.Process, p.Task
	w[ticketUser] = uint64(p.UID)<<32 | uint64(r.messages)
	w[ticketAsked], w[ticketGranted] = lg.time(r.asked), lg.time(r.granted)
	w[ticketToken] = uint64(t.token)
	w[ticketSite], w[ticketSN], w[ticketN], w[ticketSince] = 0, 0, 0, 0
	if state >= legacyAsks {
		s := t.place()
		w[ticketSite], w[ticketSN], w[ticketN] = lg.text(string(s.Site)), s.SN, s.N
		w[ticketSince] = lg.time(t.since)
	}
}

// maxPlaces is how many places of interrupted requests there may be. Of more the next
// process does not know: that is no reason to end the ledger.
const maxPlaces = 1 << 16

// place writes down where an interrupted request stood.
func (lg *ledger) place(p *place, k *kept) {
	if !lg.on() || k.line != 0 && k.era == lg.era || lg.places == maxPlaces {
		return
	}
	k.era = lg.era
	k.line = lg.put(tablePlaces, []uint64{lg.text(p.key.File), lg.text(string(k.stamp.Site)), uint64(p.key.Class), uint64(p.owner),
		uint64(uint32(p.pid))<<32 | uint64(p.mode), p.rng.Start, p.rng.End, k.stamp.SN, k.stamp.N, lg.time(k.since), lg.time(k.until.Add(-placeFor))})
	if k.line != 0 {
		lg.places++
	}
}

// left takes that away.
func (lg *ledger) left(k *kept) {
	if lg.on() && k.line != 0 && k.era == lg.era {
		lg.remove(tablePlaces, k.line)
		lg.places--
	}
	k.line = 0
}
