package fusefs

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
)

// A program makes a file longer. Before the write is done the kernel drops the page that has its
// data, for a lock that comes, or behind a server that was killed; and another program reads that
// page. It never sees zeros, also if its read(2) ends after the write(2).
func TestAPageIsReadBehindTheWriteToIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		drop func(t *testing.T, m *keptMount, write func())
	}{
		{"lock", func(t *testing.T, m *keptMount, write func()) {
			m.crashAt(Crash{Op: opWrite, Where: atBegun, Waits: true})
			write()
			await(t, "it is under way", func() bool { return m.order("f").Underway > 0 })
			must(t, m.Call("Child.Refresh", m.key("f", locks.Flock), &None{}))
		}},
		{"killed", func(t *testing.T, m *keptMount, write func()) {
			m.crashAt(Crash{Op: opWrite, Where: atBegun})
			write()
			m.killed()
			m.conf.Kept.Crash = Crash{Op: opWrite, Where: atBegun, Waits: true}
			must(t, m.goOn())
			await(t, "all is dropped", func() bool { return ask[Counts](m.testMount, "Counts", None{}).Dropped })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mountKept(t, func(c *childConfig) { c.HoldAnswers = opRead })
			p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
			p.want("ok", "put f hello")
			w, r := p.open("f", "rw"), q.open("f", "r")
			// What is under an open lock is not dropped.
			p.want("ok", "flock %d sh", w)
			q.want("ok", "flock %d sh", r)
			q.want("ok hello", "read %d 0 20", r)
			c.drop(t, m, func() { p.tell("write %d 5 world", w) })
			held := func() bool { return ask[int](m.testMount, "Held", None{}) > 0 }
			ask[None](m.testMount, "HoldAttr", 1)
			q.tell("read %d 0 20", r)
			await(t, "it waits for the write, or has read what is there", func() bool {
				return held() || m.order("f").Awaited > 0
			})
			must(t, m.Call("Child.CrashAt", Crash{Where: "nowhere"}, &None{}))
			if got := m.answer(p); got != "ok" {
				t.Errorf("the write: %s", got)
			}
			await(t, "it has read what is there", held)
			ask[None](m.testMount, "Answer", 0)
			if got := m.answer(q); got != "ok hello" && got != "ok helloworld" { // as far as the kernel knew
				t.Errorf("read meanwhile: %q", got)
			}
			q.want("ok helloworld", "read %d 0 20", r)
		})
	}
}

// A write waits for its host to be sure of its lock. Whoever reads the page meanwhile, which was
// dropped, does not wait for that; and what it has read is dropped once more, as the times of the
// storage do not tell that the file has changed.
func TestAWriteThatWaitsIsPassed(t *testing.T) {
	t.Parallel()
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, LoopbackTTL: -1, Seconds: true})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, Rule: &Rule{}})
	p, q := startProgram(t, dir, nil), startProgram(t, dir, nil)
	p.want("ok", "put f hello")
	w, r := p.open("f", "rw"), q.open("f", "r")
	p.want("ok", "flock %d ex", w)
	q.want("ok hello", "read %d 0 20", r)
	ask[None](m, "Suspend", true)
	p.tell("write %d 0 world", w)
	await(t, "it waits", func() bool { return ask[Counts](m, "Counts", None{}).Parked > 0 })
	must(t, m.Call("Child.Refresh", m.key("f", locks.Flock), &None{}))
	q.want("ok hello", "read %d 0 20", r)
	ask[None](m, "Suspend", false)
	if got := p.answer(); got != "ok" {
		t.Errorf("the write: %s", got)
	}
	q.want("ok world", "read %d 0 20", r)
}

