package fusefs

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// process is a program that uses the mount. All its threads share one, and no
// later process does that gets the same number.
type process struct {
	pid  int
	line *uint32 // of the ledger, which guards it; or nil
	// owner is the owner of its open locks where these are between processes.
	owner locks.OwnerID
	comm  int      // descriptor of /proc/PID/comm; guarded by processes.mu
	tids  []uint32 // its threads beside the leader that are known; guarded by processes.mu
	name  atomic.Pointer[string]

	// selfLocking: it has called flock or fcntl on a file of the mount, or
	// opened the file that another process called it on. It takes no open
	// locks any more.
	selfLocking atomic.Bool
	// held is the tenure of the oldest of its locks, see locks and alone, plus
	// one; 0: it has none.
	held atomic.Uint64
	// up is the process that made it, see processes.ancestor. It stays when
	// that has ended: what was inherited from it does.
	up atomic.Pointer[lineage]

	mu      sync.Mutex
	handles map[*handle]struct{} // what it opened; nil until the first
	// locks are the explicit locks that it has asked for, or that came through
	// what it opened; alone is its open locks that are between processes.
	locks map[*lockRecord]struct{}
	alone map[*handle]locks.Tenure
}

// lineage is where a process comes from.
type lineage struct {
	parent *process // nil: none is known
	depth  int      // how many are known in all
}

// command is its name as ps(1) shows it.
func (p *process) command() string {
	if p == nil {
		return ""
	}
	return *p.name.Load()
}

func (p *process) isSelfLocking() bool { return p != nil && p.selfLocking.Load() }

// processes knows the processes behind the thread numbers of requests. The
// thread that makes a request waits for the answer, so its number cannot be
// given to another one meanwhile; but it can between two requests. Therefore
// an entry holds /proc/TID/comm open: reading it fails as soon as that thread
// is no more, whoever has its number, and tells the name besides, which
// execve(2) changes.
type processes struct {
	proc  int // descriptor of /proc
	start time.Time

	mu      sync.RWMutex
	threads map[uint32]*thread
	ledger  *ledger
	owners  uint64        // the newest owner
	tasks   atomic.Uint64 // threads that there ever were
	sweepAt int           // number of threads at which to look for dead ones
	most    int           // keep no more threads than this, if it can be avoided
	left    bool          // see leave
}

// leave has descriptors stay open from now on, as [closings.leave].
func (ps *processes) leave() {
	ps.mu.Lock()
	ps.left = true
	ps.mu.Unlock()
}

// forget closes the descriptor of a thread. REQUIRES: mu held.
func (ps *processes) forget(t *thread) {
	if !ps.left {
		unix.Close(t.comm)
	}
}

type thread struct {
	comm   int // descriptor of /proc/TID/comm; that of the process if it is its leader
	leader bool
	p      *process
	line   uint32       // of the ledger
	task   uint64       // no later thread has the same
	seen   atomic.Int64 // when it was looked at last, in ns since processes.start
}

// lookAgain is for how long a look at a thread is good. Numbers are given out
// in a circle of 300 at least, and the whole of it takes longer to go round.
const lookAgain = 100 * time.Microsecond

// sweepFrom is how many threads are known before dead ones are looked for.
const sweepFrom = 256

// firstOwner leaves room for the owners that are not processes.
const firstOwner = 1 << 8

func newProcesses(proc int) *processes {
	return &processes{proc: proc, start: time.Now(), threads: make(map[uint32]*thread), owners: firstOwner, sweepAt: sweepFrom, most: 16384}
}

// find is the process of a thread that is waiting for an answer. It is nil
// when that cannot be known: the request has no thread (0), the thread belongs
// to another PID namespace, or /proc hides it.
func (ps *processes) find(tid uint32) *process {
	if tid == 0 {
		return nil
	}
	ps.mu.RLock()
	if t := ps.threads[tid]; t != nil {
		now := int64(time.Since(ps.start))
		if now-t.seen.Load() < int64(lookAgain) || t.look() {
			t.seen.Store(now)
			p := t.p
			ps.mu.RUnlock()
			return p
		}
	}
	ps.mu.RUnlock()
	return ps.resolve(tid)
}

// program describes who sent a request. What the protocol calls a process ID
// is that of the thread; where its process is not known it must do for both.
// Whether that is the thread or process of another request with the same number
// is not known either, so it is taken for another one.
func (ps *processes) program(p *process, in *fuse.InHeader) locks.Program {
	r := locks.Program{PID: int(in.Pid), TID: int(in.Pid), UID: in.Uid}
	if p != nil {
		r.PID, r.Process, r.Command = p.pid, uint64(p.owner), p.command()
		ps.mu.RLock()
		if t := ps.threads[in.Pid]; t != nil && t.p == p {
			r.Task = t.task
		}
		ps.mu.RUnlock()
	}
	if r.Task == 0 {
		r.Task = ps.newTask()
	}
	if p == nil {
		r.Process = r.Task
	}
	return r
}

