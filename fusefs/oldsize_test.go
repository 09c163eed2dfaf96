package fusefs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/dmxfs/dmxfs/locks"
)

// sizeChanges are changes of a file by another host, by which its size is another one.
var sizeChanges = []struct{ name, was, is string }{
	{"grows", "100", "1002"},
	{"grows by pages", "100", strings.Repeat("x", 9000) + "1002"},
	{"shrinks", "10002", "99"},
	{"shrinks by pages", strings.Repeat("x", 9000) + "1002", "99"},
	{"same", "100", "101"},
}

func (m *testMount) awaitParked(n int) {
	m.t.Helper()
	await(m.t, "requests wait", func() bool { return ask[Counts](m, "Counts", None{}).Parked == n })
}

// A read(2) asks how long the file is, and before it asks for what is in it the open
// lock goes to another host, which changes the size. The kernel would cut what it
// is answered then at the size that it was told first.
func TestAnOpenLockGoesBetweenTheSizeAndTheRead(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.HoldAnswers, c.TTL = opGetAttr, -1 })
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	for i, x := range sizeChanges {
		for _, look := range []bool{false, true} {
			t.Run(x.name, func(t *testing.T) {
				name := fmt.Sprintf("f%d-%v", i, look)
				writeFile(t, m.backing(name), x.was)
				fd := p.open(name, "rw")
				ask[None](m, "HoldAttr", 1)
				p.tell("read %d 0 10000", fd)
				await(t, "the answer is held back", func() bool { return ask[int](m, "Held", None{}) == 1 })
				drop := m.remote(name, locks.Open, locks.Write)
				ask[None](m, "Answer", 0)
				m.awaitParked(1)
				if look {
					q.do("stat %s", name)
				}
				must(t, os.WriteFile(m.backing(name), []byte(x.is), 0o644))
				drop()
				if got := p.answer(); got != "ok "+x.is {
					t.Errorf("read %.20q (%d), want %.20q; looked: %v", got, len(got), "ok "+x.is, look)
				}
			})
		}
	}
}

// A read(2) asks how long the file is, and waits for the open lock; meanwhile another
// program looks at the file, or reads it. The kernel is then made to drop what it has,
// and with that it ignores the size that it is told next.
func TestARequestForTheSizeThatWaitsIsIgnored(t *testing.T) {
	m := mount(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	writeFile(t, m.backing("lock"), "")
	q.want("ok", "flock %d ex", q.open("lock", "rw")) // no open locks for this one
	for _, meanwhile := range []string{"stat", "cat"} {
		for i, x := range sizeChanges {
			t.Run(meanwhile+" "+x.name, func(t *testing.T) {
				name := fmt.Sprint(meanwhile, i)
				writeFile(t, m.backing(name), x.was)
				fd := p.open(name, "rw")
				drop := m.remote(name, locks.Open, locks.Write)
				p.tell("read %d 0 10000", fd)
				m.awaitParked(1)
				q.do("%s %s", meanwhile, name)
				must(t, os.WriteFile(m.backing(name), []byte(x.is), 0o644))
				drop()
				if got := p.answer(); got != "ok "+x.is {
					t.Errorf("read %.20q (%d), want %.20q", got, len(got), "ok "+x.is)
				}
			})
		}
	}
}

// The first thing that a program does with a file whose open lock was away, and what
// it finds afterwards.
func TestFirstUseOfAFileThatHasAnotherSize(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.Rule = &Rule{Open: true, Yield: time.Millisecond} })
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	for _, first := range []string{"read", "read-the-end", "mapping", "end", "append"} {
		for i, x := range sizeChanges {
			t.Run(first+" "+x.name, func(t *testing.T) {
				if first == "end" && len(x.is) < len(x.was) {
					t.Skip("lseek(2) that waits can go to the old end, see docs/storage.md")
				}
				name, how := fmt.Sprint(first, i), "rw"
				writeFile(t, m.backing(name), x.was)
				if first == "append" {
					how = "rw,append"
				}
				fd := p.open(name, how)
				p.want("ok "+x.was, "read %d 0 10000", fd) // it is cached
				p.want("ok", "map %d %d", fd, len(x.was))
				drop := m.remote(name, locks.Open, locks.Write)
				is, want := x.is, ""
				switch first {
				case "read":
					want = is
					p.tell("read %d 0 10000", fd)
				case "read-the-end":
					want = is[len(is)-1:]
					p.tell("read %d %d 10", fd, len(is)-1)
				case "mapping":
					want = is[:2]
					p.tell("peek 0 2")
				case "end":
					want = strconv.Itoa(len(is))
					p.tell("end %d", fd)
				case "append":
					is += "+"
					p.tell("write %d 0 +", fd)
				}
				m.awaitParked(1)
				q.do("stat %s", name)
				must(t, os.WriteFile(m.backing(name), []byte(x.is), 0o644))
				drop()
				if got := p.answer(); got != strings.TrimSpace("ok "+want) {
					t.Errorf("%.20q (%d), want %.20q", got, len(got), want)
				}
				p.want("ok "+strconv.Itoa(len(is)), "end %d", fd)
				p.want("ok "+is, "read %d 0 20000", fd)
				p.want("ok "+is[len(is)-1:], "read %d %d 10", fd, len(is)-1)
				p.want("ok", "close %d", fd)
				q.want("ok "+is, "cat %s", name)
				if b := readFile(t, m.backing(name)); b != is {
					t.Errorf("the storage has %.20q (%d)", b, len(b))
				}
			})
		}
	}
}

