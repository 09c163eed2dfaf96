package fusefs

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// slowKernel makes notifications to the kernel block until the result is called.
func slowKernel(t *testing.T, f *fileSystem) (proceed func()) {
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	b := make([]byte, 4096)
	for {
		if _, err := unix.Write(p[1], b); err != nil {
			break
		}
	}
	must(t, unix.SetNonblock(p[1], false))
	f.dev.fd = p[1]
	return func() {
		for {
			if n, err := unix.Read(p[0], b); n <= 0 || err != nil {
				break
			}
		}
	}
}

func mappedHandle(t *testing.T, l Locker) (*fileSystem, *handle, string) {
	f := handlersOnly(t, func(o *Options) { o.Locker = l })
	root := f.opts.Root.Name()
	must(t, os.WriteFile(filepath.Join(root, "d"), []byte("old"), 0o644))
	h := f.openForTest(t, "d", os.O_RDWR)
	h.mu.Lock()
	f.openLocks.setState(h, openNone) // its program locks for itself
	h.mu.Unlock()
	h.n.cached.Store(true) // and has mapped it and changed a page
	return f, h, filepath.Join(root, "d")
}

// While the pages of a file are being written out for one lock, another
// lock that protects them counts as clean.
func TestAFileIsNotCleanWhileItIsWrittenOut(t *testing.T) {
	f, h, _ := mappedHandle(t, newFakeLocker())
	proceed := slowKernel(t, f)
	file, _ := f.tree.identify(h.n)
	k1, k2 := locks.Key{Class: locks.Posix, File: file}, locks.Key{Class: locks.Flock, File: "lockfile"}
	if f.coherence.clean(k2) {
		t.Fatal("clean before")
	}
	done := make(chan bool)
	go func() { f.coherence.flush(k1); close(done) }()
	await(t, "the kernel is told", h.n.dropping)
	select {
	case <-done:
		t.Fatal("flush does not wait for the kernel")
	default:
	}
	if f.coherence.clean(k2) {
		t.Error("clean, though the kernel has not written the pages out yet")
	}
	second := make(chan bool)
	go func() { f.coherence.flush(k2); close(second) }()
	select {
	case <-second:
		t.Error("flush of a second lock returns before the kernel has written the pages out")
	case <-time.After(100 * time.Millisecond):
	}
	proceed()
	<-done
}

// A page that the kernel writes back because of a Flush waits for the end of a
// suspension, and so does Flush.
func TestFlushWaitsForPagesThatAreWrittenBack(t *testing.T) {
	l := newFakeLocker()
	f, h, path := mappedHandle(t, l)
	proceed := slowKernel(t, f)
	file, _ := f.tree.identify(h.n)
	k := locks.Key{Class: locks.Posix, File: file}
	// The program still has another explicit lock, through this handle.
	h.held.Store(uint64(l.Tenure()) + 1)
	f.records.explicit.Add(1)
	l.mu.Lock()
	l.suspended = true
	l.mu.Unlock()
	flushed := make(chan bool)
	go func() { f.coherence.flush(k); close(flushed) }()
	await(t, "the kernel is told", h.n.dropping)
	wrote := make(chan fuse.Status)
	go func() { // the kernel writes the page back before it answers the notification
		in := fuse.WriteIn{InHeader: header(h.n.id), Fh: h.id, Size: 3, WriteFlags: fuse.WRITE_CACHE}
		in.Opcode = opWrite
		_, st := f.Write(nil, &in, []byte("new"))
		wrote <- st
	}()
	select {
	case <-flushed:
		b, _ := os.ReadFile(path)
		t.Errorf("Flush has returned, and the file has %q", b)
	case <-time.After(200 * time.Millisecond):
	}
	l.mu.Lock()
	l.suspended = false
	l.wake()
	l.mu.Unlock()
	if st := <-wrote; !st.Ok() {
		t.Error(st)
	}
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("after the suspension the file has %q", b)
	}
	proceed()
	<-flushed
}

