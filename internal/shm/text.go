package shm

import (
	"encoding/binary"
	"sync/atomic"
)

// sizes are those of the slots of texts, in bytes, with a head of 16 each.
var sizes = [...]int{64, 128, 256, 1024, 4096 + 64, 64 << 10}

// textShare is the part of the texts that each size may have.
var textShare = [len(sizes)]int{1, 1, 1, 4, 32, 4096}

// MaxText is how long a text may be, in bytes.
var MaxText = sizes[len(sizes)-1] - textHead*8

// The words of a slot: its serial number with a checksum, the length, then the text.
const textHead = 2

// spares is how many texts are kept that no record refers to: mostly they are asked
// for again. Those of the last atHand calls of Text are kept in any case.
const (
	spares = 64
	atHand = spares / 2
)

// texts is what the process knows of texts.
type texts struct {
	class  [len(sizes)]class
	by     map[string]*text
	last   [2]*text // of by, those that were asked for last
	serial uint32
	calls  uint64  // of Text
	spare  []*text // a ring; those that have got records since, and those that have gone, are among them
	next   int
}

type class struct {
	area
	all  []*text // nil: free
	free []uint32
}

type text struct {
	ref   uint64
	s     string
	count int
	call  uint64 // the last one of Text that has given it
	spare bool
}

func makeRef(class int, i, serial uint32) uint64 {
	return uint64(class+1)<<60 | uint64(i)<<32 | uint64(serial)
}

// splitRef is the inverse of makeRef; class is -1 if ref can be of none.
func splitRef(ref uint64) (class int, i, serial uint32) {
	class = int(ref>>60) - 1
	if class >= len(sizes) {
		class = -1
	}
	return class, uint32(ref >> 32 & (1<<28 - 1)), uint32(ref)
}

func (x *texts) clear() {
	x.by, x.spare, x.next = map[string]*text{}, nil, 0
	x.last = [2]*text{}
	for i := range x.class {
		c := &x.class[i]
		clear(c.all)
		c.free = c.free[:0]
		for slot := range c.top {
			c.free = append(c.free, slot)
		}
	}
}

// Text is what a record refers to s by; 0 if it is empty. It stays good as long as a
// record refers to it, and until Text was called for 32 others in any case.
func (t *Tables) Text(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	ts := &t.texts
	ts.calls++
	for _, x := range ts.last {
		if x != nil && x.s == s {
			x.call = ts.calls
			return x.ref, nil
		}
	}
	if x := ts.by[s]; x != nil {
		x.call = ts.calls
		ts.last[1], ts.last[0] = ts.last[0], x
		return x.ref, nil
	}
	if t.full != nil {
		return 0, t.full
	}
	n := 0
	for n < len(sizes) && sizes[n]-textHead*8 < len(s) {
		n++
	}
	if n == len(sizes) {
		return 0, t.fails("a text of %d bytes is too long", len(s))
	}
	c := &t.texts.class[n]
	if len(c.free) == 0 {
		from := c.top
		if err := t.grow(&c.area, func(uint32) {}); err != nil {
			return 0, t.fails("no room for one more text of %d bytes: %v", len(s), err)
		}
		for i := c.top; i > from; i-- {
			c.free = append(c.free, i-1)
		}
		c.all = append(c.all, make([]*text, c.top-from)...)
	}
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	if t.texts.serial++; t.texts.serial == 0 {
		t.texts.serial++
	}
	x := &text{ref: makeRef(n, i, t.texts.serial), s: s, call: t.texts.calls}
	t.write(c, i, s)
	if t.texts.by == nil {
		t.texts.by = map[string]*text{}
	}
	c.all[i], ts.by[s] = x, x
	ts.last[1], ts.last[0] = ts.last[0], x
	t.spare(x)
	return x.ref, nil
}

// write puts s into slot i. No record refers to that.
func (t *Tables) write(c *class, i uint32, s string) {
	at := c.at + int(i)*c.stride
	w := t.w[at : at+textHead+(len(s)+7)/8]
	w[1] = uint64(len(s))
	if len(s)%8 != 0 {
		w[len(w)-1] = 0
	}
	copy(t.mem[(at+textHead)*8:], s)
	atomic.StoreUint64(&w[0], uint64(t.texts.serial)|uint64(check(uint64(at)<<32|uint64(t.texts.serial), w[1:]))<<32)
}

// read is the text at ref, or an error if there is none.
func (t *Tables) read(ref uint64) (string, error) {
	n, i, serial := splitRef(ref)
	if n < 0 || i >= t.texts.class[n].top {
		return "", damaged("a text lies outside of the memory (%x)", ref)
	}
	c := &t.texts.class[n]
	at := c.at + int(i)*c.stride
	size := atomic.LoadUint64(&t.w[at+1])
	if size == 0 || size > uint64(sizes[n]-textHead*8) {
		return "", damaged("a text has %d bytes in a place of %d", size, sizes[n])
	}
	head, w := t.w[at], t.w[at+1:at+textHead+(int(size)+7)/8]
	if uint32(head) != serial {
		return "", damaged("a text that a record refers to was written over")
	}
	if uint32(head>>32) != check(uint64(at)<<32|uint64(serial), w) {
		return "", damaged("a text has another checksum")
	}
	b := make([]byte, 0, len(w)*8)
	for _, x := range w[1:] {
		b = binary.NativeEndian.AppendUint64(b, x)
	}
	return string(b[:size]), nil
}

// known is the text at ref; nil if there is none.
func (t *Tables) known(ref uint64) *text {
	n, i, _ := splitRef(ref)
	if n < 0 || int(i) >= len(t.texts.class[n].all) {
		return nil
	}
	if x := t.texts.class[n].all[i]; x != nil && x.ref == ref {
		return x
	}
	return nil
}

// String is the text that a record refers to by ref.
func (t *Tables) String(ref uint64) string {
	if x := t.known(ref); x != nil {
		return x.s
	}
	return ""
}

// keep counts one more record that refers to ref.
func (t *Tables) keep(ref uint64) {
	if ref == 0 {
		return
	}
	if x := t.known(ref); x != nil {
		x.count++
	} else {
		t.SetFull("a record refers to a text that is not there")
	}
}

// drop counts one less.
func (t *Tables) drop(ref uint64) {
	if ref == 0 {
		return
	}
	x := t.known(ref)
	if x == nil || x.count == 0 {
		t.SetFull("a text was given up twice")
		return
	}
	if x.count--; x.count == 0 && !x.spare {
		t.spare(x)
	}
}

// spare keeps x for a while, and gives up another one for it.
func (t *Tables) spare(x *text) {
	x.spare = true
	ts := &t.texts
	if len(ts.spare) < spares {
		ts.spare = append(ts.spare, x)
		return
	}
	// Somebody may be about to refer to one that is at hand. There are fewer of these.
	for ts.calls-ts.spare[ts.next].call < atHand {
		ts.next = (ts.next + 1) % spares
	}
	old := ts.spare[ts.next]
	ts.spare[ts.next] = x
	ts.next = (ts.next + 1) % spares
	if old.spare = false; old.count > 0 {
		return
	}
	n, i, _ := splitRef(old.ref)
	delete(ts.by, old.s)
	for i, x := range ts.last {
		if x == old {
			ts.last[i] = nil
		}
	}
	ts.class[n].all[i] = nil
	ts.class[n].free = append(ts.class[n].free, i)
}
