package fusefs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// appends keeps in order what one write(2) to a file with O_APPEND and O_DIRECT
// appends. The kernel cuts it into requests of at most maxPiece, and with
// FUSE_ASYNC_DIO sends them all at once; several readers take them, and each
// piece goes to where the file ends then. The kernel makes no other write to
// the file meanwhile.
//
// It numbers the pieces by where it believes that they go. So the first one
// begins at the end of the file, and each other one where one ends that was
// written before: if the kernel knows how long the file is. If another host has
// written meanwhile it may not, and a piece that begins elsewhere is the first
// one, or one whose predecessor a reader has not got to yet. It waits for that,
// for a while. Should the predecessor come later still it is refused: then the
// write fails, and what has arrived of it is in the wrong order, but nobody
// takes it for written.
type appends struct {
	mu      sync.Mutex
	busy    bool            // a piece is being written
	end     int64           // of the piece that was written last
	waiting map[int64]int   // pieces that wait, by their begins
	wrote   map[int64]int64 // how long the file was with the piece that begins here
	changed chan struct{}   // closed when busy or waiting changes; nil: nobody waits
}

const (
	// appendWait is longer than a reader takes from read(2) to turn, and the
	// program from one request to the next, on a machine that is busy (more
	// than 50 ms at a load of 20).
	appendWait = 250 * time.Millisecond
	// appendsKnown is how many pieces are remembered: as many as the kernel
	// sends at a time, see MaxBackground.
	appendsKnown = 1024
)

// turn waits until a piece may be appended that begins at off and has n bytes, as
// the kernel believes. size tells how long the file is. waits is called before
// it waits. Without an error the caller writes the piece and then calls wrote.
func (a *appends) turn(cancel <-chan struct{}, off int64, n int, size func() (int64, error), waits func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var late <-chan time.Time
	for {
		if !a.busy {
			is, err := size()
			if err != nil {
				return err
			}
			if with, ok := a.wrote[off+int64(n)]; ok && is >= with {
				return unix.EIO // the next piece is in its place
			}
			if off == 0 || off == is || off == a.end || late == closedTime && a.isFirst(off) {
				a.busy = true
				return nil
			}
		}
		if late == nil {
			t := time.NewTimer(appendWait)
			defer t.Stop()
			late = t.C
			if a.waiting == nil {
				a.waiting = make(map[int64]int)
			}
			a.waiting[off]++
			defer a.waitsNoMore(off)
			waits()
		}
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed, timer := a.changed, late
		if late == closedTime {
			timer = nil // it waits for a piece before it, which does not wait for it
		}
		a.mu.Unlock()
		select {
		case <-changed:
		case <-timer:
			late = closedTime
		case <-cancel:
		}
		a.mu.Lock()
		if closed(cancel) {
			return errLetGo
		}
	}
}

// closedTime stands for a timer that has gone off.
var closedTime = make(<-chan time.Time)

// isFirst reports whether no piece waits that begins before off.
// REQUIRES: mu held.
func (a *appends) isFirst(off int64) bool {
	for other := range a.waiting {
		if other < off {
			return false
		}
	}
	return true
}

// REQUIRES: mu held.
func (a *appends) waitsNoMore(off int64) {
	if a.waiting[off]--; a.waiting[off] == 0 {
		delete(a.waiting, off)
	}
	a.wakeUp()
}

// REQUIRES: mu held.
func (a *appends) wakeUp() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// over ends a turn. ok: all of the piece was written.
func (a *appends) over(off int64, n int, ok bool, size func() (int64, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
	if ok {
		a.end = off + int64(n)
		if is, err := size(); err == nil {
			if a.wrote == nil || len(a.wrote) >= appendsKnown {
				a.wrote = make(map[int64]int64)
			}
			a.wrote[off] = is
		}
	}
	a.wakeUp()
}

// appendDirectly is Writev for what one of several requests may append.
func (fc *fileCalls) appendDirectly(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	h := fc.handles.get(in.Fh)
	if h == nil {
		return 0, fuse.EBADF
	}
	n := 0
	for _, b := range data {
		n += len(b)
	}
	size := func() (int64, error) {
		var st unix.Stat_t
		err := fc.attrs.fstat(h.n, h.fd, &st)
		return st.Size, err
	}
	a, off := &h.n.appends, int64(in.Offset)
	if fc.fence.isPast(&in.InHeader) {
		// Those before it are done, and those behind it wait for their turn.
		return fc.writePieces(cancel, in, data)
	}
	if err := a.turn(cancel, off, n, size, func() { fc.conn.willWait(in.Unique) }); err != nil {
		return 0, status(err)
	}
	done, st := fc.writePieces(cancel, in, data)
	a.over(off, n, st.Ok() && int(done) == n, size)
	return done, st
}
