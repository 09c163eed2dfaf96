package fusefs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks/lease"
)

// A directory that the kernel lists from its pages is opened on the storage when
// that is needed, and is listed anew when something was made in it.
func TestAKeptDirectory(t *testing.T) {
	needRoot(t)
	m := mount(t, func(c *childConfig) { c.CacheTime = MaxCacheTime })
	awaitKeeping(t, m)
	dir := m.path("d")
	must(t, os.Mkdir(dir, 0o755))
	list := func() string {
		es, err := os.ReadDir(dir)
		must(t, err)
		var ns []string
		for _, e := range es {
			ns = append(ns, e.Name())
		}
		return strings.Join(ns, " ")
	}
	for i := range 5 {
		writeFile(t, m.path(fmt.Sprint("d/", i)), "")
		for range 3 {
			if got, want := list(), "0 1 2 3 4"[:2*i+1]; got != want {
				t.Errorf("it lists %q, want %q", got, want)
			}
		}
	}
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	must(t, f.Sync())
	if _, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil && err != unix.ENOTTY {
		t.Errorf("flags: %v", err)
	}
	must(t, os.Remove(m.path("d/3")))
	writeFile(t, m.path("d/9"), "")
	ns, err := f.Readdirnames(-1)
	must(t, err)
	if slices.Sort(ns); strings.Join(ns, " ") != "0 1 2 4 9" {
		t.Errorf("what was open before lists %q", ns)
	}
}

// What is written down has a bound. When there is no room, what has expired by itself
// goes: not what an answer that is late may just have brought.
func TestLongCacheIsBounded(t *testing.T) {
	t.Parallel()
	k := &longCache{base: &base{opts: Options{CacheTime: MaxCacheTime}}}
	in := &fuse.InHeader{Unique: 1}
	in.Pid = 1
	add := func(i int, now int64) bool {
		return k.add(in, cachedName{1, fmt.Sprint(i)}, cachedThing{node: uint64(i)}, since{}, now)
	}
	for i := range maxLongCached {
		if !add(i, 5000) {
			t.Fatalf("no room for number %d", i)
		}
	}
	expired := 5000 + (MaxCacheTime + tickSlack).Milliseconds() + takenOver
	switch {
	case add(maxLongCached, 6000), add(maxLongCached, expired):
		t.Error("more than the bound")
	case !add(0, 6000):
		t.Error("not again what is there")
	case !add(maxLongCached, expired+2000):
		t.Error("what has expired is in the way")
	case len(k.names) > 10:
		t.Errorf("%d names are left", len(k.names))
	}
	k.arrivals.all.Add(1)
	if add(maxLongCached+1, expired+3000) {
		t.Error("what was found out before a lock came is kept")
	}
}

// Who gives up the lease of names since nobody looks loses nothing: the kernel has forgotten
// by then what it was told.
func TestTheLeaseLastsAsLongAsNames(t *testing.T) {
	if lease.KeepIdle < MaxCacheTime.Milliseconds() {
		t.Errorf("the lease is given up after %d ms, and names are kept for up to %v", lease.KeepIdle, MaxCacheTime)
	}
}
