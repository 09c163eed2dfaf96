package fusefs

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// cannotSync puts something in the place of h's file that cannot be synced, and
// gives the error of that. The result ends it.
func cannotSync(t *testing.T, h *handle) (end func()) {
	t.Helper()
	var pipe [2]int
	must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	file, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Dup3(pipe[1], h.fd, unix.O_CLOEXEC))
	t.Cleanup(func() {
		for _, fd := range [...]int{file, pipe[0], pipe[1]} {
			must(t, unix.Close(fd))
		}
	})
	return func() { must(t, unix.Dup3(file, h.fd, unix.O_CLOEXEC)) }
}

const syncError = fuse.EINVAL

// What could not be written out when a lock was handed over is told once to each
// open file that can write, whatever its program does next.
func TestErrorsOfAWriteOutAreTold(t *testing.T) {
	f := handlersOnly(t)
	f.storage.ClientCache = true
	writeFile(t, f.opts.Root.Name()+"/f", "content")
	open := func(flags int) *handle { return f.openForTest(t, "f", flags) }
	write := func(h *handle) fuse.Status { _, st := f.writeForTest(h, 0, "x"); return st }
	fsync := func(h *handle) fuse.Status {
		return f.Fsync(nil, &fuse.FsyncIn{InHeader: header(h.n.id), Fh: h.id})
	}
	flushBy := func(h *handle, pid int) fuse.Status {
		in := fuse.FlushIn{InHeader: header(h.n.id), Fh: h.id}
		in.Pid = uint32(pid)
		return f.Flush(nil, &in)
	}
	flush := func(h *handle) fuse.Status { return flushBy(h, unix.Gettid()) }
	is := func(what string, got, want fuse.Status) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	a, b, c, reader := open(os.O_RDWR), open(os.O_RDWR), open(os.O_WRONLY), open(os.O_RDONLY)
	file, _ := f.tree.identify(a.n)
	fail := func() {
		t.Helper()
		is("write", write(a), fuse.OK)
		end := cannotSync(t, a)
		if f.coherence.flush(locks.Key{File: file, Class: locks.Open}) == nil {
			t.Error("the write-out did not fail")
		}
		end()
	}
	fail()
	is("the writer's next write", write(a), syncError)
	is("the one after it", write(a), fuse.OK)
	is("fsync of another one", fsync(b), syncError)
	is("the one after it", fsync(b), fuse.OK)
	is("close by a child", flushBy(c, os.Getppid()), syncError)
	is("close by a child", flushBy(c, os.Getppid()), syncError)
	is("close by its program", flush(c), syncError)
	is("close by its program", flush(c), fuse.OK)
	is("fsync of one that reads", fsync(reader), fuse.OK)
	is("close of one that reads", flush(reader), fuse.OK)
	is("one that is opened then", write(open(os.O_RDWR)), fuse.OK)

	// Nobody is told, since all are closed.
	fail()
	for _, h := range f.handles.all() {
		f.Release(nil, &fuse.ReleaseIn{Fh: h.id})
	}
	d := open(os.O_WRONLY)
	is("one that is opened then", write(d), syncError)
	is("the next one", write(open(os.O_WRONLY)), fuse.OK)

	// RELEASE writes out, too.
	a, b = open(os.O_RDWR), open(os.O_RDWR)
	is("write", write(a), fuse.OK)
	_ = cannotSync(t, a)
	f.Release(nil, &fuse.ReleaseIn{Fh: a.id})
	is("fsync of another one", fsync(b), syncError)
	is("a new one", write(open(os.O_RDWR)), fuse.OK)
}

// Who gets the lock next is to know also of what was told here already.
func TestWhoIsHandedALockKnowsOfErrorsBefore(t *testing.T) {
	f := handlersOnly(t)
	f.storage.ClientCache = true
	writeFile(t, f.opts.Root.Name()+"/f", "content")
	h := f.openForTest(t, "f", os.O_RDWR)
	file, _ := f.tree.identify(h.n)
	k := locks.Key{File: file, Class: locks.Open}
	must(t, f.coherence.flush(k))
	h.n.unwritten.failed(unix.ENOSPC) // by the close(2) of another descriptor
	if _, st := f.writeForTest(h, 0, "x"); st != fuse.Status(unix.ENOSPC) {
		t.Errorf("write: %v", st)
	}
	if f.coherence.flush(k) == nil {
		t.Error("the next holder is not told")
	}
	must(t, f.coherence.flush(k))
}
