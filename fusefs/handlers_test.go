package fusefs

import (
	"log/slog"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// handlersOnly is a file system that is not mounted: its handlers can be
// called as the server would.
func handlersOnly(t testing.TB, edit ...func(*Options)) *fileSystem {
	t.Helper()
	root, err := os.Open(tempDir(t))
	must(t, err)
	t.Cleanup(func() { root.Close() })
	o := Options{Root: root, MountPoint: "/nowhere", Locker: nullLocker{}, Log: slog.New(slog.DiscardHandler)}
	for _, e := range edit {
		e(&o)
	}
	o, err = o.withDefaults()
	must(t, err)
	umask := syscall.Umask(0)
	syscall.Umask(umask)
	f, err := newFileSystem(o)
	syscall.Umask(umask)
	must(t, err)
	f.attrTTL, f.entryTTL = o.TTL, o.TTL
	f.conn = &conn{readers: newReaders(1)}
	t.Cleanup(func() {
		f.tasks.Wait()
		f.close()
	})
	return f
}

// header is that of a request from this thread.
func header(node uint64) fuse.InHeader {
	runtime.LockOSThread()
	return fuse.InHeader{NodeId: node, Caller: fuse.Caller{
		Owner: fuse.Owner{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())},
		Pid:   uint32(syscall.Gettid()),
	}}
}

func (f *fileSystem) lookupForTest(t testing.TB, name string) uint64 {
	t.Helper()
	in := header(rootID)
	var e fuse.EntryOut
	if st := f.Lookup(nil, &in, name, &e); !st.Ok() {
		t.Fatalf("lookup %s: %v", name, st)
	}
	return e.NodeId
}

func (f *fileSystem) openForTest(t testing.TB, name string, flags int) *handle {
	t.Helper()
	in := fuse.OpenIn{InHeader: header(f.lookupForTest(t, name)), Flags: uint32(flags)}
	var out fuse.OpenOut
	if st := f.Open(nil, &in, &out); !st.Ok() {
		t.Fatalf("open %s: %v", name, st)
	}
	return f.handles.get(out.Fh)
}

func (f *fileSystem) writeForTest(h *handle, off uint64, text string) (uint32, fuse.Status) {
	in := fuse.WriteIn{InHeader: header(h.n.id), Fh: h.id, Offset: off, Size: uint32(len(text))}
	return f.Write(nil, &in, []byte(text))
}

func (f *fileSystem) createForTest(name string, uid, flags uint32) fuse.Status {
	in := fuse.CreateIn{InHeader: header(rootID), Flags: flags | syscall.O_CREAT, Mode: 0o644}
	in.Uid = uid
	var out fuse.CreateOut
	return f.Create(nil, &in, name, &out)
}
