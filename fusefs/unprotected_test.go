package fusefs

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// A program with many files open, and a lock that comes from another node: only
// the files that it used under its last lock have to be looked after.
func TestOnlyFilesThatWereUsedAreRefreshed(t *testing.T) {
	m := mount(t, longTTL)
	const files = 50
	writeFile(t, m.backing("lock"), "")
	for i := range files {
		writeFile(t, m.backing(fmt.Sprint("f", i)), "1st")
	}
	p := startProgram(t, m.dir, nil)
	lock := p.open("lock", "rw")
	p.want("ok", "flock %d ex", lock)
	var fds [files]int
	for i := range fds {
		fds[i] = p.open(fmt.Sprint("f", i), "rw")
	}
	known := func(want int) {
		t.Helper()
		c := ask[Counts](m, "Counts", None{})
		if c.Unprotected != files+1 || c.Known != want {
			t.Errorf("of %d files that are open %d are known, want %d", c.Unprotected, c.Known, want)
		}
	}
	elsewhere := func(change func()) {
		t.Helper()
		p.want("ok", "flock %d un", lock)
		drop := m.remote("lock", locks.Flock, locks.Write)
		change()
		drop()
		p.want("ok", "flock %d ex", lock)
	}
	known(files + 1) // whatever is known of them
	elsewhere(func() {})
	known(0)
	p.want("ok 1st", "read %d 0 10", fds[7])
	p.want("ok", "write %d 0 own", fds[8])
	known(2)
	elsewhere(func() {
		sameLook(t, m.backing("f7"), "2nd")
		sameLook(t, m.backing("f8"), "2nd")
		sameLook(t, m.backing("f9"), "2nd")
	})
	known(0)
	for _, i := range []int{7, 8, 9} {
		p.want("ok 2nd", "read %d 0 10", fds[i])
	}
	known(3)
	for _, fd := range fds {
		p.want("ok", "close %d", fd)
	}
	await(t, "the files to be closed", func() bool { return ask[Counts](m, "Counts", None{}).Unprotected == 1 })
	if c := ask[Counts](m, "Counts", None{}); c.Known > 0 {
		t.Errorf("%d files are known that are not open", c.Known)
	}
}

// However reads, refreshes, opens and closes fall together: a file that is open
// without an open lock, and of which something is known, is among the known ones.
func TestKnownFilesAreNeverLost(t *testing.T) {
	f := handlersOnly(t)
	toggle := func(n *node) { // by an open or a close
		n.lockMu.Lock()
		n.states[openNone] = 1 - n.states[openNone]
		f.unprotected.counted(n)
		n.lockMu.Unlock()
	}
	actions := []func(n *node){
		func(n *node) { // READ and WRITE
			n.cached.Swap(true)
			f.unprotected.noteKnown(n)
		},
		func(n *node) { // GETATTR
			n.attrTold.Swap(true)
			f.unprotected.noteKnown(n)
		},
		func(n *node) { // the end of an open lock
			n.cacheMu.Lock()
			n.version.known = true
			n.cacheMu.Unlock()
			f.unprotected.noteKnown(n)
		},
		func(n *node) { // a refresh
			n.forgetVersion()
			n.cached.Store(false)
			n.attrTold.Store(false)
			f.unprotected.forgot([]*node{n})
		},
		toggle,
	}
	// Two at a time, as exactly at the same time as can be had; what they have
	// left behind is looked at, and is where the next two begin.
	const rounds = 100_000
	n := new(node)
	var round, ended atomic.Int64
	var wg sync.WaitGroup
	for g := range uint64(2) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, g))
			for i := int64(1); i <= rounds; i++ {
				for round.Load() < i {
					runtime.Gosched()
				}
				actions[r.IntN(len(actions))](n)
				ended.Add(1)
			}
		})
	}
	lost := 0
	for i := int64(1); i <= rounds; i++ {
		round.Store(i)
		for ended.Load() < 2*i {
			runtime.Gosched()
		}
		_, in := f.unprotected.known[n]
		if in != n.inKnown.Load() || in && !n.unprotected.Load() || n.unprotected.Load() && n.isKnown(f.now()) && !in {
			lost++
		}
	}
	wg.Wait()
	if lost > 0 {
		t.Errorf("after %d of %d rounds a file was known and not among the known ones, or the other way round", lost, rounds)
	}
}
