package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/lease"
)

// A rename takes along what the kernel keeps of a name: under a lock it is seen
// that another host has removed the new name, and what it has put there.
func TestKeptNamesMove(t *testing.T) {
	needRoot(t)
	m := mount(t, func(c *childConfig) { c.CacheTime = MaxCacheTime })
	for _, x := range []string{"d", "d/a", "d/x", "d/y"} {
		must(t, os.Mkdir(m.backing(x), 0o755))
	}
	keep := func(names ...string) {
		awaitKeeping(t, m)
		for _, n := range names {
			for range 3 {
				_, err := os.Lstat(m.path(n))
				must(t, err)
			}
		}
	}
	keep("d", "d/a", "d/x")
	must(t, os.Rename(m.path("d/a"), m.path("d/b")))
	must(t, unix.Renameat2(unix.AT_FDCWD, m.path("d/x"), unix.AT_FDCWD, m.path("d/y"), unix.RENAME_EXCHANGE))
	for _, n := range []string{"b", "x", "y"} {
		must(t, os.Remove(m.backing("d/"+n)))
	}
	ask[None](m, "Refresh", m.key("d", locks.Flock))
	for _, n := range []string{"b", "x", "y"} {
		if _, err := os.Lstat(m.path("d/" + n)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, which another host has removed: %v", n, err)
		}
	}
}

// What is kept of a name follows it, whether a drop has begun or not.
func TestRenamesOfKeptNames(t *testing.T) {
	t.Parallel()
	a, b, c := cachedName{1, "a"}, cachedName{1, "b"}, cachedName{2, "c"}
	in := &fuse.InHeader{Unique: 1}
	in.Pid = 1
	k := &longCache{base: &base{opts: Options{CacheTime: MaxCacheTime}}}
	k.add(in, a, cachedThing{node: 7}, since{}, 1)
	if !k.renamed(a, b, false, false) || k.names[a].node != 7 || k.names[b].node != 7 {
		t.Errorf("before a rename: %v", k.names)
	}
	if k.add(in, a, cachedThing{node: 7}, since{}, 1) {
		t.Error("what was found out before a rename is kept")
	}
	if k.renamed(a, b, false, true); len(k.names) != 1 || k.names[b].node != 7 {
		t.Errorf("after a rename: %v", k.names)
	}
	k.dropping, k.names, k.tids = k.names, nil, nil
	if !k.renamed(c, b, true, true) || len(k.names) != 1 || k.names[c].node != 7 {
		t.Errorf("after an exchange during a drop: %v", k.names)
	}
	if k.renamed(a, cachedName{3, "z"}, false, true) {
		t.Error("a name that is not kept is taken for one")
	}
}

// What the kernel writes back does not wait for the lease of names, which is not
// granted before there is a view, which waits for that; but asks for it.
func TestPagesAreWrittenBackWithoutTheLease(t *testing.T) {
	l := newFakeLocker()
	f, h, path := mappedHandle(t, l)
	f.leases.on = true
	in := fuse.WriteIn{InHeader: header(h.n.id), Fh: h.id, Size: 3, WriteFlags: fuse.WRITE_CACHE}
	in.Opcode = opWrite
	never := make(chan struct{})
	close(never) // if it waits it is interrupted
	if _, st := f.Write(never, &in, []byte("new")); !st.Ok() {
		t.Errorf("it is written back: %v", st)
	}
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("the file has %q", b)
	}
	if len(f.leases.kick) == 0 {
		t.Error("nobody who keeps what was changed is asked to drop it")
	}
}

// A lease that an admin has broken is no lease any more: nothing is kept under it.
func TestTheLeaseIsBroken(t *testing.T) {
	l := newFakeLocker()
	f, _, _ := mappedHandle(t, l)
	f.leases.on = true
	f.leases.m.Begin(1)
	f.leases.m.Next(1)
	f.leases.m.Got(1)
	f.leases.handle, f.leases.tenure = 1, l.Tenure()
	if f.leases.begin() != nil {
		t.Fatal("a change does not begin under the lease")
	}
	f.leases.end(true)
	if err := (&Server{fs: f}).Break(t.Context(), leaseKey, []locks.HandleID{1}); err != nil {
		t.Error(err)
	}
	if f.leases.begin() == nil {
		t.Error("a change begins under a lease that was broken")
	}
}

// The kernel drops the pages of a file that has changed before it takes over for how long
// it may keep the name. So it may not keep a name of a large one for long then: others may
// give the name to another file, and have what is old dropped, before it gets there.
func TestNamesOfFilesWhosePagesAreDropped(t *testing.T) {
	l := newFakeLocker()
	f := handlersOnly(t, func(o *Options) { o.Locker, o.CacheTime = l, MaxCacheTime })
	f.leases.on, f.leases.keeps = true, true
	grantLease(f, l, lease.ManyLooks)
	in := &fuse.InHeader{Unique: 1}
	in.Pid = 1
	for size, kept := range map[int64]bool{manyPages: true, manyPages + 1: false} {
		name := fmt.Sprint(size)
		must(t, os.WriteFile(filepath.Join(f.opts.Root.Name(), name), nil, 0o644))
		h := f.openForTest(t, name, os.O_RDWR)
		tell := func() bool {
			t.Helper()
			st := unix.Stat_t{Mode: unix.S_IFREG, Size: size}
			st.Mtim.Sec = f.now()
			h.n.cacheMu.Lock()
			h.n.told.mtime.Sec++ // what the kernel knows is older
			h.n.cacheMu.Unlock()
			var out fuse.EntryOut
			f.attrs.keepEntry(in, &out, f.tree.root, name, h.n, &st, f.leases.look())
			return out.EntryTimeout() == MaxCacheTime
		}
		h.n.cached.Store(false)
		if !tell() {
			t.Errorf("the name of a file without pages is not kept for long")
		}
		if h.n.fills(); tell() != kept {
			t.Errorf("the name of a file of %d bytes with pages is kept for long: %t", size, !kept)
		}
		f.Release(nil, &fuse.ReleaseIn{Fh: h.id})
	}
}

