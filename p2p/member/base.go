package member

// base is what all parts of a machine have in common: what it was made of, and
// the step under way.
type base struct {
	cfg Config // as New has checked it
	p   Params

	now      int64
	lastTick int64
	out      *Output
}

// begin begins a step, and done ends it.
func (b *base) begin(now int64, out *Output) { b.now, b.out = max(b.now, now), out }
func (b *base) done()                        { b.out = nil }

// ticked: all that counts waking time has been told of the tick.
func (b *base) ticked() { b.lastTick = b.now }

// waking is a length of waking time: what ticks add up to, each counted as
// Params.Cap at most.
type waking struct {
	ms   int64
	from int64 // when it began
}

// sinceNow is waking time that begins.
func (b *base) sinceNow() waking { return waking{from: b.now} }

// tick adds the time since the last tick.
func (w *waking) tick(b *base) { w.ms += b.awake(w.from) }

// awake is how much of the time since the last tick counts for what began at
// from. Being stopped for any time counts as Cap; a clock that jumps in a tick
// of ordinary length adds at most Cap - Tick to what really passed, and
// Params.Validate has that in the bound of Delta.
func (b *base) awake(from int64) int64 {
	if from > b.lastTick {
		return min(b.now-from, b.p.Cap-b.p.Tick)
	}
	return min(b.now-b.lastTick, b.p.Cap)
}
