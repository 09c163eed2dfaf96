package fusefs

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// rows are tables that only count, and call set before a record is changed.
type rows struct {
	last uint32
	have map[int]map[uint32]bool
	set  func(table int, words []uint64)
}

func newRows() *rows { return &rows{have: map[int]map[uint32]bool{}} }

func (r *rows) Text(string) (uint64, error) { return 1, nil }
func (r *rows) Put(table int, _ []uint64) (uint32, error) {
	if r.have[table] == nil {
		r.have[table] = map[uint32]bool{}
	}
	r.last++
	r.have[table][r.last] = true
	return r.last, nil
}
func (r *rows) Set(table int, _ uint32, words []uint64) error {
	if r.set != nil {
		r.set(table, words)
	}
	return nil
}
func (r *rows) Delete(table int, number uint32) { delete(r.have[table], number) }
func (r *rows) SetFull(string)                  {}
func (r *rows) Full() error                     { return nil }

// withRows is a file system without a mount that has a ledger.
func withRows(t *testing.T) (*fileSystem, *rows) {
	m, err := NewRequests(1)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	f, r := handlersOnly(t), newRows()
	c := newConnOf(f, f.mountOptions())
	c.requests = m
	p, _, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { p.Close() })
	c.file, err = newFuseFile(p)
	must(t, err)
	f.conn = c
	f.ledger, err = newLedger(f.base, &Ledger{r, m})
	must(t, err)
	return f, r
}

// What becomes of the open lock of a file that is being closed brings its record not
// back: its descriptor is another file's.
func TestAClosedFileStaysOutOfTheLedger(t *testing.T) {
	t.Parallel()
	f, r := withRows(t)
	h := &handle{id: 3, n: f.tree.root, fd: 7}
	f.openLocks.attach(h, openIdle)
	h.mu.Lock()
	f.ledger.opens(h)
	h.mu.Unlock()
	if len(r.have[tableHandles]) != 1 {
		t.Fatalf("%d open files", len(r.have[tableHandles]))
	}
	f.ledger.closes(h)
	h.mu.Lock()
	f.openLocks.setState(h, openNone)
	h.mu.Unlock()
	f.fenced(h)
	if n := len(r.have[tableHandles]); n != 0 {
		t.Errorf("%d open files are in the ledger when it is closed", n)
	}
}

// A number is not used before the next process knows that it may have been.
func TestNumbersAreReservedBeforeTheyAreUsed(t *testing.T) {
	t.Parallel()
	f, r := withRows(t)
	l := f.ledger
	l.mount = r.last + 1
	wrote := false
	r.set = func(table int, w []uint64) {
		wrote = wrote || table == tableMount && w[mountIDs+handleIDs] >= 5
		if l.noted[handleIDs].Load() >= 5 {
			t.Error("another thread would use such a number")
		}
	}
	l.reserve(handleIDs, 5)
	if r.set = nil; !wrote || l.noted[handleIDs].Load() < 5 {
		t.Error("it is not reserved")
	}
}

// A FORGET that was just copied to a small slot is done once.
func TestForgetIsLeftOnce(t *testing.T) {
	t.Parallel()
	m, err := NewRequests(1)
	must(t, err)
	defer m.Close()
	for _, area := range []int{largeArea, smallArea} {
		s, ok := m.take(area)
		if !ok {
			t.Fatal("no slot")
		}
		s.reads()
		*head(s.data) = fuse.InHeader{Length: uint32(headSize) + 8, Opcode: opForget, Unique: 12, NodeId: 2}
		if area == smallArea {
			s.took(headSize + 8)
		}
	}
	left, _, err := m.leftOf(func(fd int) int { return fd })
	if err != nil || len(left) != 1 {
		t.Errorf("%d are left, %v", len(left), err)
	}
}

// The descriptor of what was made is not noted any more when it is closed.
func TestWhatIsClosedIsNotNoted(t *testing.T) {
	t.Parallel()
	f, _ := withRows(t)
	s, ok := f.conn.requests.take(smallArea)
	if !ok {
		t.Fatal("no slot")
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	s.steps[1].fd = int32(fd + 1)
	f.conn.readers.again(12).slot = s
	f.fence.closeMade(&fuse.InHeader{Unique: 12}, fd)
	if s.steps[1].fd != 0 {
		t.Error("another file may have its number")
	}
}

// Two files that have changed places stay so, wherever the process was killed.
func TestExchangedOnce(t *testing.T) {
	t.Parallel()
	f, _ := withRows(t)
	dir := f.opts.Root.Name()
	writeFile(t, dir+"/a", "a")
	writeFile(t, dir+"/b", "b")
	f.lookupForTest(t, "a")
	f.lookupForTest(t, "b")
	must(t, unix.Renameat2(unix.AT_FDCWD, dir+"/a", unix.AT_FDCWD, dir+"/b", unix.RENAME_EXCHANGE))
	root := f.tree.root
	c := &change{dir: root, name: "b", leave: root, moves: "a", exchange: true}
	if !f.nameCalls.isToMove(c) {
		t.Error("what is known of them is not moved")
	}
	f.tree.renamed(root, "a", root, "b", true)
	if f.nameCalls.isToMove(c) {
		t.Error("it is moved back")
	}
}

// A piece that was not written, as the storage's client has told an old size, is not noted
// as one whose outcome is an error, nor as begun: who goes on writes it. What was written
// before it stays noted.
func TestAPieceThatIsWrittenAgainIsNotNoted(t *testing.T) {
	t.Parallel()
	f, _ := withRows(t)
	s, ok := f.conn.requests.take(smallArea)
	if !ok {
		t.Fatal("there is no slot")
	}
	defer s.giveBack()
	s.took(headSize)
	piece := func(off int64, err error) {
		t.Helper()
		c := &change{in: &fuse.InHeader{}, op: "write", off: off}
		call := func() error { c.length = 5; return err }
		if got := f.fence.do(&tracked{slot: s}, c, &admission{}, call); got != err {
			t.Errorf("%v, want %v", got, err)
		}
	}
	piece(0, errBehind)
	if p := s.phase.Load(); p != phaseTaken {
		t.Errorf("phase %x, though nothing was done", p)
	}
	piece(0, nil)
	piece(5, errBehind)
	p := s.phase.Load()
	if x := s.steps[p>>phaseBits]; p&(1<<phaseBits-1) != phaseMade || x.off != 0 || x.n != 5 || x.errno != 0 {
		t.Errorf("phase %x, step %+v, want the first piece", p, x)
	}
	piece(5, unix.ENOSPC)
	p = s.phase.Load()
	if x := s.steps[p>>phaseBits]; p&(1<<phaseBits-1) != phaseMade || x.off != 5 || x.errno != int32(unix.ENOSPC) {
		t.Errorf("phase %x, step %+v, want the second piece", p, x)
	}
}
