package fusefs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The state that one process hands to the next is written by hand: 50,000 open
// files are then coded in some ten milliseconds, where encoding/gob and
// encoding/json take several times as long, while programs wait. One function
// for each type does both directions, so they cannot differ.

// codec writes values to b, or reads them from there. After an error it does
// nothing, and what it was to read is zero.
type codec struct {
	b       []byte
	reading bool
	err     error
	fds     []int // that were written
	// take is what has become of a descriptor that was written.
	take func(old int) int
}

var errShort = errors.New("the state is cut off")

func (c *codec) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

// u64 is an unsigned number.
func (c *codec) u64(p *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *p)
		return
	}
	x, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail(errShort)
		*p = 0
		return
	}
	*p, c.b = x, c.b[n:]
}

// number is any other number, or something that is one.
func number[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr](c *codec, p *T) {
	// Small ones of either sign are short.
	x := uint64(int64(*p)<<1) ^ uint64(int64(*p)>>63)
	c.u64(&x)
	if !c.reading {
		return
	}
	v := int64(x>>1) ^ -int64(x&1)
	if *p = T(v); int64(*p) != v {
		c.fail(fmt.Errorf("the state has the number %d in a place of another size", v))
		*p = 0
	}
}

func (c *codec) flag(p *bool) {
	x := uint64(0)
	if *p {
		x = 1
	}
	c.u64(&x)
	if x > 1 {
		c.fail(fmt.Errorf("the state has %d for yes or no", x))
	}
	*p = x == 1
}

// length is how many elements follow, which have at least one byte each.
func (c *codec) length(n int) int {
	x := uint64(n)
	if c.u64(&x); x > uint64(len(c.b)) && c.reading {
		c.fail(errShort)
		return 0
	}
	return int(min(x, math.MaxInt))
}

func (c *codec) bytes(p *[]byte) {
	n := c.length(len(*p))
	if !c.reading {
		c.b = append(c.b, *p...)
		return
	}
	*p = nil
	if n > 0 {
		*p, c.b = append(make([]byte, 0, n), c.b[:n]...), c.b[n:]
	}
}

func (c *codec) text(p *string) {
	n := c.length(len(*p))
	if !c.reading {
		c.b = append(c.b, *p...)
		return
	}
	*p, c.b = string(c.b[:n]), c.b[n:]
}

// fd is a descriptor, or -1.
func (c *codec) fd(p *int) {
	if !c.reading && *p >= 0 {
		c.fds = append(c.fds, *p)
	}
	number(c, p)
	if !c.reading || *p < 0 || c.err != nil {
		return
	}
	if *p = c.take(*p); *p < 0 {
		c.fail(errors.New("a descriptor is missing"))
	}
}

// list is a slice; each codes an element.
func list[T any](c *codec, p *[]T, each func(*codec, *T)) {
	n := c.length(len(*p))
	if c.reading {
		*p = nil
		if n > 0 {
			// Not all at once: a damaged length must not take all memory.
			*p = make([]T, 0, min(n, 1<<16))
		}
		var x T
		for ; n > 0 && c.err == nil; n-- {
			x = *new(T)
			each(c, &x)
			*p = append(*p, x)
		}
		return
	}
	for i := range *p {
		each(c, &(*p)[i])
	}
}
