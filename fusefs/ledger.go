package fusefs

import (
	"errors"
	"iter"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is killed leaves no [Server.Export]. If the mount has a ledger another
// process goes on with what is in that, through the code by which it would go on after
// an Export: see [ResumeKilled]. A ledger is two pieces of memory that outlive the
// process: tables of what there is (nodes, open files, locks, programs), which are
// written here, and the requests that are under way, see [Requests].
//
// What is there is written down before the kernel is told of it, and before somebody
// else could be: a node before the answer that has its number, an open file before that
// with its handle, an error before the lock goes under which it was made. What is no
// more is taken out before its descriptor is closed, as its number will be another
// file's. So who reads it finds what the kernel knows, and perhaps a little more: a
// count of look-ups that is too high, or an open file that was never answered, which
// costs memory. It never finds less.
//
// Not written is what only says how little has to be dropped, or looked at anew: what
// the kernel may have of a file is taken to be all of it.

// LedgerTables is memory for the tables of [LedgerForm], which outlives the process. One
// mount changes it. The methods return at once.
type LedgerTables interface {
	// Text is what a record refers to s by, as long as there is such a record; 0 for
	// an empty one.
	Text(s string) (ref uint64, err error)
	// Put adds a record, and gives it a number that is not 0.
	Put(table int, words []uint64) (number uint32, err error)
	Set(table int, number uint32, words []uint64) error
	Delete(table int, number uint32)
	// SetFull tells whoever reads it that something is missing. After an error it has
	// done so by itself.
	SetFull(why string)
	// Full is an error after SetFull.
	Full() error
}

// LedgerReader is what a process that is dead has left in its tables.
type LedgerReader interface {
	String(ref uint64) string
	All(table int) iter.Seq2[uint32, []uint64]
}

// Ledger is where a mount writes down what another process needs to go on if this one is
// killed.
type Ledger struct {
	Tables   LedgerTables
	Requests *Requests
}

// ledger writes the tables. Its methods may be called if it is nil: there is none.
type ledger struct {
	*base
	log *slog.Logger

	mu     sync.Mutex   // held while t is used; nothing else is asked for with it held
	t      LedgerTables // nil: it has failed
	failed error        // and that is why

	mount    uint32 // number of the record; 0: nothing is begun
	mounted  mountpoint
	lease    uint64             // handle of the lease of names
	reserved [ids]uint64        // guarded by mu
	noted    [ids]atomic.Uint64 // the same, once it is written down

	// What the last lock was written down as, guarded by mu: locks come and go, and each would
	// leave as much garbage.
	lockWords [lockWords]uint64
	ranges    string
}

// The kinds of numbers that are never given twice, in whatever process.
const (
	handleIDs = iota
	nodeIDs
	ownerIDs
	taskIDs
	turnIDs
	ids
)

// idsAtOnce is how many numbers are reserved at a time.
const idsAtOnce = 1 << 16

// fails ends the ledger for good. REQUIRES: mu held.
func (l *ledger) fails(err error) {
	if l.t == nil {
		return
	}
	l.t.SetFull(err.Error())
	l.t, l.failed = nil, err
	l.log.Error("what the mount does cannot be written down any more: if the daemon is killed its programs fail", "err", err)
}

// err is why it has failed.
func (l *ledger) err() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// REQUIRES: mu held, as for all that follow.
func (l *ledger) text(s string) uint64 {
	if s == "" || l.t == nil {
		return 0
	}
	ref, err := l.t.Text(s)
	if err != nil {
		l.fails(err)
	}
	return ref
}

// longestPath is how much is kept of a path that is for people, and for rules.
const longestPath = 60 << 10

// pathText is text for a path, of which the end counts.
func (l *ledger) pathText(s string) uint64 { return l.text(s[max(0, len(s)-longestPath):]) }

func (l *ledger) put(table int, words []uint64) uint32 {
	if l.t == nil {
		return 0
	}
	n, err := l.t.Put(table, words)
	if err != nil {
		l.fails(err)
	}
	return n
}

// write puts or sets a record.
func (l *ledger) write(table int, number *uint32, words []uint64) {
	if *number == 0 {
		*number = l.put(table, words)
	} else if l.t != nil {
		if err := l.t.Set(table, *number, words); err != nil {
			l.fails(err)
		}
	}
}

func (l *ledger) remove(table int, number *uint32) {
	if *number != 0 && l.t != nil {
		if l.t.Delete(table, *number); l.t.Full() != nil {
			l.fails(l.t.Full())
		}
	}
	*number = 0
}

// begin writes down all that there is, and then that it is all: nobody uses the mount
// yet.
func (l *ledger) begin(f *fileSystem, m mountpoint) {
	if l == nil {
		return
	}
	l.mounted = m
	f.tree.ledger, f.procs.ledger, f.devices.ledger = l, l, l
	l.beginTree(f.tree)
	for _, n := range f.tree.byID { // nobody else has it yet
		f.attrs.noteSizes(n)
	}
	l.beginProcesses(f.procs)
	l.beginOpen(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	for dev, d := range f.devices.known {
		l.write(tableDevices, &d.line, l.deviceWords(dev, d))
	}
	l.writeMount()
}

// end is called when the mount is no more, and the memory may go.
func (l *ledger) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = nil
}

// reserve sees to it that no number up to id is given twice.
func (l *ledger) reserve(kind int, id uint64) {
	if l == nil || id <= l.noted[kind].Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if id > l.reserved[kind] {
		l.reserved[kind] = id + idsAtOnce
		if l.mount != 0 {
			l.writeMount()
		}
		l.noted[kind].Store(l.reserved[kind])
	}
}

// leased writes down by which handle the mount has the lease of names.
func (l *ledger) leased(h uint64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease = h; l.mount != 0 {
		l.writeMount()
	}
}

// writeMount writes down what there is once. REQUIRES: mu held.
func (l *ledger) writeMount() {
	dev := -1
	if err := l.conn.file.raw.Control(func(fd uintptr) { dev = int(fd) }); err != nil {
		l.fails(err)
		return
	}
	now, err := monotonic()
	if err != nil {
		l.fails(err)
		return
	}
	m := &l.mounted
	w := [mountWords]uint64{
		mountPath: l.text(m.path), mountNumber: l.text(m.number),
		mountAsked: l.text(string(l.conn.first.asked)), mountAnswered: l.text(string(l.conn.first.answer)),
		mountOwnID: uint64(m.id), mountBits: bit(m.helper, 0) | bit(l.tree.ids.paths, 1), mountDev: uint64(dev),
		mountStart: uint64(now - int64(time.Since(l.start))), mountLease: l.lease,
	}
	for i := range ids {
		w[mountIDs+i] = l.reserved[i]
	}
	l.write(tableMount, &l.mount, w[:])
}

func bit(on bool, n int) uint64 {
	if on {
		return 1 << n
	}
	return 0
}

// device writes down a file system that was entered. REQUIRES: devices.mu held.
func (l *ledger) device(dev uint64, d *subDevice) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(tableDevices, &d.line, l.deviceWords(dev, d))
}

