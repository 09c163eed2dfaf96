package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
)

func TestWhenAnOpenLockGivesWay(t *testing.T) {
	const R, W, now = locks.Read, locks.Write, 1_000_000
	long := yields{10_000, 1000, 50}
	since := func(ms int64) int64 { return now - ms }
	for _, c := range []struct {
		what string
		i    idleness
		want locks.Mode
		a    action
		at   int64
	}{
		{"never", idleness{mode: W, unused: true}, W, stays, 0},
		{"readers", idleness{yields: long, mode: R}, R, stays, 0},
		{"shared already", idleness{yields: long, mode: W, isShared: true}, R, stays, 0},
		{"not used", idleness{yields: long, mode: W, unused: true, used: now}, W, leavesIt, 0},
		{"not used, a reader", idleness{yields: long, mode: R, unused: true, used: now}, W, leavesIt, 0},
		{"not used, but the open is the lock", idleness{yields: yields{after: 10_000}, mode: W, unused: true, used: now}, W, stays, now + 10_000},
		{"a reader in use", idleness{yields: long, mode: R, used: since(999)}, W, stays, now + 1},
		{"an idle reader", idleness{yields: long, mode: R, used: since(1000)}, W, leavesIt, 0},
		{"a writer in use", idleness{yields: long, mode: W, used: since(10)}, R, stays, now + 990},
		{"an idle writer, a reader", idleness{yields: long, mode: W, used: since(1000)}, R, sharesIt, 0},
		{"an idle writer, a writer", idleness{yields: long, mode: W, used: since(9999)}, W, stays, now + 1},
		{"two idle writers", idleness{yields: long, mode: W, used: since(10_000)}, W, leavesIt, 0},
		{"shared with readers, a writer", idleness{yields: long, mode: W, isShared: true, shared: true, used: since(9000)}, W, stays, now + 1000},
		{"shared before, a reader", idleness{yields: long, mode: W, shared: true, used: since(50)}, R, sharesIt, 0},
		{"a stream", idleness{yields: long, mode: R, stream: true, used: since(49)}, W, stays, now + 1},
		{"an idle stream", idleness{yields: long, mode: R, stream: true, used: since(50)}, W, leavesIt, 0},
		{"two streams", idleness{yields: long, mode: W, stream: true, used: since(50)}, W, leavesIt, 0},
		{"no streams", idleness{yields: yields{10_000, 1000, 0}, mode: R, stream: true, used: since(50)}, W, stays, now + 950},
		{"truncated", idleness{yields: long, mode: W, unused: true, fresh: true, used: since(9999)}, R, stays, now + 1},
		{"truncated long ago", idleness{yields: long, mode: W, unused: true, fresh: true, used: since(10_000)}, W, leavesIt, 0},
		{"pages may serve reads", idleness{yields: long, mode: R, used: since(5000), unseen: since(500)}, W, dropsPages, 0},
		{"pages may serve reads, in use", idleness{yields: long, mode: R, used: since(1), unseen: since(1)}, W, dropsPages, 0},
		{"no pages serve reads", idleness{yields: long, mode: R, used: since(5000), dropped: since(999)}, W, stays, now + 1},
		{"no pages served reads", idleness{yields: long, mode: R, used: since(5000), dropped: since(1000)}, W, leavesIt, 0},
		{"pages may serve reads again", idleness{yields: long, mode: R, used: since(1), unseen: since(1), dropped: since(999)}, W, stays, now + 999},
		{"pages that serve nobody", idleness{yields: long, mode: R, used: since(5000), unseen: since(1000)}, W, leavesIt, 0},
		{"pages of a stream", idleness{yields: long, mode: R, stream: true, used: since(50), unseen: now}, W, leavesIt, 0},
	} {
		if a, at := c.i.decide(c.want, now); a != c.a || at != c.at {
			t.Errorf("%s: %v at %d, want %v at %d", c.what, a, at, c.a, c.at)
		}
	}
}

