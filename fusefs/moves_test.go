package fusefs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
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

// A lock that is granted by a name which another host has given to nobody, or to
// another file, without dmxfs, is none. Its owner has what it had, and that is
// lost, since others lock the file by its new name.
func TestLockOfAMovedFile(t *testing.T) {
	for _, c := range []locks.Class{locks.Posix, locks.Flock} {
		t.Run(c.String(), func(t *testing.T) {
			l := newFakeLocker()
			f := handlersOnly(t, func(o *Options) { o.FileIDs, o.Locker, o.Rule = FileIDPath, l, func(string) Rule { return Rule{} } })
			dir := f.opts.Root.Name()
			writeFile(t, filepath.Join(dir, "f"), "x")
			h, fresh := f.openForTest(t, "f", os.O_RDWR), f.openForTest(t, "f", os.O_RDWR)
			lock := func(h *handle, owner uint64, typ uint32, from, to uint64) fuse.Status {
				in := fuse.LkIn{InHeader: header(h.n.id), Fh: h.id, Owner: owner, Lk: fuse.FileLock{Start: from, End: to - 1, Typ: typ}}
				if c == locks.Flock {
					in.LkFlags, in.Lk.Start, in.Lk.End = fuse.LK_FLOCK, 0, locks.MaxOffset-1
				}
				return f.SetLkw(nil, &in)
			}
			bytes := func() (n uint64) {
				l.mu.Lock()
				defer l.mu.Unlock()
				for _, held := range l.held {
					for _, x := range held {
						n += x.rg.End - x.rg.Start
					}
				}
				return n
			}
			if st := lock(h, 1, unix.F_WRLCK, 0, 10); !st.Ok() {
				t.Fatal(st)
			}
			before := bytes()
			must(t, os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "g")))
			if st := lock(h, 1, unix.F_WRLCK, 5, 20); st != fuse.Status(unix.ESTALE) {
				t.Errorf("a lock by a name that leads nowhere: %v", st)
			}
			if n := bytes(); n != before {
				t.Errorf("%d bytes are locked, %d were before", n, before)
			}
			if _, st := f.writeForTest(h, 0, "y"); st != fuse.EIO {
				t.Errorf("a write under the lock of before: %v, want EIO", st)
			}
			if st := lock(h, 1, unix.F_UNLCK, 0, 30); !st.Ok() || bytes() > 0 {
				t.Errorf("it is given up: %v, %d bytes are locked", st, bytes())
			}
			// Who had none is denied it, and no more.
			if st := lock(fresh, 2, unix.F_WRLCK, 0, 5); st != fuse.Status(unix.ESTALE) {
				t.Errorf("the lock of another one: %v", st)
			}
			if _, st := f.writeForTest(fresh, 0, "y"); !st.Ok() || bytes() > 0 {
				t.Errorf("a write without a lock: %v, %d bytes are locked", st, bytes())
			}
		})
	}
}
