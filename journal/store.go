package journal

import (
	"encoding/binary"
	"fmt"
)

// store is the ordered map under a journal: Badger, or memory.
//
// The writer alone calls write, drop, sync, room and close; scan is called by
// anybody at any time.
type store interface {
	// write stores all pairs, or none. After an error either may be the case;
	// to write the same pairs again is then right. The pairs' memory is the
	// caller's again after it returns.
	write(pairs []pair) error
	// scan calls f for the entries with from <= key < to, in the order of
	// their keys, until f returns false. Key and value are valid only during
	// the call. It sees what was written before it began.
	scan(from, to blockKey, f func(key blockKey, value []byte) bool) error
	// drop removes all blocks before the record seq and gives back their space.
	// After an error any of them may be left.
	drop(seq uint64) error
	// sync returns when what was written can't be lost by a power cut.
	sync() error
	// room is nil when the next write, and what it may bring about, has the
	// space that it needs.
	room() error
	close() error
}

// pair is an entry of the store.
type pair struct {
	key   []byte
	value []byte
}

// blockKey names a block. Its bytes are the sequence number, big-endian, the
// kind and, for state blocks, the part: so a state block stands before the
// record of its number, and all before a number have a common set of prefixes.
type blockKey struct {
	seq  uint64
	kind uint8
	part uint16
}

const (
	kindState   = 0
	kindRecords = 1
	kindNone    = 255 // of no block

	keySize = 11
)

func (k blockKey) bytes() []byte { return k.append(make([]byte, 0, keySize)) }

func (k blockKey) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, k.seq)
	b = append(b, k.kind)
	return binary.BigEndian.AppendUint16(b, k.part)
}

func parseKey(b []byte) (blockKey, error) {
	if len(b) != keySize {
		return blockKey{}, fmt.Errorf("a key of %d bytes", len(b))
	}
	return blockKey{
		seq:  binary.BigEndian.Uint64(b),
		kind: b[8],
		part: binary.BigEndian.Uint16(b[9:]),
	}, nil
}

// before is the key that all blocks before the record seq are less than. The
// state blocks at seq are not.
func before(seq uint64) blockKey { return blockKey{seq: seq} }

// next is the least key after k.
func (k blockKey) next() blockKey {
	if k.part++; k.part == 0 {
		if k.kind++; k.kind == 0 {
			k.seq++
		}
	}
	return k
}

// endKey is greater than every key in use.
var endKey = blockKey{seq: 1<<64 - 1, kind: 255, part: 1<<16 - 1}