func TestYieldsOfARule(t *testing.T) {
	for _, c := range []struct {
		r    Rule
		want yields
	}{
		{DefaultRule, yields{10_000, 1000, 50}},
		{Rule{}, yields{}},
		{Rule{YieldShared: time.Second, YieldStream: time.Second}, yields{}},
		{Rule{Yield: time.Second, YieldShared: time.Second, UntilClose: true}, yields{}},
		{Rule{Yield: time.Second, YieldShared: time.Second, PerProcess: true}, yields{1000, 0, 0}},
		{Rule{Yield: time.Second}, yields{1000, 0, 0}},
		{Rule{Yield: time.Second, YieldStream: time.Second}, yields{1000, 0, 0}},
		{Rule{Yield: 300 * time.Millisecond, YieldShared: time.Second, YieldStream: time.Second}, yields{300, 300, 300}},
		{Rule{Yield: time.Microsecond, YieldShared: time.Microsecond, YieldStream: time.Microsecond}, yields{1, 1, 1}},
		{Rule{Yield: time.Second, YieldShared: time.Second}, yields{1000, 1000, 0}},
	} {
		if got := c.r.yields(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
}

// unhurried is a rule by which nothing that is in use gives way while a test runs.
func unhurried(c *childConfig) {
	c.Rule = &Rule{Open: true, Yield: time.Hour, YieldShared: time.Hour, YieldStream: time.Hour}
}

// Programs that open a file, and have not used it yet, cost others nothing.
func TestAnOpenLockThatIsNotUsedGivesWayAtOnce(t *testing.T) {
	m := mount(t, unhurried)
	writeFile(t, m.backing("f"), "old")
	a, b := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fds := map[*testProgram][]int{a: {a.open("f", "rw"), a.open("f", "r")}, b: {b.open("f", "w,append")}}
	a.do("fstat %d", fds[a][0]) // is no use
	m.wantOpenLocks("f", 3)
	drop := m.remote("f", locks.Open, locks.Write)
	m.wantOpenLocks("f", 0)
	writeFile(t, m.backing("f"), "new and longer")
	// The first use takes the lock, and keeps it.
	a.tell("read %d 0 100", fds[a][0])
	a.sleeping()
	drop()
	if got := a.answer(); got != "ok new and longer" {
		t.Errorf("read: %s", got)
	}
	held := make(chan func())
	go func() { held <- m.remote("f", locks.Open, locks.Read) }()
	await(t, "the wish is known", func() bool { return m.wantsOpen("f") })
	a.want("ok", "write %d 0 NEW", fds[a][0])
	select {
	case <-held:
		t.Error("it gave way in the middle of its use")
	default:
	}
	a.want("ok", "close %d", fds[a][0])
	drop = <-held
	b.tell("write %d 0 x", fds[b][0])
	b.sleeping()
	drop()
	if got := b.answer(); got != "ok" {
		t.Error(got)
	}
	if got := readFile(t, m.backing("f")); got != "NEW and longerx" {
		t.Errorf("%q", got)
	}
}

// wantsOpen reports whether the other node waits for the open lock of a file.
func (m *testMount) wantsOpen(name string) bool {
	m.t.Helper()
	return ask[locks.Mode](m, "Wanted", m.key(name, locks.Open)) != 0
}

// os.WriteFile truncates a file, and then writes it. Nobody must see it empty,
// however long that takes.
func TestWhoTruncatesAFileIsGoingToWriteIt(t *testing.T) {
	m := mount(t, unhurried)
	p := startProgram(t, m.dir, nil)
	for _, how := range []string{"w,trunc", "rw,trunc,append", "w,creat,excl", "rw,creat,trunc"} {
		name := "made"
		if !strings.Contains(how, "creat") {
			name = "truncated"
			writeFile(t, m.backing(name), "old")
		}
		fd := p.open(name, how)
		m.awaitOpenLocks(name, 1)
		held := make(chan func())
		go func() { held <- m.remote(name, locks.Open, locks.Read) }()
		await(t, "the wish is known", func() bool { return m.wantsOpen(name) })
		p.want("ok", "write %d 0 new", fd)
		m.wantOpenLocks(name, 1)
		p.want("ok", "close %d", fd)
		(<-held)()
		if got := readFile(t, m.backing(name)); got != "new" {
			t.Errorf("%s: %q", how, got)
		}
		p.want("ok", "unlink %s", name)
	}
}

// A writer that is idle lets others read, but not write; its next write waits
// until they have read.
func TestAnIdleWriterBecomesAReader(t *testing.T) {
	for _, how := range []string{"w", "rw"} {
		m := mount(t, func(c *childConfig) {
			c.Rule = &Rule{Open: true, Yield: time.Hour, YieldShared: time.Millisecond, YieldStream: time.Millisecond}
		})
		writeFile(t, m.backing("f"), "old")
		p := startProgram(t, m.dir, nil)
		fd := p.open("f", how)
		p.want("ok", "write %d 0 new", fd)
		if how == "rw" { // what is mapped is written out before
			p.want("ok", "map %d 3", fd)
			p.want("ok new", "peek 0 3")
			p.want("ok", "poke 0 map")
		}
		drop := m.remote("f", locks.Open, locks.Read)
		if got := readFile(t, m.backing("f")); how == "rw" && got != "map" || how == "w" && got != "new" {
			t.Errorf("%s: others read %q", how, got)
		}
		m.wantOpenLocks("f", 1)
		written := make(chan func())
		go func() { written <- m.remote("f", locks.Open, locks.Write) }()
		await(t, "the wish is known", func() bool { return m.wantsOpen("f") })
		p.do("fstat %d", fd) // does not wait
		p.tell("write %d 0 3rd", fd)
		p.sleeping()
		m.wantOpenLocks("f", 1)
		drop()
		if got := p.answer(); got != "ok" {
			t.Error(got)
		}
		select {
		case <-written:
			t.Error("another one could write in between")
		default:
		}
		if calls := fmt.Sprint(m.calls("f")); strings.Count(calls, "share open:f") != 1 {
			t.Error(calls)
		}
		p.kill()
		(<-written)()
	}
}

// slowRule is for tests that turn the server's clock: what passes by itself
// makes no difference.
func slowRule(string) Rule {
	return Rule{Open: true, Yield: 10_000 * time.Second, YieldShared: 1000 * time.Second, YieldStream: 100 * time.Second}
}

// A handle that has given way once gives way at any pause; the others of the
// file don't.
func TestAStreamGivesWaySoon(t *testing.T) {
	f := handlersOnly(t, func(o *Options) {
		o.Locker = newFakeLocker()
		o.Rule = slowRule
	})
	l := f.locker.(*fakeLocker)
	must(t, os.WriteFile(filepath.Join(f.opts.Root.Name(), "f"), []byte("old"), 0o644))
	h := f.openForTest(t, "f", os.O_WRONLY)
	write := func() {
		t.Helper()
		if _, st := f.writeForTest(h, 0, "new"); !st.Ok() {
			t.Fatal(st)
		}
	}
	later := func(d time.Duration) { f.start = f.start.Add(-d) }
	k := h.open.req.Key
	l.wanted[k] = map[int]locks.Mode{1: locks.Write}
	looksAt := func(want openState) {
		t.Helper()
		f.yielder.giveWayTo(k)
		f.tasks.Wait()
		if h.open.state != want {
			t.Errorf("state %d, want %d", h.open.state, want)
		}
	}
	write()
	later(9000 * time.Second)
	looksAt(openHeld)
	later(1000 * time.Second)
	looksAt(openIdle)
	for range 3 {
		write()
		looksAt(openHeld)
		later(100 * time.Second)
		looksAt(openIdle)
	}
	if s := f.yielder.openLockOf(h); !s.Stream {
		t.Errorf("%+v", s)
	}
}

// Reads that the kernel's pages serve are use: they are made visible before an
// open lock gives way.
func TestReadsOfCachedPagesAreUse(t *testing.T) {
	f := handlersOnly(t, func(o *Options) { o.Locker, o.Rule = newFakeLocker(), slowRule })
	l := f.locker.(*fakeLocker)
	must(t, os.WriteFile(filepath.Join(f.opts.Root.Name(), "f"), []byte("old"), 0o644))
	h := f.openForTest(t, "f", os.O_RDONLY)
	read := func() {
		t.Helper()
		in := fuse.ReadIn{InHeader: header(h.n.id), Fh: h.id, Size: 10}
		if _, st := f.Read(nil, &in, make([]byte, 10)); !st.Ok() {
			t.Fatal(st)
		}
	}
	look := func() { // read(2) does so when attributes are not valid any more
		var out fuse.AttrOut
		f.attrs.answerAttr(h.n, &out, false)
	}
	later := func(d time.Duration) { f.start = f.start.Add(-d) }
	k := h.open.req.Key
	l.wanted[k] = map[int]locks.Mode{1: locks.Write}
	looksAt := func(want openState, drops int64) {
		t.Helper()
		f.yielder.giveWayTo(k)
		f.tasks.Wait()
		if h.open.state != want || f.stats.PageDrops.Load() != drops {
			t.Errorf("state %d, %d drops; want %d, %d", h.open.state, f.stats.PageDrops.Load(), want, drops)
		}
	}
	for i := range int64(3) {
		read()
		look()
		looksAt(openHeld, i+1) // it may read what is there
		read()
		later(800 * time.Second)
		look()
		looksAt(openHeld, i+1)
		later(100 * time.Second)
		looksAt(openHeld, i+1)
		read()
		later(200 * time.Second)
	}
	looksAt(openHeld, 4)
	later(800 * time.Second)
	look() // fstat(2), or the end of the file, as tail(1) does
	looksAt(openHeld, 4)
	later(1000 * time.Second)
	looksAt(openIdle, 4)
}

// A node that does not know yet that its locks are lost, as after a pause, has none of them
// give way: a program that has one would take it again, and never be told.
func TestALostOpenLockDoesNotGiveWay(t *testing.T) {
	m := mount(t, func(c *childConfig) {
		c.Rule = &Rule{Open: true, Yield: time.Millisecond}
		c.TTL = time.Hour
	})
	writeFile(t, m.backing("f"), "content")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "write %d 0 mine", fd)
	ask[None](m, "Expel", false)
	drop := sync.OnceFunc(m.remote("f", locks.Open, locks.Write))
	defer drop() // the other one waits for it
	waits := make(chan func(), 1)
	go func() { waits <- m.remote("f", locks.Open, locks.Write) }()
	await(t, "it is looked at twice whether it gives way", func() bool { return ask[int](m, "Refused", None{}) >= 2 })
	ask[None](m, "Expel", true)
	drop()
	(<-waits)()
	p.want("EIO", "write %d 0 mine", fd)
}

// A lock that gives way stays if the node is not sure of it by then, and the program is not told
// anything: it may be sure again. If the lock is lost, the program is told.
func TestALockThatIsInDoubtStays(t *testing.T) {
	for _, x := range []struct {
		name      string
		was       openState
		meanwhile func(*fakeLocker)
		want      openState
		lost      bool
		calls     string
	}{
		{"sure", openHeld, func(*fakeLocker) {}, openIdle, false, "unlock"},
		{"unsure", openHeld, func(l *fakeLocker) { l.suspend(true) }, openHeld, false, ""},
		{"unsure and shared", openShared, func(l *fakeLocker) { l.suspend(true) }, openShared, false, ""},
		{"lost", openHeld, (*fakeLocker).expel, openIdle, true, "unlock"},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := handlersOnly(t, func(o *Options) { o.Locker, o.Rule = newFakeLocker(), slowRule })
			locker := f.locker.(*fakeLocker)
			writeFile(t, filepath.Join(f.opts.Root.Name(), "f"), "text")
			h := f.openForTest(t, "f", os.O_RDWR)
			l := newLeaving(openIdle)
			h.mu.Lock()
			f.openLocks.setState(h, x.was)
			f.yielder.leaves(h, l)
			h.mu.Unlock()
			locker.takeCalls()
			x.meanwhile(locker)
			f.yielder.letGo(h.n, l, "wanted")
			<-l.done
			calls := strings.Join(locker.takeCalls(), "; ")
			if h.open.state != x.want || h.lost.Load() != x.lost || h.open.wait != nil || strings.Contains(calls, "unlock") != (x.calls != "") {
				t.Errorf("state %d, lost %v, calls %q; want %d, %v, %q", h.open.state, h.lost.Load(), calls, x.want, x.lost, x.calls)
			}
		})
	}
}
