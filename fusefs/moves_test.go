package fusefs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"dmxfs/locks"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func (f *fileSystem) renameForTest(from, to string) fuse.Status {
	in := fuse.RenameIn{InHeader: header(rootID), Newdir: rootID}
	return f.Rename(nil, &in, from, to)
}

// Where locks go by path, what somebody has locked is not renamed.
func TestRenamesByPath(t *testing.T) {
	l := newFakeLocker()
	below, belowErr, asked := false, error(nil), ""
	f := handlersOnly(t, func(o *Options) {
		o.FileIDs, o.Locker = FileIDPath, l
		o.LockedBelow = func(dir string) (bool, error) {
			asked = dir
			return below, belowErr
		}
	})
	want := func(from, to string, st fuse.Status) {
		t.Helper()
		if got := f.renameForTest(from, to); got != st {
			t.Errorf("rename %s to %s: %v, want %v", from, to, got, st)
		}
	}
	dir := f.opts.Root.Name()
	writeFile(t, filepath.Join(dir, "f"), "x")
	for _, c := range locks.Classes {
		k := locks.Key{File: "pf", Class: c}
		l.mu.Lock()
		l.take(k, fakeLock{owner: 77, handle: 77, mode: locks.Read, rg: locks.Whole, remote: 1})
		l.mu.Unlock()
		want("f", "g", fuse.EBUSY)
		l.mu.Lock()
		l.clear(k, locks.Whole, func(x fakeLock) bool { return x.remote == 1 })
		if n := len(l.held[k]); n > 0 {
			t.Errorf("%v: %d locks are left", c, n)
		}
		l.mu.Unlock()
	}
	want("f", "g", fuse.OK)
	want("g", "f", fuse.OK)

	// The open lock of this host moves.
	h := f.openForTest(t, "f", os.O_RDWR)
	want("f", "g", fuse.OK)
	if got := h.open.req.Key.File; got != "pg" || h.open.state != openIdle {
		t.Errorf("the open lock is that of %s, in state %d", got, h.open.state)
	}
	l.mu.Lock()
	for k, held := range l.held {
		if len(held) > 0 {
			t.Errorf("%v is held", k)
		}
	}
	l.mu.Unlock()
	want("g", "nodir/x/y", fuse.ENOENT)
	if got := h.open.req.Key.File; got != "pg" {
		t.Errorf("after a rename that failed the open lock is that of %s", got)
	}

	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	below = true
	want("d", "e", fuse.EBUSY)
	if asked != "d" {
		t.Errorf("asked about %q", asked)
	}
	below, belowErr = false, errors.New("nobody answers")
	want("d", "e", fuse.Status(unix.ENOLCK))
	belowErr = nil
	want("d", "e", fuse.OK)
}

// With inode numbers nothing of this is needed.
func TestRenamesByInode(t *testing.T) {
	f := handlersOnly(t, func(o *Options) {
		o.FileIDs = FileIDInode
		o.LockedBelow = func(string) (bool, error) { t.Error("asked"); return true, nil }
	})
	dir := f.opts.Root.Name()
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	writeFile(t, filepath.Join(dir, "f"), "x")
	for _, n := range []string{"d", "f"} {
		if st := f.renameForTest(n, n+"2"); !st.Ok() {
			t.Errorf("rename %s: %v", n, st)
		}
	}
}
