package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

var (
	// ErrShort: the message ends within a field.
	ErrShort = errors.New("message is cut short")
	// ErrTrailing: there is something after the last field.
	ErrTrailing = errors.New("message goes on after its last field")
	// ErrForm: a field is not in its canonical form, or out of bounds.
	ErrForm = errors.New("message has a malformed field")
)

// Uint appends v as a varint of encoding/binary: 7 bits a byte, the lowest first.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint](b []byte, v T) []byte {
	return binary.AppendUvarint(b, uint64(v))
}

// Bool appends a byte: 1 for true, 0 for false.
func Bool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// String appends v behind its length.
func String[T ~string | ~[]byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// Range appends the start and the end of r.
func Range(b []byte, r locks.Range) []byte {
	return Uint(Uint(b, r.Start), r.End)
}

// Ranges appends the number of ranges in s, and each.
func Ranges(b []byte, s locks.Ranges) []byte {
	b = Uint(b, uint(len(s)))
	for _, r := range s {
		b = Range(b, r)
	}
	return b
}

// RangesInParts is Ranges that calls breathe between parts of very many.
func RangesInParts(b []byte, s locks.Ranges, breathe func()) []byte {
	b = Uint(b, uint(len(s)))
	for i, r := range s {
		if i%part == part-1 {
			breathe()
		}
		b = Range(b, r)
	}
	return b
}

// Reader takes fields from a message, in the order in which they were
// appended. After the first error every field is zero; [Reader.End] returns it.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads b, which it does not change. Strings are copied.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// Failf records that a field holds a value that means nothing.
func (r *Reader) Failf(format string, args ...any) {
	r.fail(fmt.Errorf("%w: %s", ErrForm, fmt.Sprintf(format, args...)))
}

// Uint reads an unsigned number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case r.err != nil:
		return 0
	case n == 0:
		r.fail(ErrShort)
		return 0
	case n < 0 || n > 1 && r.b[n-1] == 0: // over 64 bits, or longer than need be
		r.fail(ErrForm)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Max reads an unsigned number that is at most limit.
func (r *Reader) Max(limit uint64) uint64 {
	v := r.Uint()
	if v > limit {
		r.Failf("%d is over %d", v, limit)
		return 0
	}
	return v
}

// Len reads a count of things of at least size bytes each, so that a decoder
// never allocates more than a message could hold. Size is at least 1.
func (r *Reader) Len(size int) int {
	v := r.Uint()
	if v > uint64(len(r.b)/size) {
		r.fail(ErrShort)
		return 0
	}
	return int(v)
}

// Bool reads a truth value.
func (r *Reader) Bool() bool { return r.Max(1) == 1 }

// Bytes reads a byte string; the result shares memory with the message.
func (r *Reader) Bytes() []byte {
	n := r.Len(1)
	if r.err != nil {
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// String reads a byte string.
func (r *Reader) String() string { return string(r.Bytes()) }

// Mode reads a mode.
func (r *Reader) Mode() locks.Mode {
	m := locks.Mode(r.Max(uint64(locks.Write)))
	if m == 0 && r.err == nil {
		r.Failf("no mode")
	}
	return m
}

// Range reads a range that is not empty.
func (r *Reader) Range() locks.Range {
	v := locks.Range{Start: r.Uint(), End: r.Max(locks.MaxOffset)}
	if r.err == nil && v.Empty() {
		r.Failf("empty range %v", v)
	}
	if r.err != nil {
		return locks.Range{}
	}
	return v
}

// Ranges reads a set of ranges.
func (r *Reader) Ranges() locks.Ranges { return r.RangesInParts(func() {}) }

// part is how many ranges are read, or appended, between two breaths.
const part = 1024

// RangesInParts is Ranges that calls breathe between parts of very many.
func (r *Reader) RangesInParts(breathe func()) locks.Ranges {
	n := r.Len(2)
	if n == 0 {
		return nil
	}
	s := make(locks.Ranges, 0, n)
	for i := range n {
		if i%part == part-1 {
			breathe()
		}
		x := r.Range()
		if r.err == nil && i > 0 && s[i-1].End >= x.Start {
			r.Failf("ranges %v and %v out of order", s[i-1], x)
		}
		s = append(s, x)
	}
	if r.err != nil {
		return nil
	}
	return s
}

// Rest reads all that is left.
func (r *Reader) Rest() []byte {
	v := r.b
	r.b = nil
	return v
}

// Err is the first error so far.
func (r *Reader) Err() error { return r.err }

// End checks that the message has been read to its end.
func (r *Reader) End() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = ErrTrailing
	}
	return r.err
}