// grantLease has the lease granted: to keep, after so many looks, or to change something.
func grantLease(f *fileSystem, l *fakeLocker, looks int) {
	if looks == 0 {
		f.leases.m.Begin(f.now())
	}
	for range looks {
		f.leases.m.Look(f.now())
	}
	f.leases.m.Next(f.now())
	f.leases.m.Got(f.now())
	f.leases.handle, f.leases.tenure = 5, l.Tenure()
}

// What a change has made old is ignored by the kernel, also if it comes late.
func TestOldAttributesThatComeLate(t *testing.T) {
	l := newFakeLocker()
	f := handlersOnly(t, func(o *Options) { o.Locker = l })
	f.leases.on, f.leases.keeps = true, true
	notified := func(want bool) {
		t.Helper()
		before := f.tree.root.notified.Load()
		name := fmt.Sprint("d", before, want)
		var out fuse.EntryOut
		in := fuse.MkdirIn{InHeader: header(1), Mode: 0o755}
		if st := f.Mkdir(nil, &in, name, &out); !st.Ok() {
			t.Fatal(st)
		}
		if got := f.tree.root.notified.Load() > before; got != want {
			t.Errorf("the kernel is told that the directory has changed: %t", got)
		}
	}
	grantLease(f, l, 0) // nothing is kept for long
	notified(false)
	grantLease(f, l, lease.ManyLooks)
	notified(true)
}

// A node that seems to be cut off changes nothing under its lease: others may keep that.
func TestNoChangeByWhoIsCutOff(t *testing.T) {
	l := newFakeLocker()
	f := handlersOnly(t, func(o *Options) { o.Locker = l })
	f.leases.on = true
	grantLease(f, l, 0)
	if f.leases.begin() != nil {
		t.Fatal("a change does not begin under the lease")
	}
	f.leases.end(true)
	l.suspend(true)
	wait := f.leases.begin()
	if wait == nil {
		t.Fatal("a change begins while the node is suspended")
	}
	select {
	case <-wait.done:
		t.Fatal("the wait is over while the node is suspended")
	default:
	}
	l.suspend(false)
	<-wait.done
	if wait.err != nil || f.leases.begin() != nil {
		t.Errorf("no change begins when it goes on: %v", wait.err)
	}
}

// Who waits in a new tenure to know whether the node is cut off does not depend on those who
// have waited in the one before.
func TestUnsureInANewTenure(t *testing.T) {
	l := newFakeLocker()
	f := handlersOnly(t, func(o *Options) { o.Locker = l })
	f.leases.on = true
	grantLease(f, l, 0)
	f.pause.begin() // who has waited stays at the gate
	l.suspend(true)
	if f.leases.begin() == nil {
		t.Fatal("a change begins while the node is suspended")
	}
	l.expel()
	f.leases.lost()
	grantLease(f, l, 0)
	l.suspend(true)
	wait := f.leases.begin()
	if wait == nil {
		t.Fatal("a change begins while the node is suspended again")
	}
	f.pause.end()
	l.suspend(false)
	<-wait.done
}

// What an admin breaks of the lease is given up by who has it, or is about to get it, and
// nothing else is.
func TestWhichLeaseIsBroken(t *testing.T) {
	breaks := func(f *fileSystem, h locks.HandleID) {
		t.Helper()
		if err := (&Server{fs: f}).Break(t.Context(), leaseKey, []locks.HandleID{h}); err != nil {
			t.Error(err)
		}
	}
	t.Run("another one", func(t *testing.T) {
		l := newFakeLocker()
		f := handlersOnly(t, func(o *Options) { o.Locker = l })
		f.leases.on, f.leases.keeps = true, true
		grantLease(f, l, lease.ManyLooks)
		if breaks(f, f.leases.handle+1); f.leases.lookNow() == 0 {
			t.Error("nothing is kept any more")
		}
	})
	t.Run("at the grant", func(t *testing.T) {
		l := &grantHook{fakeLocker: newFakeLocker()}
		f := handlersOnly(t, func(o *Options) { o.Locker = l })
		f.leases.on, f.leases.keeps = true, true
		l.granted = func(h locks.HandleID) { breaks(f, h) }
		for range lease.ManyLooks {
			f.leases.m.Look(f.now())
		}
		f.leases.m.Next(f.now())
		if f.leases.lock(t.Context(), locks.Write); f.leases.m.Held() != lease.None {
			t.Error("it is held after that")
		}
	})
	t.Run("of the process before", func(t *testing.T) {
		f := handlersOnly(t, func(o *Options) { o.Locker, o.CacheTime = newFakeLocker(), MaxCacheTime })
		f.leases.on, f.leases.former, f.leases.given = true, 7, make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			breaks(f, 7)
		}()
		select {
		case <-done:
			t.Error("what the kernel keeps is not waited for")
		default:
		}
		close(f.leases.given)
		<-done
	})
}

// grantHook calls granted when the lease is granted.
type grantHook struct {
	*fakeLocker
	granted func(locks.HandleID)
}

func (l *grantHook) Lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	g, err := l.fakeLocker.Lock(cancel, r)
	if err == nil && r.Key == leaseKey {
		l.granted(r.Handle)
	}
	return g, err
}
