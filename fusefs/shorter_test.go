package fusefs

import (
	"os"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// shortened is a file that another host has made shorter, of which the kernel does not know,
// and ignores that it is told: a program, which has the lock, reads to the end of it, and its
// READ waits for the host to be sure of its locks.
type shortened struct {
	m    *keptMount
	p, q *testProgram
	look int    // q has it open
	want string // what p reads
}

func newShortened(t *testing.T) *shortened {
	m := mountKept(t, func(c *childConfig) { c.HoldAnswers, c.TTL = opGetAttr, -1 })
	x := &shortened{m: m, p: startProgram(t, m.dir, nil), q: startProgram(t, m.dir, nil)}
	was, is := strings.Repeat("x", 20_000), strings.Repeat("y", 5000)
	x.want = "ok " + is[4500:]
	writeFile(t, m.backing("f"), was)
	writeFile(t, m.backing("other"), "")
	fd := x.p.open("f", "rw")
	x.look = x.q.open("f", "rw")
	x.p.want("ok", "flock %d ex", fd)
	x.p.want("ok "+was, "read %d 0 30000", fd)
	x.p.want("ok", "flock %d un", fd)
	drop := m.remote("f", locks.Flock, locks.Write)
	must(t, os.WriteFile(m.backing("f"), []byte(is), 0o644))
	drop()
	x.p.want("ok", "flock %d ex", fd)
	x.p.want("ok", "write %d 0 y", fd)
	ask[None](m.testMount, "HoldAttr", 1)
	x.p.tell("read %d 4500 20000", fd)
	await(t, "the answer is held back", func() bool { return ask[int](m.testMount, "Held", None{}) == 1 })
	ask[None](m.testMount, "Suspend", true)
	x.anotherLock()
	ask[None](m.testMount, "Answer", 0)
	m.awaitParked(1)
	return x
}

// anotherLock has a lock arrive that may protect the file.
func (x *shortened) anotherLock() {
	must(x.m.t, x.m.Call("Child.Refresh", x.m.key("other", locks.Flock), &None{}))
}

// A read(2) ends where the file does, also if what it has asked for is answered when the kernel
// ignores it.
func TestAReadEndsWhereAnotherHostHasMadeTheFileEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		meanwhile func(t *testing.T, x *shortened)
	}{
		{"locks come", func(t *testing.T, x *shortened) {
			x.q.do("write %d 0 y", x.look) // or there is nothing to be dropped
			x.anotherLock()
			ask[None](x.m.testMount, "Suspend", false)
		}},
		{"killed", func(t *testing.T, x *shortened) {
			x.m.kill()
			x.m.conf.Suspended = true // it is no member yet
			must(t, x.m.goOn())
			x.m.awaitParked(1)
			await(t, "the kernel is notified", func() bool { return ask[Counts](x.m.testMount, "Counts", None{}).Dropped })
			ask[None](x.m.testMount, "Suspend", false)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newShortened(t)
			c.meanwhile(t, x)
			if got := x.m.answer(x.p); got != x.want {
				t.Errorf("read %.20q, %d bytes; want %d", got, len(got), len(x.want))
			}
		})
	}
}

// A READ is made again that has waited for its lock; and once more only if the kernel was notified
// meanwhile. One that may have been asked for before this process went on is not unless its
// program is seen to wait for a page.
func TestReadAgain(t *testing.T) {
	f := handlersOnly(t)
	f.conn.dead = make(chan struct{})
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", []byte("text"), 0o644))
	n := f.openForTest(t, "f", os.O_RDWR).n
	again := func(what string, want bool, request uint64, waited bool) {
		t.Helper()
		in := &fuse.ReadIn{Size: pageSize}
		in.Unique, in.Pid = request, 1<<31-1 // no thread has that number
		if got := f.readAgain(n, in, 4, lateRead{waited: waited, old: f.mayBeOld(in), notified: n.notified.Load()}); got != want {
			t.Errorf("%s: again: %v", what, got)
		}
	}
	again("the file was never longer", false, 1, true)
	n.bounds.most.Store(5)
	again("it has not waited", false, 1, false)
	again("it has waited", true, 1, true)
	again("the second one", false, 2, false)
	again("the second one, which has waited, too", false, 2, true)
	f.attrs.forgetAttr(n)
	again("it has not waited, and there was a notification", false, 2, false)
	again("it has", true, 2, true)
	n.failed.Load().at -= takenOver + 1
	again("of the same page, much later", true, 2, true)
	n.failed.Store(nil)
	f.conn.readers.again(3)
	again("another process has read it, and its program is gone", false, 3, false)
}

func TestWhichReadMayBeOld(t *testing.T) {
	f := handlersOnly(t)
	old := func(what string, want bool, request uint64) {
		t.Helper()
		in := new(fuse.ReadIn)
		if in.Unique = request; f.mayBeOld(in) != want {
			t.Errorf("%s: want %v", what, want)
		}
	}
	old("nothing was before", false, 1)
	f.redo.dropped = make(chan struct{})
	old("what the kernel has is being dropped", true, 1)
	close(f.redo.dropped)
	old("it is dropped", false, 1)
	f.conn.readers.again(2)
	old("another process has read it", true, 2)
}

// After a kill it is known how long the kernel may believe a file to be: it is written down.
func TestTheLongestSizeIsInTheLedger(t *testing.T) {
	f, r := withRows(t)
	wrote := uint64(0)
	var n *node
	r.set = func(table int, w []uint64) {
		if table != tableNodes {
			return
		}
		if n != nil && w[nodeMost] != wrote && n.line.most.Load() >= 0 {
			t.Error("who makes the file as long does not wait until that is written")
		}
		wrote = w[nodeMost]
	}
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", []byte("text"), 0o644))
	n = f.openForTest(t, "f", os.O_RDWR).n
	f.ledger.beginTree(f.tree)
	says := func(what string, want int64) {
		t.Helper()
		if wrote != uint64(want) || n.bounds.most.Load() != want {
			t.Errorf("%s: %d is written, it is %d; want %d", what, wrote, n.bounds.most.Load(), want)
		}
	}
	n.mayReach(12)
	says("a program has written", 12)
	n.mayHaveSize(100_000)
	says("another host has", 100_000)
	n.mayHaveSize(7)
	says("another host has truncated it", 100_000)
	truncates := func(size uint64, nsec uint32, want fuse.Status) {
		t.Helper()
		in := new(fuse.SetAttrIn)
		in.NodeId, in.Valid, in.Size, in.Atimensec = n.id, fuse.FATTR_SIZE|fuse.FATTR_ATIME, size, nsec
		if st := f.SetAttr(nil, in, new(fuse.AttrOut)); st != want {
			t.Fatal(st)
		}
	}
	truncates(7, 0, fuse.OK)
	says("a program has truncated it", 7)
	const wrongTime = 2_000_000_000
	truncates(5, wrongTime, fuse.EINVAL)
	says("it was truncated, and the program was told an error", 7)
	if err := n.cut(5, func() error { return unix.EIO }); err != unix.EIO {
		t.Error(err)
	}
	says("it could not be truncated", 7)
}
