package journal

import "encoding/binary"

// prefixes are the shortest byte strings such that the big-endian forms of
// from, ..., to-1, and of no other number, begin with one of them.
//
// Badger gives space back at once only for what it drops by prefix: deleted
// keys wait for a compaction that may never come.
func prefixes(from, to uint64) [][]byte {
	var out [][]byte
	var full [8]byte
	for from < to {
		// The largest aligned run of 256^n numbers that begins at from and
		// ends at or before to.
		n := uint(0)
		for n < 7 && from&(1<<(8*(n+1))-1) == 0 && to-from >= 1<<(8*(n+1)) {
			n++
		}
		binary.BigEndian.PutUint64(full[:], from)
		out = append(out, append([]byte(nil), full[:8-n]...))
		run := uint64(1) << (8 * n)
		if to-from <= run {
			break // and from+run may be 2^64
		}
		from += run
	}
	return out
}