// look reports whether the thread still lives. If it is the leader of its
// process it also tells the name of that. (Only a leader comes back from
// execve(2); the other threads are no more then.)
// REQUIRES: processes.mu held, at least for reading.
func (t *thread) look() bool {
	var buf [64]byte
	n, err := unix.Pread(t.comm, buf[:], 0)
	if err != nil {
		return false
	}
	if !t.leader {
		return true
	}
	name := bytes.TrimSuffix(buf[:n], []byte("\n"))
	if old := t.p.name.Load(); old == nil || *old != string(name) {
		s := string(name)
		t.p.name.Store(&s)
	}
	return true
}

// resolve makes the entry of a thread that is not known, or that has the
// number of one that is no more.
func (ps *processes) resolve(tid uint32) *process {
	comm, err := ps.openAbout(tid, "comm")
	if err != nil {
		return nil
	}
	pid, err := ps.leaderOf(tid)
	if err != nil {
		unix.Close(comm)
		return nil
	}
	var p *process
	if pid != tid {
		if p = ps.find(pid); p == nil {
			unix.Close(comm)
			return nil
		}
	}

	ps.mu.Lock()
	defer ps.mu.Unlock()
	if t := ps.threads[tid]; t != nil {
		if t.look() { // another request was faster
			unix.Close(comm)
			return t.p
		}
		ps.drop(tid, t)
	}
	if len(ps.threads) >= ps.sweepAt {
		ps.sweep()
	}
	t := &thread{comm: comm, leader: pid == tid, p: p, task: ps.newTask()}
	if t.leader {
		ps.owners++
		ps.ledger.reserve(ownerIDs, ps.owners)
		t.p = &process{pid: int(pid), owner: sharedOwner + locks.OwnerID(ps.owners), comm: comm}
	} else if l := ps.threads[pid]; l == nil || l.p != p {
		unix.Close(comm) // swept meanwhile, so there was nothing to remember
		return p
	}
	if !t.look() {
		unix.Close(comm)
		return nil
	}
	if !t.leader {
		p.tids = append(p.tids, tid)
	} else {
		ps.ledger.process(t.p)
	}
	ps.threads[tid] = t
	ps.ledger.thread(tid, t)
	return t.p
}

func (ps *processes) newTask() uint64 {
	n := ps.tasks.Add(1)
	ps.ledger.reserve(taskIDs, n)
	return n
}

// parent is the process that p was made by, or that has taken its place; nil
// where that is not known.
func (ps *processes) parent(p *process) *process {
	id, err := ps.statusField(uint32(p.pid), "PPid:")
	if err != nil || id == 0 {
		return nil
	}
	return ps.find(id)
}

// ancestor is the process that had made p when that was asked for first, or nil.
func (ps *processes) ancestor(p *process) *process {
	if l := p.up.Load(); l != nil {
		return l.parent
	}
	l := new(lineage)
	// Two look-ups: p must still be what has its number after the first.
	if q := ps.parent(p); q != nil && q != p && ps.find(uint32(p.pid)) == p {
		ps.ancestor(q)
		if up := q.up.Load(); up.depth < maxAncestors {
			l.parent, l.depth = q, up.depth+1
		}
	}
	if p.up.CompareAndSwap(nil, l) {
		ps.ledger.process(p)
	}
	return p.up.Load().parent
}

// leaderOf is the process ID of a thread.
func (ps *processes) leaderOf(tid uint32) (uint32, error) {
	// pidfd_open(2) without flags takes only leaders, and most are.
	if fd, err := unix.PidfdOpen(int(tid), 0); err == nil {
		unix.Close(fd)
		return tid, nil
	}
	return ps.statusField(tid, "Tgid:")
}

// sweep drops the threads that are no more. If too many are left it drops
// others, too, about which nothing needs to be remembered.
// REQUIRES: mu held.
func (ps *processes) sweep() {
	for tid, t := range ps.threads {
		if !t.look() {
			ps.drop(tid, t)
		}
	}
	for tid, t := range ps.threads {
		if len(ps.threads) < ps.most {
			break
		}
		if !t.p.remembered() {
			ps.drop(tid, t)
		}
	}
	ps.sweepAt = max(sweepFrom, 2*len(ps.threads))
}

// REQUIRES: mu held.
func (ps *processes) drop(tid uint32, t *thread) {
	delete(ps.threads, tid)
	ps.ledger.forgetThread(t)
	ps.forget(t)
	if !t.leader {
		i := slices.Index(t.p.tids, tid)
		t.p.tids = slices.Delete(t.p.tids, i, i+1)
		return
	}
	for _, id := range t.p.tids { // they look at this descriptor
		ps.ledger.forgetThread(ps.threads[id])
		ps.forget(ps.threads[id])
		delete(ps.threads, id)
	}
	t.p.tids = nil
}

// remembered reports whether p has a state that must not be lost while it lives.
func (p *process) remembered() bool {
	if p.selfLocking.Load() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.handles) > 0 || len(p.locks) > 0
}

func (ps *processes) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for tid, t := range ps.threads {
		delete(ps.threads, tid)
		unix.Close(t.comm)
	}
	unix.Close(ps.proc)
}