func (l *ledger) deviceWords(dev uint64, d *subDevice) []uint64 {
	return []uint64{l.pathText(d.path), dev, d.index, bit(d.warned, 0)}
}

// process writes down p, until nobody refers to it any more.
func (l *ledger) process(p *process) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := [processWords]uint64{processPID: uint64(p.pid), processOwner: uint64(p.owner), processFlags: bit(p.selfLocking.Load(), 0)}
	if up := p.up.Load(); up != nil {
		w[processFlags] |= 1 << 1
		w[processDepth] = uint64(up.depth)
		if up.parent != nil {
			w[processUp] = uint64(up.parent.owner)
		}
	}
	w[processName] = l.text(p.command())
	fresh := p.line == nil
	if fresh {
		p.line = new(uint32)
	}
	if l.write(tableProcesses, p.line, w[:]); fresh {
		runtime.AddCleanup(p, l.forgetProcess, p.line)
	}
}

func (l *ledger) forgetProcess(line *uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(tableProcesses, line)
}

// thread writes down a thread that is known. REQUIRES: processes.mu held.
func (l *ledger) thread(tid uint32, t *thread) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(tableThreads, &t.line, []uint64{uint64(tid), fdWord(t.comm), uint64(t.p.owner), bit(t.leader, 0), t.task})
}

func (l *ledger) forgetThread(t *thread) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(tableThreads, &t.line)
}

func (l *ledger) beginProcesses(ps *processes) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	done := map[*process]bool{}
	var one func(p *process)
	one = func(p *process) {
		if p == nil || done[p] {
			return
		}
		done[p] = true
		if up := p.up.Load(); up != nil {
			one(up.parent)
		}
		l.process(p)
	}
	for tid, t := range ps.threads {
		one(t.p)
		l.thread(tid, t)
	}
	for _, h := range l.handles.all() {
		one(h.proc)
		for r := range h.records {
			one(r.p)
		}
	}
	l.reserve(ownerIDs, ps.owners)
	l.reserve(taskIDs, ps.tasks.Load())
}

// fdWord is how a record has a descriptor: 0 is none.
func fdWord(fd int) uint64 { return uint64(fd + 1) }

// errno is the number of an error that programs are told.
func errnoWord(err error) uint64 {
	if err == nil {
		return 0
	}
	e, ok := err.(unix.Errno)
	if !ok {
		e = unix.EIO
	}
	return uint64(e)
}

// newLedger begins a ledger, or is nil.
func newLedger(b *base, o *Ledger) (*ledger, error) {
	if o == nil {
		return nil, nil
	}
	if o.Tables == nil || o.Requests == nil {
		return nil, errors.New("a ledger has tables and requests")
	}
	if err := o.Tables.Full(); err != nil {
		return nil, err
	}
	return &ledger{base: b, log: b.log, t: o.Tables}, nil
}
