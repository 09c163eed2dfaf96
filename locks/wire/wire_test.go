package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmxfs/dmxfs/locks"
)

func anyRanges() *rapid.Generator[locks.Ranges] {
	return rapid.Custom(func(t *rapid.T) locks.Ranges {
		var s []locks.Range
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			start := rapid.Uint64Range(0, locks.MaxOffset-1).Draw(t, "start")
			s = append(s, locks.Range{Start: start, End: rapid.Uint64Range(start+1, locks.MaxOffset).Draw(t, "end")})
		}
		return locks.Collect(s)
	})
}

// All kinds of field, one after another, come back as they were written.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		yes := rapid.Bool().Draw(t, "yes")
		text := rapid.String().Draw(t, "text")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		set := anyRanges().Draw(t, "set")
		rest := rapid.SliceOf(rapid.Byte()).Draw(t, "rest")

		b := Uint(nil, n)
		b = Bool(b, yes)
		b = String(b, text)
		b = String(b, data)
		b = Uint(b, locks.Write)
		b = Ranges(b, set)
		b = Range(b, locks.Whole)
		whole := append(slices.Clone(b), rest...)

		r := NewReader(whole)
		if got := r.Uint(); got != n {
			t.Fatalf("%d, want %d", got, n)
		}
		if got := r.Bool(); got != yes {
			t.Fatalf("%v, want %v", got, yes)
		}
		if got := r.String(); got != text {
			t.Fatalf("%q, want %q", got, text)
		}
		if got := r.Bytes(); !bytes.Equal(got, data) {
			t.Fatalf("%x, want %x", got, data)
		}
		if got := r.Mode(); got != locks.Write {
			t.Fatalf("mode %v", got)
		}
		if got := r.Ranges(); !slices.Equal(got, set) {
			t.Fatalf("%v, want %v", got, set)
		}
		if got := r.Range(); got != locks.Whole {
			t.Fatalf("%v", got)
		}
		if got := r.Rest(); !bytes.Equal(got, rest) {
			t.Fatalf("%x, want %x", got, rest)
		}
		if err := r.End(); err != nil {
			t.Fatal(err)
		}

		// Whatever is cut off, or added, is missed.
		cut := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		if err := read(NewReader(cut)); !errors.Is(err, ErrShort) {
			t.Fatalf("%x cut to %x: %v", b, cut, err)
		}
		if err := read(NewReader(append(slices.Clone(b), 0))); !errors.Is(err, ErrTrailing) {
			t.Fatalf("one byte more: %v", err)
		}
	})
}

// read takes the fields of TestRoundTrip.
func read(r *Reader) error {
	r.Uint()
	r.Bool()
	_ = r.String()
	r.Bytes()
	r.Mode()
	r.Ranges()
	r.Range()
	return r.End()
}

func TestMalformedFields(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	for _, c := range []struct {
		name string
		b    []byte
		read func(*Reader)
		want error
	}{
		{"number over 64 bits", bytes.Repeat([]byte{0xff}, 11), func(r *Reader) { r.Uint() }, ErrForm},
		{"number longer than need be", []byte{0x81, 0x00}, func(r *Reader) { r.Uint() }, ErrForm},
		{"number over its limit", []byte{8}, func(r *Reader) { r.Max(7) }, ErrForm},
		{"truth value 2", []byte{2}, func(r *Reader) { r.Bool() }, ErrForm},
		{"mode 0", []byte{0}, func(r *Reader) { r.Mode() }, ErrForm},
		{"mode 3", []byte{3}, func(r *Reader) { r.Mode() }, ErrForm},
		{"string longer than the message", []byte{2, 'a'}, func(r *Reader) { _ = r.String() }, ErrShort},
		{"string of any length", huge, func(r *Reader) { r.Bytes() }, ErrShort},
		{"count of more than can follow", []byte{200, 1, 0}, func(r *Reader) { r.Ranges() }, ErrShort},
		{"empty range", []byte{3, 3}, func(r *Reader) { r.Range() }, ErrForm},
		{"range backwards", []byte{4, 3}, func(r *Reader) { r.Range() }, ErrForm},
		{"range beyond the end", Uint([]byte{0}, locks.MaxOffset+1), func(r *Reader) { r.Range() }, ErrForm},
		{"ranges out of order", []byte{2, 4, 5, 1, 2}, func(r *Reader) { r.Ranges() }, ErrForm},
		{"ranges that touch", []byte{2, 1, 2, 2, 3}, func(r *Reader) { r.Ranges() }, ErrForm},
		{"nothing", nil, func(r *Reader) { r.Uint() }, ErrShort},
		{"something more", []byte{1, 1}, func(r *Reader) { r.Uint() }, ErrTrailing},
	} {
		r := NewReader(c.b)
		c.read(r)
		if err := r.End(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestTheFirstErrorStays(t *testing.T) {
	r := NewReader([]byte{2, 7, 7})
	r.Bool()
	first := r.Err()
	if first == nil {
		t.Fatal("no error")
	}
	if n, s, b, set := r.Uint(), r.String(), r.Bytes(), r.Ranges(); n != 0 || s != "" || b != nil || set != nil {
		t.Errorf("after the error: %d, %q, %x, %v", n, s, b, set)
	}
	r.Failf("another")
	if err := r.End(); err != first {
		t.Errorf("%v, want %v", err, first)
	}
}

// FuzzReader: nothing panics, and what is accepted is canonical.
func FuzzReader(f *testing.F) {
	seed := String(Bool(Uint(nil, uint64(300)), true), "text")
	seed = Ranges(Uint(seed, locks.Read), locks.Ranges{{Start: 0, End: 1}, {Start: 7, End: locks.MaxOffset}})
	f.Add(Range(seed, locks.Whole))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		n, yes, text, mode, set, rng := r.Uint(), r.Bool(), r.String(), r.Mode(), r.Ranges(), r.Range()
		if r.End() != nil {
			return
		}
		again := String(Bool(Uint(nil, n), yes), text)
		again = Range(Ranges(Uint(again, mode), set), rng)
		if !bytes.Equal(again, b) {
			t.Errorf("%x was read, and is written %x", b, again)
		}
	})
}
