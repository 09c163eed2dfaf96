package fusefs

import (
	"bytes"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// While a write(2) or truncate(2) waits for a lock, the kernel holds the lock of
// the inode for it. Whoever removes the file, renames it, or changes its mode
// meanwhile waits for that, and nothing ends this wait, not even SIGKILL; and
// rm(1) holds the directory, so that ls(1) waits, too. That must not last as long
// as another host works with the file.
//
// The kernel sends no request for such a waiter. But who comes by the name of the
// file has looked it up before, and who has it open is known; so these threads are
// looked at while the lock of the inode is held for one that is parked. When one of them has stood
// still for nearly Options.Hold, the one that is parked gives up: truncate(2)
// begins anew, by ESTALE, when the others have had their turn, and the other calls
// fail with EINTR, which most programs take for a reason to make them once more.
//
// Those who want to write the file as well are left waiting: for the same as the
// one that is parked.

// DefaultHold is for how long, about, a call that waits for another host may make
// others wait that nothing can interrupt.
const DefaultHold = 2 * time.Second

// stand is what is known of a thread that may stand behind a request that is
// parked.
type stand struct {
	looks    int    // so often, one after the other, it was at the same place
	switches string // how often it has slept and was woken up, as the kernel says it
	// freed: a request gave up for it. When it stands there again it has been
	// overtaken, by a program that made its call once more.
	freed bool
	// came and wentBy are of all threads that the daemon cannot see: how many of
	// them were told the name, and how many seem to have gone on.
	came, wentBy int
}

// stands reports whether it is time to let the thread go on.
func (s *stand) stands() bool {
	if s.came > 0 && s.came == s.wentBy {
		return s.looks >= doubtLooks
	}
	return s.looks >= holdStands
}

const (
	// holdLooks is how often threads are looked at in Options.Hold, and
	// holdStands how many times one has to stand still.
	holdLooks  = 8
	holdStands = 6
	// doubtLooks is after how many looks a thread that cannot be seen is taken to
	// stand there although it seems to have gone on: it may have been another one.
	doubtLooks = 5 * holdLooks
	// mostOnlookers is how many threads of programs that have the file open are
	// looked at.
	mostOnlookers = 256
)

// looksUp notes that a thread is told the name of n.
func (w *waits) looksUp(n *node, tid uint32) {
	if !n.isRegular() {
		return
	}
	n.lookers.add(tid, w.now())
	if n.holders.Load() == 0 {
		return
	}
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	if s := n.noteOnlooker(tid); s != nil && tid == 0 {
		s.came++
	}
}

// goesBy notes that a thread asks for n itself. Whoever is going to remove it, or
// to change it, does not do that between being told the name and standing there. It
// is only of interest if the daemon cannot see the thread.
func (w *waits) goesBy(n *node, tid uint32) {
	if tid != 0 || n.holders.Load() == 0 {
		return
	}
	n.cacheMu.Lock()
	defer n.cacheMu.Unlock()
	if s := n.onlookers[0]; s != nil && s.wentBy < s.came {
		s.wentBy++
	}
}

// noteOnlooker is what is known of a thread from now on; nil if there are too many.
// REQUIRES: n.cacheMu held.
func (n *nodeCache) noteOnlooker(tid uint32) *stand {
	if n.onlookers == nil {
		n.onlookers = make(map[uint32]*stand)
	}
	if n.onlookers[tid] == nil && len(n.onlookers) < mostOnlookers {
		n.onlookers[tid] = new(stand)
	}
	return n.onlookers[tid]
}

// beginsToHold counts a request that is parked and holds n. It reports whether
// watch has to be called. REQUIRES: n.cacheMu held.
func (w *waits) beginsToHold(n *node) bool {
	if n.holders.Add(1) > 1 || w.opts.Hold < 0 {
		return false
	}
	for tid := range n.lookers.since(w.now() - lookTime) { // and now they stand, perhaps
		n.noteOnlooker(tid)
	}
	begins := !n.watched
	n.watched = true
	return begins
}

// lookers are the threads that were told a name of a file last. The zero value is
// ready.
type lookers struct {
	next atomic.Uint32
	ring [8]atomic.Uint64 // the thread, and when, on the server's clock
}

// lookTime is much longer than it takes from when a thread was told a name until it
// stands behind a request that began meanwhile: in ms.
const lookTime = 1000

// add notes a thread that the daemon can see.
func (l *lookers) add(tid uint32, now int64) {
	i, x := l.next.Load(), uint64(tid)<<32|uint64(uint32(now))
	switch last := &l.ring[(i-1)%uint32(len(l.ring))]; {
	case tid == 0:
	case uint32(last.Load()>>32) == tid:
		last.Store(x)
	default:
		l.ring[i%uint32(len(l.ring))].Store(x)
		l.next.Store(i + 1) // of two at once one may be lost
	}
}

// since are those that were told a name since a time.
func (l *lookers) since(from int64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := range l.ring {
			x := l.ring[i].Load()
			if tid := uint32(x >> 32); tid != 0 && int32(uint32(x)-uint32(from)) >= 0 && !yield(tid) {
				return
			}
		}
	}
}

