package fusefs

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A thread may not come back with the open(2) that a lock was taken for. What
// it opens then, the same file for something else, needs a lock of its own.
func TestASecondAttemptIsOfTheSameOpen(t *testing.T) {
	f := handlersOnly(t)
	writeFile(t, f.opts.Root.Name()+"/f", "content")
	for _, c := range []struct {
		flags int
		same  bool
	}{{os.O_RDONLY, true}, {os.O_RDWR, false}} {
		n := f.openForTest(t, "f", os.O_RDONLY).n
		in := header(n.id)
		first := f.openLocks.newHandle(n, unix.O_RDONLY, false, &in)
		f.openLocks.attach(first, openWaiting)
		must(t, f.openLocks.lockOpened(nil, first, false, &in))
		f.retries.put(in.Pid, &retry{h: first, flags: unix.O_RDONLY, at: f.now()})
		h := f.openForTest(t, "f", c.flags)
		if (h == first) != c.same {
			t.Errorf("flags %#o: the handle of the first attempt: %v", c.flags, h == first)
		}
		if h.write != (c.flags&os.O_RDWR != 0) {
			t.Errorf("flags %#o: a handle that can write: %v", c.flags, h.write)
		}
	}
}

// A truncate(2) that was to begin anew ends with its look-up, since the file is gone.
// The next one of the thread, of another file, is a first attempt.
func TestATruncateThatFindsNoFileIsOver(t *testing.T) {
	f := handlersOnly(t)
	root := f.opts.Root.Name()
	must(t, os.WriteFile(root+"/f", []byte("old"), 0o644))
	must(t, os.WriteFile(root+"/new", []byte("new"), 0o644))
	in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: header(f.lookupForTest(t, "f")), Valid: fuse.FATTR_SIZE}}
	if st := f.retries.truncateLater(&in.InHeader, nil); st != errStale {
		t.Fatal(st)
	}
	dir := header(rootID)
	if st := f.Lookup(nil, &dir, "gone", new(fuse.EntryOut)); st != fuse.ENOENT {
		t.Fatal(st)
	}
	must(t, os.Rename(root+"/new", root+"/f"))
	if st := f.SetAttr(nil, &in, new(fuse.AttrOut)); st != errStale {
		t.Errorf("the file that was replaced is truncated: %v", st)
	}
	in.Pid = 0
	if st := f.retries.truncateLater(&in.InHeader, nil); st != fuse.EINTR || f.retries.take(0) != nil {
		t.Errorf("whose thread is not known: %v", st)
	}
}