// The kernel puts what is appended where it believes that the file ends. If that is not
// where it ends when a lock comes, pages that somebody has read meanwhile without a
// lock would have it in the wrong place, over what another host has appended.
func TestWhatIsAppendedIsWhereItBelongs(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.HoldAnswers, c.TTL = opGetAttr, -1 })
	writeFile(t, m.backing("f"), "begin ")
	p, reader := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fd, look := p.open("f", "rw,append"), reader.open("f", "rw")
	p.want("ok", "flock %d ex", fd)
	p.want("ok", "flock %d un", fd)
	reader.want("ok", "map %d 4096", look)
	drop := m.remote("f", locks.Flock, locks.Write)
	ask[None](m, "HoldAttr", 1)
	reader.tell("read %d 0 100", look)
	await(t, "the answer is held back", func() bool { return ask[int](m, "Held", None{}) == 1 })
	must(t, os.WriteFile(m.backing("f"), []byte("begin there "), 0o644))
	drop()
	p.want("ok", "flock %d ex", fd)
	ask[None](m, "Answer", 0)
	reader.answer() // it had no lock
	p.want("ok", "write %d 0 here", fd)
	reader.want("ok begin there here", "peek 0 16")
	p.want("ok begin there here", "read %d 0 100", fd)
}

// While a READ is made again no open lock of the file gives way.
func TestAnOpenLockStaysWhileAReadIsMadeAgain(t *testing.T) {
	f := handlersOnly(t)
	f.conn.dead = make(chan struct{})
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", []byte("text"), 0o644))
	n := f.openForTest(t, "f", os.O_RDWR).n
	sleeps := startProgram(t, t.TempDir(), nil)
	x := newRereading(uint32(sleeps.cmd.Process.Pid), 5000, f.now())
	n.again.Store(x)
	if !f.yielder.isRereading(n) {
		t.Error("before it has come")
	}
	read := func(tid uint32, page uint64) {
		in := &fuse.ReadIn{InHeader: header(n.id), Offset: page * pageSize, Size: pageSize}
		in.Pid, in.Unique = tid, 7
		x.comes(in, f.now())
	}
	read(x.tid+1, 1)
	if !f.yielder.isRereading(n) {
		t.Error("another thread has read")
	}
	read(x.tid, 0)
	if !f.yielder.isRereading(n) {
		t.Error("it has not come to the end")
	}
	read(x.tid, 1)
	await(t, "its program has gone on", func() bool { return !f.yielder.isRereading(n) })
	if n.again.Load() != nil {
		t.Error("it is remembered")
	}
	n.again.Store(newRereading(x.tid, 5000, f.now()-rereadTime-1))
	if f.yielder.isRereading(n) {
		t.Error("it never comes")
	}
}

// The kernel may believe that a file is as long as it was before another host has made it
// shorter. The pages that it writes back then, whole ones, make it no longer again.
func TestPagesThatAreWrittenBackMakeNoFileLonger(t *testing.T) {
	f, h, path := mappedHandle(t, newFakeLocker())
	must(t, os.WriteFile(path, []byte("0123456789"), 0o644))
	page := strings.Repeat("x", pageSize)
	for _, x := range []struct {
		off  uint64
		made int64 // as this host has made it
		want string
	}{
		{4, 0, "0123xxxxxx"},
		{10, 0, "0123xxxxxx"},
		{3 * pageSize, 0, "0123xxxxxx"},
		{2, 3 * pageSize, "01xxxxxxxx"},
	} {
		h.n.made.raise(x.made)
		in := fuse.WriteIn{InHeader: header(h.n.id), Fh: h.id, Offset: x.off, Size: pageSize, WriteFlags: fuse.WRITE_CACHE}
		in.Opcode = opWrite
		if n, st := f.Write(nil, &in, []byte(page)); n != pageSize || !st.Ok() {
			t.Errorf("at %d: %d %v", x.off, n, st)
		}
		if got := readFile(t, path); got != x.want {
			t.Errorf("at %d: the file has %.20q (%d bytes), want %q", x.off, got, len(got), x.want)
		}
	}
	// What a program writes itself does.
	in := fuse.WriteIn{InHeader: header(h.n.id), Fh: h.id, Offset: 8, Size: 4}
	in.Opcode = opWrite
	if n, st := f.Write(nil, &in, []byte("more")); n != 4 || !st.Ok() {
		t.Errorf("%d %v", n, st)
	}
	if got := readFile(t, path); got != "01xxxxxxmore" {
		t.Errorf("the file has %q", got)
	}
}
