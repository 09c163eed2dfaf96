package fusefs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// One program asks for the size of a file, and its answer is late; meanwhile
// another host writes and another program gets the lock, and reads. The kernel
// takes over the late answer while that asks for the size, and would ignore the
// new one.
func TestALateAnswerDoesNotEndARead(t *testing.T) {
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	storage := mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, HoldAttr: true})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, FileIDs: FileIDInode})
	writeFile(t, below+"/f", "old")
	p, other := startProgram(t, dir, nil), startProgram(t, dir, nil)
	fd, looked := p.open("f", "rw"), other.open("f", "r")
	m.remote("f", locks.Flock, locks.Write)()
	p.want("ok", "flock %d ex", fd) // nothing that was told before is kept now
	p.want("ok", "flock %d un", fd)
	held := func(n int) {
		await(t, fmt.Sprintf("%d answers are held back", n), func() bool {
			return ask[int](storage, "Held", None{}) == n
		})
	}

	drop := m.remote("f", locks.Flock, locks.Write)
	ask[None](storage, "HoldAttr", 1)
	other.tell("fstat %d", looked)
	held(1)
	writeFile(t, below+"/f", "new, and longer")
	drop()
	p.want("ok", "flock %d ex", fd)
	p.tell("read %d 0 100", fd)
	ask[None](storage, "Answer", 0)
	if got := other.answer(); !strings.Contains(got, "size=15") {
		t.Errorf("fstat, answered after the change: %q, want the new size", got)
	}
	if got := p.answer(); got != "ok new, and longer" {
		t.Errorf("read: %q", got)
	}
}

// One program changes the mode of a file without a lock, and the answer, which tells
// the size, too, is late: the kernel would take over that size whatever it has been
// told meanwhile. So who gets the lock after another host has changed the file has
// to wait until that is over.
func TestALockWaitsForASizeThatIsOnItsWay(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.HoldAnswers = opSetAttr })
	writeFile(t, m.backing("f"), "old")
	p, other := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "flock %d ex", fd)
	p.want("ok", "flock %d un", fd)
	drop := m.remote("f", locks.Flock, locks.Write)
	ask[None](m, "HoldAttr", 1)
	other.tell("chmod f 0600")
	await(t, "the answer is held back", func() bool { return ask[int](m, "Held", None{}) == 1 })
	writeFile(t, m.backing("f"), "new, and longer")
	drop()
	p.tell("flock %d ex", fd)
	await(t, "the lock waits for the answer", func() bool { return ask[Stats](m, "Stats", None{}).Settles == 1 })
	ask[None](m, "Answer", 0)
	if got := p.answer(); got != "ok" {
		t.Fatalf("flock: %s", got)
	}
	p.want("ok new, and longer", "read %d 0 100", fd)
	if got := other.answer(); got != "ok" {
		t.Errorf("chmod: %s", got)
	}
}

// The kernel takes over the size that CREATE tells of what another host has made, too.
func TestALockWaitsForASizeThatCreateTells(t *testing.T) {
	f := handlersOnly(t)
	defer runtime.UnlockOSThread()
	writeFile(t, f.opts.Root.Name()+"/f", "old")
	n := f.openForTest(t, "f", unix.O_RDWR).n
	must(t, os.Link(f.opts.Root.Name()+"/f", f.opts.Root.Name()+"/g"))
	if st := f.createForTest("g", uint32(os.Getuid()), unix.O_RDWR); !st.Ok() {
		t.Fatal(st)
	}
	var sizes []int64
	for a := range n.answers {
		sizes = append(sizes, a.size)
	}
	if len(sizes) != 1 || sizes[0] != 3 {
		t.Errorf("the sizes %d are remembered, want 3", sizes)
	}
}

