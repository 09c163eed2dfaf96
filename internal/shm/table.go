package shm

import (
	"iter"
	"sync/atomic"
)

// The state of a slot: its low half, and the checksum of all that the record has, or
// of that half alone if it is free.
const (
	stateUsed = 1
	stateCopy = 2 // which copy counts, and counted last if it is free
	stateStep = 4 // the rest counts the writes
)

// at is where slot i lies.
func (tb *table) at(i uint32) int { return tb.place.at + int(i)*tb.stride }

// copyAt is where the copy of the slot at s lies that a state tells of.
func (tb *table) copyAt(s int, state uint64) int {
	if state&stateCopy != 0 {
		return s + 2 + tb.Words
	}
	return s + 1
}

// seed is what the checksum of a slot begins with: a record that gets elsewhere is
// none.
func (tb *table) seed(i uint32, low uint32) uint64 {
	return uint64(low)<<32 ^ uint64(i) ^ (tb.number+1)<<26
}

func (tb *table) freeWord(i uint32, low uint32) uint64 {
	return uint64(low) | uint64(mix(tb.seed(i, low), magic))<<32
}

// valid is whether the state of slot i stands for a record or for none, and the era
// of the record.
func (t *Tables) valid(tb *table, i uint32) (used bool, era uint64, ok bool) {
	s := tb.at(i)
	state := atomic.LoadUint64(&t.w[s])
	low := uint32(state)
	if low&stateUsed == 0 {
		return false, 0, state == tb.freeWord(i, low)
	}
	c := tb.copyAt(s, state)
	return true, t.w[c], uint32(state>>32) == check(tb.seed(i, low), t.w[c:c+1+tb.Words])
}

// alloc takes a free slot of table n.
func (t *Tables) alloc(n int) (uint32, error) {
	tb := &t.tables[n]
	if last := len(tb.free) - 1; last >= 0 {
		i := tb.free[last]
		tb.free = tb.free[:last]
		return i, nil
	}
	if tb.fresh == tb.place.top {
		err := t.grow(&tb.place, func(i uint32) { t.w[tb.at(i)] = tb.freeWord(i, 0) })
		if err != nil {
			return 0, t.fails("no room for one more record of table %d: %v", n, err)
		}
	}
	tb.fresh++
	return tb.fresh - 1, nil
}

// publish makes words the record of slot i.
func (t *Tables) publish(tb *table, i uint32, words []uint64) {
	s := tb.at(i)
	state := t.w[s]
	low := (uint32(state)^stateCopy)&^stateUsed + stateStep | stateUsed
	c := tb.copyAt(s, uint64(low))
	to := t.w[c : c+1+tb.Words]
	to[0] = t.era
	copy(to[1:], words)
	sum := check(tb.seed(i, low), to)
	atomic.StoreUint64(&t.w[s], uint64(low)|uint64(sum)<<32)
}

// Put adds a record to a table, and returns its number, which is not 0. It keeps the
// texts that it refers to.
func (t *Tables) Put(table int, words []uint64) (uint32, error) {
	tb := &t.tables[table]
	if len(words) != tb.Words {
		return 0, t.fails("a record of table %d has %d words", table, len(words))
	}
	if t.full != nil {
		return 0, t.full
	}
	i, err := t.alloc(table)
	if err != nil {
		return 0, err
	}
	for _, ref := range words[:tb.Texts] {
		t.keep(ref)
	}
	if t.full != nil { // a text that is none
		return 0, t.full
	}
	t.publish(tb, i, words)
	return i + 1, nil
}

// Set makes words the record with a number that Put gave.
func (t *Tables) Set(table int, number uint32, words []uint64) error {
	if t.full != nil {
		return t.full
	}
	tb := &t.tables[table]
	was := t.record(tb, number)
	if was == nil || len(words) != tb.Words {
		return t.fails("record %d of table %d is changed, and there is none, or it has %d words", number, table, len(words))
	}
	var old [maxTexts]uint64
	refs := old[:copy(old[:], was[:tb.Texts])]
	for i, ref := range words[:tb.Texts] {
		if ref != refs[i] { // as few are
			t.keep(ref)
		}
	}
	if t.full != nil {
		return t.full
	}
	t.publish(tb, number-1, words)
	for i, ref := range refs {
		if ref != words[i] {
			t.drop(ref)
		}
	}
	return nil
}

// Delete takes a record away.
func (t *Tables) Delete(table int, number uint32) {
	if t.full != nil {
		return
	}
	tb := &t.tables[table]
	was := t.record(tb, number)
	if was == nil {
		t.SetFull("a record was taken away twice")
		return
	}
	i := number - 1
	s := tb.at(i)
	low := uint32(t.w[s])&^stateUsed + stateStep
	atomic.StoreUint64(&t.w[s], tb.freeWord(i, low))
	for _, ref := range was[:tb.Texts] {
		t.drop(ref)
	}
	tb.free = append(tb.free, i)
}

// record is the words of a record in the memory; nil if there is no such one.
func (t *Tables) record(tb *table, number uint32) []uint64 {
	if number == 0 || number > tb.place.top {
		return nil
	}
	s := tb.at(number - 1)
	state := t.w[s]
	c := tb.copyAt(s, state)
	if state&stateUsed == 0 || t.w[c] != t.era {
		return nil
	}
	return t.w[c+1 : c+1+tb.Words : c+1+tb.Words]
}

// Get is a copy of a record; nil if there is no such one.
func (t *Tables) Get(table int, number uint32) []uint64 {
	return append([]uint64(nil), t.record(&t.tables[table], number)...)
}

// All are the records of a table, in the order of their numbers. What it gives is in
// the memory, and must not be changed.
func (t *Tables) All(table int) iter.Seq2[uint32, []uint64] {
	tb := &t.tables[table]
	return func(yield func(uint32, []uint64) bool) {
		for i := range tb.place.top {
			if r := t.record(tb, i+1); r != nil && !yield(i+1, r) {
				return
			}
		}
	}
}