// An open lock is given up while a READ of the same file waits: the pages around
// the one that it keeps locked are written out.
func TestFlushGoesRoundPagesThatAreRead(t *testing.T) {
	l := newFakeLocker()
	f, h, _ := mappedHandle(t, l)
	proceed := slowKernel(t, f)
	file, _ := f.tree.identify(h.n)
	k := locks.Key{Class: locks.Open, File: file}
	h.mu.Lock()
	h.open.req.Key = k
	f.openLocks.setState(h, openHeld)
	leave := newLeaving(openIdle)
	f.yielder.leaves(h, leave)
	h.mu.Unlock()
	read := fuse.ReadIn{InHeader: header(h.n.id), Offset: 8192, Size: 4096} // another handle's, that waits for its open lock
	read.Opcode = opRead
	_, unpark := f.waits.parkRequest(h.n, &read.InHeader)
	defer unpark()
	returned := make(chan bool)
	go func() {
		f.yielder.letGo(h.n, leave, "idle")
		<-leave.done
		f.coherence.flush(k)
		close(returned)
	}()
	select {
	case <-returned:
		t.Errorf("lock given up and flushed; clean %v; the kernel has written nothing out", f.coherence.clean(k))
	case <-time.After(200 * time.Millisecond):
	}
	proceed()
	<-returned
}

// While a truncate(2) waits the kernel writes nothing of the file out: Flush waits
// for it, and makes it give up.
func TestFlushDoesNotReturnBesideATruncate(t *testing.T) {
	f, h, _ := mappedHandle(t, newFakeLocker())
	proceed := slowKernel(t, f)
	in := fuse.SetAttrIn{}
	in.InHeader = header(h.n.id)
	in.Opcode, in.Valid = opSetAttr, fuse.FATTR_SIZE
	letsGo, unpark := f.waits.parkRequest(h.n, &in.InHeader)
	file, _ := f.tree.identify(h.n)
	flushed := make(chan error, 1)
	go func() { flushed <- f.coherence.flush(locks.Key{Class: locks.Posix, File: file}) }()
	select {
	case err := <-flushed:
		t.Fatalf("Flush has returned (%v), and the kernel has written nothing out", err)
	case <-letsGo:
	}
	unpark()
	select {
	case err := <-flushed:
		t.Fatalf("Flush has returned (%v) before the kernel has written the pages out", err)
	default:
	}
	proceed()
	if err := <-flushed; err != nil {
		t.Error(err)
	}
}

// A lock comes while a READ waits: it is not granted before the pages around those
// of the READ are dropped.
func TestRefreshGoesRoundPagesThatAreRead(t *testing.T) {
	f, h, _ := mappedHandle(t, newFakeLocker())
	proceed := slowKernel(t, f)
	read := fuse.ReadIn{InHeader: header(h.n.id), Offset: 8192, Size: 4096}
	read.Opcode = opRead
	_, unpark := f.waits.parkRequest(h.n, &read.InHeader)
	defer unpark()
	file, _ := f.tree.identify(h.n)
	refreshed := make(chan error, 1)
	go func() { refreshed <- f.coherence.refresh(locks.Key{Class: locks.Posix, File: file}) }()
	await(t, "the kernel is told", h.n.dropping)
	select {
	case err := <-refreshed:
		t.Errorf("Refresh has returned (%v), and the kernel has dropped nothing", err)
	case <-time.After(100 * time.Millisecond):
	}
	proceed()
	if err := <-refreshed; err != nil {
		t.Error(err)
	}
}

// A WRITE that is parked keeps its page locked only if the kernel does not have it.
// Where it is not locked what the kernel has of it is dropped, like all else.
func TestDropsThePageOfAWriteThatIsNotLocked(t *testing.T) {
	f, h, _ := mappedHandle(t, newFakeLocker())
	f.opts.Hold = -1
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
	f.dev.fd = p[1]
	write := fuse.WriteIn{InHeader: header(h.n.id), Offset: 5, Size: 10}
	write.Opcode = opWrite
	_, unpark := f.waits.parkRequest(h.n, &write.InHeader)
	defer unpark()
	for range 2 {
		must(t, f.pages.awaitDrop(h.n, nil, nil)) // the notification for all of it has not begun
		b := make([]byte, 4096)
		n, err := unix.Read(p[0], b)
		must(t, err)
		first := int64(-1)
		for b = b[:n]; len(b) > 0; b = b[outHeaderSize+invalInodeSize:] {
			if off := int64(binary.NativeEndian.Uint64(b[24:])); first < 0 || off < first {
				first = off
			}
		}
		if first != 0 {
			t.Errorf("dropped from %d on", first)
		}
	}
}