// A size that is still true, or that a program has taken over, keeps nobody waiting.
func TestALockDoesNotWaitForSizesThatWereTakenOver(t *testing.T) {
	f := handlersOnly(t)
	f.conn.dead = make(chan struct{})
	writeFile(t, f.opts.Root.Name()+"/f", "old")
	n := f.openForTest(t, "f", unix.O_RDWR).n
	chmod := func(tid uint32) {
		in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: header(n.id), Valid: fuse.FATTR_MODE, Mode: 0o600}}
		in.Pid = tid
		if st := f.SetAttr(nil, &in, new(fuse.AttrOut)); !st.Ok() {
			t.Fatal(st)
		}
	}
	sleeps := startProgram(t, t.TempDir(), nil)
	gone := startProgram(t, t.TempDir(), nil)
	gone.kill()
	for i, tid := range []uint32{uint32(sleeps.cmd.Process.Pid), uint32(gone.cmd.Process.Pid), 0} {
		chmod(tid)
		f.attrs.awaitSizes(n) // the size is that which was told
		if len(n.answers) != 1 {
			t.Errorf("%d answers are remembered, want 1", len(n.answers))
		}
		writeFile(t, f.opts.Root.Name()+"/f", strings.Repeat("another one", i+1))
		f.attrs.awaitSizes(n)
		if len(n.answers) != 0 {
			t.Errorf("an answer to thread %d is remembered", tid)
		}
	}
}

func TestWhoHasGoneOn(t *testing.T) {
	var p progress
	for i, s := range []struct {
		state string
		ran   uint64
		want  bool
	}{{"R", 5_000_000, false}, {"R", 5_000_000, false}, {"R", 6_000_000, false}, {"R", 6_000_001, true}, {"S", 5_000_000, true}} {
		if got := p.goesOn(s.state, s.ran); got != s.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

// An answer that was given may be on its way when a lock comes. The kernel is
// told to ignore it if it is old, and only then: it would ignore the new size,
// too, that is on its way to somebody else.
func TestOldAnswersAreIgnored(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "old")
	writeFile(t, m.backing("lock"), "")
	p := startProgram(t, m.dir, nil)
	fd, lock := p.open("f", "rw"), p.open("lock", "rw")
	p.want("ok", "flock %d ex", lock) // no open lock any more: what is told is not kept
	notified := func(change string, look func()) int64 {
		t.Helper()
		p.want("ok", "flock %d un", lock)
		drop := m.remote("lock", locks.Flock, locks.Write)
		look()
		if change != "" {
			writeFile(t, m.backing("f"), change)
		}
		drop()
		before := ask[Stats](m, "Stats", None{})
		p.want("ok", "flock %d ex", lock)
		after := ask[Stats](m, "Stats", None{})
		sum := func(s Stats) int64 { return s.AttrDrops + s.PageDrops - s.Grown } // who was told to be longer has a page dropped
		return sum(after) - sum(before)
	}
	look := func() { p.do("fstat %d", fd) }
	notified("", func() {}) // what was told by the opens
	for _, tt := range []struct {
		name, change string
		look         func()
		want         int64
	}{
		{"nothing was told", "newer", func() {}, 0},
		{"it is still true", "", look, 0},
		{"it is old", "new, and longer", look, 1},
		{"it was old, and no new answer since", "once more, and longer", func() {}, 0},
		{"first old, then true", "", func() {
			look()
			writeFile(t, m.backing("f"), "shorter")
			look()
		}, 1},
	} {
		if got := notified(tt.change, tt.look); got != tt.want {
			t.Errorf("%s: %d notifications, want %d", tt.name, got, tt.want)
		}
	}
}

func TestToldSizes(t *testing.T) {
	var x toldSizes
	if x.differ(0, 1) || x.pending(1) {
		t.Error("nothing was told")
	}
	x.add(3, 1)
	x.add(3, 2)
	if x.differ(3, 2) || !x.differ(4, 2) || !x.pending(2) {
		t.Errorf("3 was told: %+v", x)
	}
	x.add(4, 3)
	if !x.differ(3, 3) || !x.differ(4, 3) {
		t.Errorf("3 and 4 were told: %+v", x)
	}
	if late := int64(3 + takenOver + 1); x.differ(3, late) || x.pending(late) {
		t.Errorf("they are known by then: %+v", x)
	}
	x.add(5, 3+takenOver+1)
	if x.differ(5, 3+takenOver+1) {
		t.Errorf("only 5 may be on its way: %+v", x)
	}
}
