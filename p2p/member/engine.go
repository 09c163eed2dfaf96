package member

// engine is what the engine of this node was told, and has answered.
type engine struct {
	*position
	seq    uint64 // of the last Freeze
	frozen bool   // it has acknowledged that
	synced bool   // Output.Synced was given at this epoch
}

// freeze stops it, for w or, if that is nil, to leave.
func (e *engine) freeze(w *View) {
	e.seq++
	e.frozen, e.synced = false, false
	e.out.Freeze = &Freeze{Seq: e.seq, View: w}
}

// answered reports whether it has stopped: it may have answered to a Freeze
// before the last one.
func (e *engine) answered(in Frozen) bool {
	if in.Seq == e.seq {
		e.frozen = true
	}
	return in.Seq == e.seq
}

// sync: it has the states of all members.
func (e *engine) sync() {
	e.frozen, e.synced = false, true
	e.out.Synced = e.view.Epoch
}

// outside: it grants nothing until the next view.
func (e *engine) outside() { e.synced = false }