// watch looks after those who stand behind the requests that are parked and hold
// n, which is pinned.
func (w *waits) watch(n *node) {
	w.tree.pin(n)
	w.tasks.Go(func() { w.watchHolders(n) }) // while requests wait, which may be bequeathed
	if w.entryTTL > 0 {
		// Who comes from now on has to look the name up. That waits for the
		// directories.
		w.tree.pin(n)
		w.background(func() {
			for _, l := range w.tree.namesOf(n) {
				_ = w.dev.expireEntry(l.dir.id, l.name)
				w.tree.unpin(l.dir)
			}
			w.tree.unpin(n)
		})
	}
}

// watchHolders is watch, until there is no such request.
func (w *waits) watchHolders(n *node) {
	defer w.tree.unpin(n)
	t := time.NewTicker(max(w.opts.Hold/holdLooks, time.Millisecond))
	defer t.Stop()
	// When a request has given up its program may make the same one again, a moment
	// later. Who stands there still is not forgotten by then.
	idle := 0
	for {
		select {
		case <-t.C:
		case <-w.conn.dead: // which ends all requests, and an unmount waits for this
			return
		}
		for _, tid := range w.procs.usersOf(n) {
			n.cacheMu.Lock()
			n.noteOnlooker(tid)
			n.cacheMu.Unlock()
		}
		n.cacheMu.Lock()
		if n.holders.Load() > 0 {
			idle = 0
		} else if idle++; idle > 1 {
			n.onlookers, n.watched = nil, false
			n.cacheMu.Unlock()
			return
		}
		onlookers := maps.Clone(n.onlookers)
		n.cacheMu.Unlock()
		w.looks.Add(1)
		stands := false
		for tid, s := range onlookers {
			if !w.procs.look(tid, s) {
				n.cacheMu.Lock()
				delete(n.onlookers, tid)
				n.cacheMu.Unlock()
			}
			n.cacheMu.Lock()
			stands = stands || s.stands()
			n.cacheMu.Unlock()
		}
		if stands {
			n.letGoParked(func(p *parkedRequest) bool { return p.holds && w.now() >= p.until })
			n.cacheMu.Lock()
			for _, s := range n.onlookers {
				s.freed = s.stands()
			}
			delete(n.onlookers, 0) // it had its turn, as far as is known
			n.cacheMu.Unlock()
		}
	}
}

// usersOf are the threads of programs that have n open, and of what those have
// started.
func (ps *processes) usersOf(n *node) (tids []uint32) {
	var pids []uint32
	for _, h := range n.openHandles() {
		if h.proc != nil && !slices.Contains(pids, uint32(h.proc.pid)) {
			pids = append(pids, uint32(h.proc.pid))
		}
	}
	for i := 0; i < len(pids) && len(tids) < mostOnlookers; i++ {
		tasks, _ := os.ReadDir(fdPath(ps.proc) + "/" + strconv.FormatUint(uint64(pids[i]), 10) + "/task")
		for _, e := range tasks {
			tid, err := strconv.ParseUint(e.Name(), 10, 32)
			if err != nil {
				continue
			}
			tids = append(tids, uint32(tid))
			children, _ := ps.readAbout(pids[i], "task/"+e.Name()+"/children")
			for _, c := range strings.Fields(string(children)) {
				if pid, err := strconv.ParseUint(c, 10, 32); err == nil && !slices.Contains(pids, uint32(pid)) {
					pids = append(pids, uint32(pid))
				}
			}
		}
	}
	return tids
}

// look looks whether a thread still stands where it did. It reports false when
// there is no such thread any more. One that cannot be seen is taken to stand.
func (ps *processes) look(tid uint32, s *stand) (lives bool) {
	if tid == 0 {
		s.looks++
		return true
	}
	status, err := ps.status(tid)
	if err != nil {
		return false
	}
	at := statusWord(status, "voluntary_ctxt_switches:")
	s.seen(at, statusWord(status, "State:") == "D" && ps.waitsForInode(tid, status))
	return true
}

// seen notes a look at a thread that the daemon can see: whether it waits, and how
// often it has slept.
func (s *stand) seen(switches string, waits bool) {
	switch {
	case !waits:
		*s = stand{}
		return
	case s.freed:
		// Linux gives the lock of the inode to who has waited for it in vain,
		// when he does so again; and he has waited for long enough.
		s.looks = max(s.looks, holdStands-1)
	case s.looks > 0 && switches != s.switches:
		s.looks = 0
	}
	s.looks, s.switches = s.looks+1, switches
}

// writing are the system calls that wait for the same as the request that is
// parked: whoever makes them on the file would only take its place.
var writing = []int{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_SENDFILE,
	unix.SYS_SPLICE, unix.SYS_COPY_FILE_RANGE, unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE, unix.SYS_TRUNCATE,
}

// waitsForInode reports whether a thread that cannot be interrupted may wait for
// the lock of an inode, and should not.
func (ps *processes) waitsForInode(tid uint32, status []byte) bool {
	wchan, _ := ps.readAbout(tid, "wchan")
	if bytes.Contains(wchan, []byte("request_wait")) {
		return false // it waits for an answer, and can be killed
	}
	text, err := ps.readAbout(tid, "syscall")
	words := strings.Fields(string(text))
	if err != nil || len(words) == 0 {
		return true
	}
	call, err := strconv.Atoi(words[0])
	if err != nil {
		return false // it runs
	}
	if call < 0 && bytes.Contains(wchan, []byte("folio")) {
		return false // it waits for a page
	}
	return !slices.Contains(writing, call) || fatalPending(status)
}