// A READ waits for the WRITEs of its pages that are under way, until they are done, for a second, until
// they wait for another host, or until the mount is gone.
func TestReadsAwaitWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := &node{}, &conn{dead: make(chan struct{}), readers: newReaders(usualReaders)}
		w := &n.writes
		in := func(request, page uint64) *fuse.WriteIn {
			x := &fuse.WriteIn{Offset: page*pageSize + 5, Size: 10}
			x.Unique = request
			return x
		}
		waits := func(page uint64) (over chan time.Duration) {
			began, over := time.Now(), make(chan time.Duration, 1)
			go func() {
				w.await(c, &fuse.ReadIn{Offset: page * pageSize, Size: pageSize})
				over <- time.Since(began)
			}()
			synctest.Wait()
			return over
		}
		w.begin(in(1, 2), false)
		w.begin(in(2, 2), false)
		read := waits(2)
		if len(read) > 0 || len(waits(1)) == 0 || len(waits(3)) == 0 {
			t.Error("a read does not wait, or one of other pages does")
		}
		x := w.over(1)
		if synctest.Wait(); len(read) > 0 || x.passed {
			t.Error("a read waits for one of two writes only")
		}
		x = w.over(2)
		if synctest.Wait(); len(read) == 0 || x.passed {
			t.Error("it waits when there is no write any more")
		}
		w.begin(in(3, 2), false)
		read = waits(2)
		w.parks(3, true)
		if synctest.Wait(); len(read) == 0 {
			t.Error("it waits for a write that waits for another host")
		}
		w.parks(3, false)
		if took := <-waits(2); took != writesTime {
			t.Errorf("for a write that is not done: %v", took)
		}
		if x := w.over(3); !x.passed {
			t.Error("it was not passed")
		}
		w.begin(in(4, 2), false)
		close(c.dead)
		if took := <-waits(2); took != 0 {
			t.Errorf("of a mount that is gone: %v", took)
		}
		begun := w.begun.Load()
		w.begin(in(5, 2), true)
		w.over(5)
		if !w.since(begun, pagesOf(2*pageSize, 1)) || w.since(begun, pagesOf(3*pageSize, 1)) || w.since(begun+1, pagesOf(2*pageSize, 1)) {
			t.Error("what has begun since")
		}
		for i := range uint64(lastWrites) {
			w.begin(in(6+i, 2), false)
		}
		if !w.since(begun, pagesOf(3*pageSize, 1)) {
			t.Error("more have begun since than are known")
		}
	})
}

// Order is what is known of the writes to a file.
type Order struct{ Underway, Awaited int }

func (c *control) Order(k locks.Key, x *Order) error {
	for _, n := range c.s.fs.tree.ofFile(k.File) {
		w := &n.writes
		w.mu.Lock()
		for _, y := range w.all {
			if x.Underway++; y.stirs != nil {
				x.Awaited++
			}
		}
		w.mu.Unlock()
		c.s.fs.tree.unpin(n)
	}
	return nil
}

func (m *testMount) order(name string) Order { return ask[Order](m, "Order", m.key(name, locks.Open)) }

// Another host makes a file longer while a READ has met its end: it gives what there is, if somebody
// was told of that.
func TestAFileGrowsUnderARead(t *testing.T) {
	f := handlersOnly(t)
	path := f.opts.Root.Name() + "/f"
	writeFile(t, path, "first")
	h := f.openForTest(t, "f", os.O_RDWR)
	buf := make([]byte, 20)
	copy(buf, "first")
	writeFile(t, path, "firstsecond")
	if n := readOn(h, buf, 5, 0); n != 5 {
		t.Errorf("%q, though nobody was told of it", buf[:n])
	}
	h.n.mayHaveSize(11)
	if n := readOn(h, buf, 5, 0); string(buf[:n]) != "firstsecond" {
		t.Errorf("%q", buf[:n])
	}
	h.n.mayHaveSize(15)
	writeFile(t, path, "firstsecond")
	if n := readOn(h, buf, 5, 0); n != 11 {
		t.Errorf("%q of a file that is shorter by now", buf[:n])
	}
	f.Release(nil, &fuse.ReleaseIn{Fh: h.id})
}

// The kernel keeps the pages of a file that a program has under an open lock when the server is
// killed: nobody else can have changed them. To drop them it would have to write out what the
// program has changed through a mapping, and it puts zeros behind the end that it knows then,
// also where a write is on its way (see takeQueued).
func TestPagesUnderAnOpenLockOutliveTheServer(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	p.want("ok", "put held hello")
	p.want("ok", "put shared hello")
	held, shared := p.open("held", "rw"), q.open("shared", "rw")
	q.want("ok", "flock %d ex", shared)
	p.want("ok", "map %d 5", held)
	p.want("ok", "poke 0 J")
	q.want("ok hello", "read %d 0 5", shared)
	m.kill()
	must(t, m.goOn())
	await(t, "all is dropped", func() bool { return ask[Counts](m.testMount, "Counts", None{}).Dropped })
	if s := ask[Stats](m.testMount, "Stats", None{}); s.PageDrops == 0 {
		t.Error("those of a file without an open lock were not dropped")
	}
	if b, err := os.ReadFile(m.backing("held")); err != nil || string(b) != "hello" {
		t.Errorf("on the storage: %q %v", b, err)
	}
	p.want("ok Jello", "read %d 0 5", held)
	p.want("ok", "unmap")
	p.want("ok", "fsync %d", held)
	if b, err := os.ReadFile(m.backing("held")); err != nil || string(b) != "Jello" {
		t.Errorf("on the storage: %q %v", b, err)
	}
}
