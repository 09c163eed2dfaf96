package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/klauspost/compress/s2"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// A block is the value of one entry of the store: several records, compressed
// together. It is the unit of writing, of deletion and of damage. It tells its
// own length and place, so that blocks can be found in what is left of a
// damaged database, see rebuild.go.
//
//	bytes 0-1   "dJ"
//	byte  2     version
//	byte  3     flags
//	bytes 4-7   CRC-32C of all else, big-endian
//	            the length of all that follows, and then
//	            first, last - first, part, count, gap, floor, age,
//	            time (zigzag), time - oldest, newest - time, node
//	            the records, each behind its length; compressed by S2 as one
//
// There are two kinds. A block of records holds what was appended. A state
// block says what is true at its place in the sequence: which requests are
// open, with the records that made them so, and where the journal begins.
type block struct {
	flags uint8
	// first and last are the sequence numbers that the block accounts for. A
	// state block accounts for none: first is where it stands, and last too.
	first, last uint64
	part        uint16 // of a state
	count       int
	// gap: as many numbers before first were given to records that had to be
	// dropped. If more are missing, something was lost. (Within a block, count
	// is less than last-first+1 when some were dropped.)
	gap uint64
	// floor: of the sequence before it, nothing is in the journal any more.
	floor uint64
	// age is the journal's own time in seconds, see clock.go.
	age uint64
	// time is the wall clock at the first record, oldest and newest are its
	// extremes over all of them, in Unix nanoseconds. Clocks can be set back.
	time, oldest, newest int64
	node                 locks.NodeID
	body                 []byte
}

const (
	blockVersion = 1

	flagS2     = 1 // the body is compressed
	flagState  = 2 // a state block
	flagMore   = 4 // a state block that the next part continues
	flagClosed = 8 // a state block: the journal was closed here
	flagsKnown = flagS2 | flagState | flagMore | flagClosed

	blockMagic  = "dJ"
	blockHeader = 8 // up to the end of the checksum

	// A block is full at either. Damage to one byte costs at most these.
	blockRecords = 128
	blockSize    = 32 << 10

	// maxBody bounds what a body can be: a full block and one more record
	// with strings of the greatest length.
	maxBody = blockSize + 9*MaxString
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errChecksum = errors.New("checksum does not match")
	errVersion  = errors.New("written by a newer version")
)

// key is the place of b in the store.
func (b *block) key() blockKey {
	if b.state() {
		return blockKey{seq: b.first, kind: kindState, part: b.part}
	}
	return blockKey{seq: b.first, kind: kindRecords}
}

// blockBuffers is memory that is used again for each block.
type blockBuffers struct{ head, body []byte }

// appendBlock appends the encoding of b, whose body is not yet compressed.
func appendBlock(dst []byte, b *block, buf *blockBuffers) []byte {
	body := b.body
	if n := s2.MaxEncodedLen(len(body)); cap(buf.body) < n {
		buf.body = make([]byte, n)
	}
	flags := b.flags
	if z := s2.Encode(buf.body[:cap(buf.body)], body); len(z) < len(body) {
		body, flags = z, flags|flagS2
	}
	h := wire.Uint(buf.head[:0], b.first)
	h = wire.Uint(h, b.last-b.first)
	h = wire.Uint(h, b.part)
	h = wire.Uint(h, uint(b.count))
	h = wire.Uint(h, b.gap)
	h = wire.Uint(h, b.floor)
	h = wire.Uint(h, b.age)
	h = wire.Uint(h, zigzag(b.time))
	h = wire.Uint(h, uint64(b.time-b.oldest))
	h = wire.Uint(h, uint64(b.newest-b.time))
	h = wire.String(h, b.node)
	buf.head = h

	at := len(dst)
	dst = append(dst, blockMagic...)
	dst = append(dst, blockVersion, flags, 0, 0, 0, 0)
	dst = wire.Uint(dst, uint(len(h)+len(body)))
	dst = append(dst, h...)
	dst = append(dst, body...)
	binary.BigEndian.PutUint32(dst[at+4:], checksum(dst[at:]))
	return dst
}

func checksum(v []byte) uint32 {
	return crc32.Update(crc32.Checksum(v[:4], castagnoli), castagnoli, v[blockHeader:])
}

// blockLen is the length of the block that v begins with, or 0.
func blockLen(v []byte) int {
	if len(v) < blockHeader || string(v[:2]) != blockMagic {
		return 0
	}
	n, k := binary.Uvarint(v[blockHeader:])
	if k <= 0 || n > uint64(len(v)-blockHeader-k) {
		return 0
	}
	return blockHeader + k + int(n)
}

// parseBlock reads the head of a block. Its body shares memory with v and
// stays compressed until [block.records].
func parseBlock(v []byte) (block, error) {
	if len(v) == 0 || blockLen(v) != len(v) {
		return block{}, wire.ErrShort
	}
	if binary.BigEndian.Uint32(v[4:]) != checksum(v) {
		return block{}, errChecksum
	}
	if v[2] > blockVersion {
		return block{}, errVersion
	}
	// What follows was once written like this, or is the work of an enemy.
	in := wire.NewReader(v[blockHeader:])
	in.Uint() // the length
	b := block{flags: v[3], first: in.Uint()}
	b.last = b.first + in.Max(math.MaxUint64-b.first)
	b.part = uint16(in.Max(math.MaxUint16))
	b.count = int(in.Max(maxBody))
	b.gap = in.Max(b.first)
	b.floor = in.Uint()
	b.age = in.Uint()
	b.time = unzigzag(in.Uint())
	b.oldest = b.time - int64(in.Max(math.MaxInt64))
	b.newest = b.time + int64(in.Max(math.MaxInt64))
	b.node = locks.NodeID(in.String())
	b.body = in.Rest()
	switch err := in.Err(); {
	case err != nil:
		return block{}, err
	case v[2] != blockVersion || b.flags&^flagsKnown != 0 || b.oldest > b.time || b.time > b.newest:
		return block{}, wire.ErrForm
	}
	return b, nil
}

// state reports whether b is a state block.
func (b *block) state() bool { return b.flags&flagState != 0 }

// records calls f for each record in order, until it returns false. The record
// is valid only during the call; its strings can be kept. An error means that
// the block is damaged. The decoder and scratch are the caller's, for reuse.
func (b *block) records(d *decoder, scratch *[]byte, f func(*Record) bool) error {
	body := b.body
	if b.flags&flagS2 != 0 {
		n, err := s2.DecodedLen(body)
		if err != nil {
			return err
		}
		if n > maxBody {
			return fmt.Errorf("%w: %d bytes of records", wire.ErrForm, n)
		}
		if cap(*scratch) < n {
			*scratch = make([]byte, n)
		}
		if body, err = s2.Decode((*scratch)[:n], body); err != nil {
			return err
		}
	}
	d.blockContext = blockContext{seq: b.first, time: b.time, node: b.node}
	if b.state() {
		d.seq = 0 // what it repeats is older
	}
	n := 0
	for ; len(body) > 0; n++ {
		size, k := binary.Uvarint(body)
		if k <= 0 || size > uint64(len(body)-k) {
			return fmt.Errorf("record %d of the block: %w", n, wire.ErrShort)
		}
		if err := d.decode(body[k : k+int(size)]); err != nil {
			return fmt.Errorf("record %d of the block: %w", n, err)
		}
		if !f(&d.rec) {
			return nil
		}
		body = body[k+int(size):]
	}
	if n != b.count {
		return fmt.Errorf("%w: %d records where %d were announced", wire.ErrForm, n, b.count)
	}
	return nil
}
