package fusefs

import (
	"encoding/binary"

	"github.com/dmxfs/dmxfs/locks"
)

// What a ledger has of open files and directories, and of explicit locks.

// handleLine is where the ledger has an open file; ledger.mu guards the fields.
type handleLine struct {
	number              uint32
	w                   [handleWords]uint64
	file, path, command string
	closed              bool // it is taken out for good
}

// opens writes down h, of which the kernel is told next. REQUIRES: h.mu held.
func (l *ledger) opens(h *handle) {
	if l == nil {
		return
	}
	l.mu.Lock()
	h.line = &handleLine{} // who breaks its lock does not wait for h.mu
	l.mu.Unlock()
	l.handle(h)
}

// handle writes down what h is now, if it was before. REQUIRES: h.mu held.
func (l *ledger) handle(h *handle) {
	if l == nil || h.line == nil {
		return
	}
	k, o := h.line, &h.open
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.closed {
		return // and its descriptor is another file's
	}
	was := k.w
	w := &k.w
	w[handleID], w[handleNode], w[handleFD], w[handleOpenFlags] = h.id, h.n.id, fdWord(h.fd), uint64(h.flags)
	if h.proc != nil {
		w[handleProcess] = uint64(h.proc.owner)
	}
	const kept = handleLost | handleFlocked | handlePosixed
	f := w[handleFlags]&kept | uint64(o.state)
	for _, x := range [...]struct {
		on   bool
		flag uint64
	}{
		{h.write, handleWrites}, {h.appends, handleAppends}, {h.mixed, handleMixed}, {o.untilClose, handleUntilClose},
		{o.alone, handleIsAlone}, {o.stream, handleStream}, {o.shared, handleShared}, {h.lost.Load(), handleLost},
		{h.fresh.Load(), handleFresh}, {h.flocked.Load(), handleFlocked}, {h.posixed.Load(), handlePosixed},
		{o.wait == nil || o.wait.again, handleAgain},
	} {
		if x.on {
			f |= x.flag
		}
	}
	w[handleFlags], w[handleKnows] = f, h.knows.Load()
	if o.state != openNone {
		l.openLock(k, h)
	}
	if was != *w || k.number == 0 {
		l.write(tableHandles, &k.number, w[:])
	}
}

// openLock is handle for the open lock. REQUIRES: mu and h.mu held.
func (l *ledger) openLock(k *handleLine, h *handle) {
	o, w, r := &h.open, &k.w, &h.open.req
	if k.file != r.Key.File {
		k.file = r.Key.File
		w[handleFile] = l.text(k.file)
	}
	if k.path != r.Path {
		k.path = r.Path
		w[handlePath] = l.pathText(k.path)
	}
	if p := &r.Program; k.command != p.Command || k.number == 0 {
		k.command = p.Command
		w[handleCommand] = l.text(k.command)
		w[handlePID] = uint64(uint32(p.PID))<<32 | uint64(uint32(p.TID))
		w[handleProgram], w[handleTask], w[handleUser] = p.Process, p.Task, uint64(p.UID)
	}
	w[handleOwner], w[handleMode], w[handleBorn], w[handlePatience] = uint64(r.Owner), uint64(r.Mode), uint64(r.Born), uint64(r.Patience)
	w[handleYields], w[handleYieldsShared], w[handleYieldsStream] = uint64(o.yields.after), uint64(o.yields.shared), uint64(o.yields.stream)
	w[handleTenure], w[handleToken] = uint64(o.tenure), uint64(o.token)
	if !h.lost.Load() { // else until it is closed
		w[handleAlone] = 0
		if o.alone && (o.state == openHeld || o.state == openShared) {
			w[handleAlone] = uint64(o.tenure) + 1
		}
	}
}

// flag writes down one thing about h that only ever becomes true.
func (l *ledger) flag(h *handle, flag uint64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := h.line; k != nil && k.number != 0 && k.w[handleFlags]&flag == 0 {
		k.w[handleFlags] |= flag
		l.write(tableHandles, &k.number, k.w[:])
	}
}

// breaks writes down that the open lock of h, which is between processes, is broken.
func (l *ledger) breaks(h *handle) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := h.line; k != nil && k.number != 0 {
		broken := brokenTenure
		k.w[handleAlone] = uint64(broken) + 1
		l.write(tableHandles, &k.number, k.w[:])
	}
}

// knows writes down of how many failures h has been told.
func (l *ledger) knows(h *handle) {
	l.mu.Lock()
	if k := h.line; k != nil && k.number != 0 {
		k.w[handleKnows] = h.knows.Load()
		l.write(tableHandles, &k.number, k.w[:])
	}
	l.mu.Unlock()
	h.n.noteUnwritten()
}

// closes takes h out, before its descriptor is closed and its locks are given up: who
// goes on gives up those of open files that it does not know.
func (l *ledger) closes(h *handle) {
	if l == nil || h.line == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(tableHandles, &h.line.number)
	h.line.closed = true
}

// dir writes down an open directory. REQUIRES: d.mu held, or nobody else knows d.
func (l *ledger) dir(id uint64, d *dirHandle) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d.id = id
	l.write(tableDirs, &d.line, []uint64{
		dirID: id, dirNode: d.n.id, dirFD: fdWord(d.fd), dirFlags: bit(d.lease != 0, 0),
		dirUser: uint64(d.in.Uid)<<32 | uint64(d.in.Gid), dirPID: uint64(d.in.Pid),
	})
}

func (l *ledger) closesDir(d *dirHandle) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(tableDirs, &d.line)
}

// mostRanges is how many parts of a file are written down of one lock. Of more it is
// written that all is locked between the first and the last: that they protect what is
// done, and through which open file they came, is what is needed of them.
const mostRanges = 4000

// lock writes down an explicit lock. REQUIRES: r.n.lockMu held.
func (l *ledger) lock(r *lockRecord) {
	if l == nil {
		return
	}
	rs := r.ranges
	if len(rs) > mostRanges {
		rs = locks.Ranges{{Start: rs[0].Start, End: rs[len(rs)-1].End}}
	}
	var few [64]byte
	b := few[:0]
	for _, x := range rs {
		b = binary.LittleEndian.AppendUint64(b, x.Start)
		b = binary.LittleEndian.AppendUint64(b, x.End)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if string(b) != l.ranges { // most are of the whole file
		l.ranges = string(b)
	}
	l.lockWords = [lockWords]uint64{
		lockNode: r.n.id, lockClass: uint64(r.class), lockOwner: uint64(r.owner), lockHandle: r.h.id,
		lockTenure: uint64(r.tenure), lockToken: uint64(r.token), lockTurn: r.turn, lockFirst: r.first,
	}
	if r.p != nil {
		l.lockWords[lockProcess] = uint64(r.p.owner)
	}
	l.lockWords[lockRanges] = l.text(l.ranges)
	l.write(tableLocks, &r.line, l.lockWords[:])
}

// unlocks takes an explicit lock out. REQUIRES: r.n.lockMu held.
func (l *ledger) unlocks(r *lockRecord) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(tableLocks, &r.line)
}

// beginOpen writes down all that is open and locked.
func (l *ledger) beginOpen(f *fileSystem) {
	for _, h := range f.handles.all() {
		h.mu.Lock()
		l.opens(h)
		h.mu.Unlock()
		for r := range h.records {
			l.lock(r)
		}
	}
	for id, d := range f.dirs.m {
		l.dir(id, d)
	}
	l.reserve(handleIDs, f.lastID.Load())
	l.reserve(turnIDs, f.records.turns.Load())
}