func TestParkedRequests(t *testing.T) {
	read := fuse.ReadIn{Offset: 5000, Size: 4000}
	read.Opcode = opRead
	write := fuse.WriteIn{Offset: 4096, Size: 8192}
	write.Opcode = opWrite
	back := fuse.WriteIn{Offset: 4096, Size: 8192, WriteFlags: fuse.WRITE_CACHE}
	back.Opcode = opWrite
	get := fuse.GetAttrIn{}
	get.Opcode = opGetAttr
	set := fuse.SetAttrIn{}
	set.Opcode, set.Valid = opSetAttr, fuse.FATTR_SIZE
	for _, x := range []struct {
		what string
		in   *fuse.InHeader
		want parkedRequest
	}{
		{"a READ", &read.InHeader, parkedRequest{kind: parkedPages, off: 4096, end: 12288}},
		{"a WRITE", &write.InHeader, parkedRequest{kind: parkedPages, off: 8192, end: 12288, holds: true}},
		{"written back", &back.InHeader, parkedRequest{kind: parkedAside}},
		{"a GETATTR", &get.InHeader, parkedRequest{kind: parkedAside, holds: true}},
		{"a truncate", &set.InHeader, parkedRequest{kind: parkedFile, holds: true}},
	} {
		if got := parks(x.in); got != x.want {
			t.Errorf("%s: %+v, want %+v", x.what, got, x.want)
		}
	}
}

// A notification waits for a page that is being read, and the READ waits for
// another host. However many locks go to and fro meanwhile, that is one thread.
func TestHandoversBesideAParkedReadTakeNoThreads(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.Rule = &Rule{Open: true, Yield: time.Millisecond} })
	const size = 16 << 20
	must(t, os.WriteFile(m.backing("f"), nil, 0o644))
	must(t, os.Truncate(m.backing("f"), size))
	other := startProgram(t, m.dir, nil)
	writer := other.open("f", "rw")
	other.want("ok", "flock %d ex", writer) // locks for itself
	other.want("ok", "flock %d un", writer)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "map %d %d", p.open("f", "rw"), size)
	drop := m.remote("f", locks.Open, locks.Write)
	p.tell("peek %d 1", size/2)
	p.sleeping()
	await(t, "a drop hangs", func() bool {
		other.want("ok", "write %d 0 x", writer)
		ask[None](m, "Refresh", m.key("f", locks.Flock))
		return ask[Counts](m, "Counts", None{}).Dropping > 0
	})
	const handovers = 300
	for range handovers {
		other.want("ok", "write %d 0 x", writer)
		ask[None](m, "Refresh", m.key("f", locks.Flock))
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", m.cmd.Process.Pid))
	must(t, err)
	if len(tasks) > 100 {
		t.Errorf("%d threads after %d handovers", len(tasks), handovers)
	}
	drop()
	if got := p.answer(); !strings.HasPrefix(got, "ok") {
		t.Error(got)
	}
	await(t, "all is dropped", func() bool { return ask[Counts](m, "Counts", None{}).Dropping == 0 })
}

// One notification is under way at a time, and who comes meanwhile shares the next:
// what it was to drop may have come after the first one began.
func TestDropsOfAFile(t *testing.T) {
	var d drops
	first, begins := d.want()
	if !begins {
		t.Fatal("the first does not begin")
	}
	none := d.none
	second, begins := d.want()
	if begins || second == first {
		t.Error("the second is made beside the first, or is the first")
	}
	if third, begins := d.want(); begins || third != second {
		t.Error("the third does not share the second")
	}
	if got := d.over(); got != second || closed(none) {
		t.Errorf("after the first: the second follows: %v; all over: %v", got == second, closed(none))
	}
	fourth, begins := d.want()
	if begins || fourth == second {
		t.Error("the fourth shares the second, which is under way")
	}
	if d.over() != fourth || d.over() != nil || !closed(none) {
		t.Error("it does not end after the fourth")
	}
	if again, begins := d.want(); !begins || again == fourth || closed(d.none) {
		t.Error("another one does not begin anew")
	}
}

// A drop that nobody needs any more, since what it was for was dropped around the pages
// of a READ that waits, does not begin when that is over.
func TestADropThatIsNotNeededDoesNotBegin(t *testing.T) {
	var d drops
	d.want()
	second, _ := d.want()
	d.want() // shares it
	d.leave(second)
	if d.next != second {
		t.Fatal("it is given up while somebody else waits for it")
	}
	d.leave(second)
	if !closed(second.done) || d.over() != nil || !closed(d.none) {
		t.Error("it begins")
	}
}
