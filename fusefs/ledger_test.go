package fusefs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// points are where a request that changes something may be when its server is killed.
var points = []string{atTaken, atBegun, atCalled, atMade, atDone, atAnswered}

// killedCase is a call during which the server is killed. The name N is a new one each
// time; F is an open file, and D a directory.
type killedCase struct {
	op     uint32
	before []string // each has the outcome ok
	call   string
	want   string   // the outcome
	after  []string // OUTCOME: CALL
	points []string // nil: all
}

var killedCases = []killedCase{
	{op: 9, call: "mkdir N 0750", want: "ok", after: []string{"EEXIST: mkdir N 0750", "ok: ls N", "ok: rmdir N"}},
	{op: opCreate, call: "open N rw,creat,excl", want: "ok FD", after: []string{"EEXIST: open N rw,creat,excl", "ok: write FD 0 new", "ok new: cat N", "ok: close FD"}},
	{op: opCreate, call: "open N rw,creat,excl 0", want: "ok FD", after: []string{"ok: write FD 0 new", "ok new: read FD 0 9", "ok mode=100000 uid=0 gid=0 size=3: stat N", "ok: close FD"}},
	{op: 10, before: []string{"put N x"}, call: "unlink N", want: "ok", after: []string{"ENOENT: stat N", "ok: put N y", "ok y: cat N"}},
	{op: 11, before: []string{"mkdir N 0700"}, call: "rmdir N", want: "ok", after: []string{"ENOENT: stat N", "ok: mkdir N 0700"}},
	{op: 12, before: []string{"put N x", "put N.to old"}, call: "rename N N.to", want: "ok", after: []string{"ENOENT: stat N", "ok x: cat N.to"}},
	{op: 13, before: []string{"put N x"}, call: "link N N.too", want: "ok", after: []string{"ok x: cat N.too", "EEXIST: link N N.too", "ok: unlink N", "ok x: cat N.too"}},
	{op: 6, call: "symlink where N", want: "ok", after: []string{"EEXIST: symlink where N"}},
	{op: 8, call: "mkfifo N 0600", want: "ok", after: []string{"EEXIST: mkfifo N 0600"}},
	{op: opWrite, before: []string{"open N rw,creat,append"}, call: "write FD 0 once", want: "ok", after: []string{"ok once: cat N", "ok: write FD 0 more", "ok oncemore: cat N"}},
	{op: opWrite, before: []string{"put N before", "open N rw"}, call: "write FD 2 XX", want: "ok", after: []string{"ok beXXre: read FD 0 9"}},
	{op: opSetAttr, before: []string{"put N before", "open N rw"}, call: "ftruncate FD 3", want: "ok", after: []string{"ok bef: read FD 0 9", "ok: write FD 3 fy", "ok beffy: cat N"}},
	{op: opOpen, before: []string{"put N before"}, call: "open N w,trunc", want: "ok FD", after: []string{"ok: write FD 0 x", "ok x: cat N"}},
	{op: opSetAttr, before: []string{"put N x"}, call: "chmod N 0640", want: "ok", after: []string{"ok mode=100640 uid=0 gid=0 size=1: stat N"}},
	{op: opFsync, before: []string{"open N rw,creat", "write FD 0 x"}, call: "fsync FD", want: "ok", after: []string{"ok: fsync FD"}},
	{op: 21, before: []string{"put N x"}, call: "setxattr N user.a b", want: "ok", after: []string{"ok b: getxattr N user.a"}},
	{op: 24, before: []string{"put N x", "setxattr N user.a b"}, call: "removexattr N user.a", want: "ok", after: []string{"ENODATA: getxattr N user.a"}},
	{op: opSetLkw, before: []string{"open N rw,creat"}, call: "flock FD ex", want: "ok", after: []string{"ok: open N rw", "EAGAIN: flock FD ex nb", "ok: close FD"}, points: []string{atTaken, atDone, atAnswered}},
	{op: opFlush, before: []string{"open N rw,creat", "lk FD set w 0 1"}, call: "close FD", want: "ok", after: []string{"ok: open N rw", "ok: lk FD set w 0 1"}, points: []string{atTaken, atDone, atAnswered}},
	{op: opRead, before: []string{"put N hello", "open N r"}, call: "read FD 0 5", want: "ok hello", points: []string{atTaken, atAnswered}},
	{op: opLookup, call: "stat N", want: "ENOENT", points: []string{atTaken, atDone}},
}

// A server that is killed at any point of a request is followed by one that answers it,
// and what it was to do is done once.
func TestKilledDuringRequests(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	killDuring(t, m, killedCases, 0)
}

// killDuring runs cases: all with each point, or in the short form with one of them.
func killDuring(t *testing.T, m *keptMount, cases []killedCase, turn int) {
	p := startProgram(t, m.dir, nil)
	for i, c := range cases {
		at := c.points
		if at == nil {
			at = points
		}
		if !tests.Tests() {
			// The points between which what was done is not known are the first to look at.
			at = []string{at[(turn+2+i%2)%len(at)]}
		}
		for _, where := range at {
			killAt(t, m, p, &c, fmt.Sprintf("n%d%s", i, where), where)
			if t.Failed() {
				return
			}
		}
	}
}

func killAt(t *testing.T, m *keptMount, p *testProgram, c *killedCase, name, where string) {
	t.Helper()
	fd := "-"
	fill := func(s string) string {
		words := strings.Fields(s)
		for i, w := range words {
			switch {
			case w == "N" || strings.HasPrefix(w, "N."):
				words[i] = name + w[1:]
			case w == "FD":
				words[i] = fd
			}
		}
		return strings.Join(words, " ")
	}
	take := func(s, got string) {
		if n, ok := strings.CutPrefix(got, "ok "); ok && strings.HasPrefix(s, "open ") {
			fd = n
		}
	}
	for _, s := range c.before {
		got := p.do("%s", fill(s))
		if take(s, got); got != "ok" && fd == "-" {
			t.Fatalf("%s: %s: %s", name, s, got)
		}
	}
	m.crashAt(Crash{Op: c.op, Where: where})
	p.tell("%s", fill(c.call))
	m.succeeded()
	got := m.answer(p)
	take(c.call, got)
	if want := fill(c.want); got != want {
		t.Errorf("%s at %s: %s: %s, want %s", name, where, c.call, got, want)
	}
	for _, s := range c.after {
		want, call, _ := strings.Cut(s, ": ")
		got := p.do("%s", fill(call))
		take(call, got)
		if want != got && !(want == "ok" && strings.HasPrefix(got, "ok ") && strings.HasPrefix(call, "open ")) {
			t.Errorf("%s at %s: after %s, %s: %s, want %s", name, where, c.call, call, got, want)
		}
	}
}

// A daemon without any right to files of others, or to its own by their mode, has the same.
func TestKilledWhileMakingWhatNobodyMayOpen(t *testing.T) {
	t.Parallel()
	m := mountKept(t, func(c *childConfig) { c.Powerless = true })
	var cases []killedCase
	for _, mode := range []string{"0", "0444", "0200"} {
		for _, c := range killedCases {
			if c.op == opCreate && strings.HasSuffix(c.call, " 0") {
				c.call = strings.TrimSuffix(c.call, "0") + mode
				c.after = []string{"ok: write FD 0 new", "ok new: read FD 0 9", "ok: close FD"}
				c.points = []string{atBegun, atCalled, atMade}
				cases = append(cases, c)
			}
		}
	}
	killDuring(t, m, cases, 2)
}

// What was made is not made again, whatever came after it: here another host writes to
// the file between two servers, under the lock that has left. What was only begun is not
// made again when the lock is lost.
func TestKilledIsNotRepeatedWhenTheLockHasLeft(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ where, want, content string }{
		{atMade, "ok", "other"},
		{atDone, "ok", "other"},
		{atBegun, "EIO", "other"},
		{atCalled, "EIO", "other"},
	} {
		if !tests.Tests() && (x.where == atDone || x.where == atBegun) {
			continue
		}
		m := mountKept(t)
		p := startProgram(t, m.dir, nil)
		p.want("ok", "put f hello")
		fd := p.open("f", "rw")
		m.crashAt(Crash{Op: opWrite, Where: x.where})
		p.tell("write %d 0 jelly", fd)
		m.killed()
		writeFile(t, m.backing("f"), "other")
		if x.want == "EIO" {
			m.conf.Kept.Expelled = true
		}
		must(t, m.goOn())
		if got := m.answer(p); got != x.want {
			t.Errorf("killed at %s: %s, want %s", x.where, got, x.want)
		}
		if b, err := os.ReadFile(m.backing("f")); err != nil || string(b) != x.content {
			t.Errorf("killed at %s: the file has %q, want %q (%v)", x.where, b, x.content, err)
		}
	}
}

// What programs have open, where they are, and what they wait for stays as it is, and so
// do the locks.
func TestKilledWithOpenFiles(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	o := startOpenFiles(t, m.testMount)
	p := o.p
	locked := p.open("locked", "rw,creat")
	p.want("ok", "lk %d set w 5 10", locked)
	p.want("ok", "lk %d set r 20 10", locked)
	q := startProgram(t, m.dir, nil)
	other := q.open("locked", "rw")
	dir, err := os.Open(m.dir)
	must(t, err)
	defer dir.Close()
	waits := q.open("waits", "rw,creat")
	rounds := 2
	if tests.Tests() {
		rounds = 6
	}
	for i := range rounds {
		m.remote("waits", locks.Flock, locks.Write)
		q.tell("flock %d ex", waits)
		q.sleeping()
		m.kill()
		must(t, m.goOn())
		o.goOn()
		if names, err := dir.Readdirnames(1); err != nil && i < 3 || len(names) > 1 {
			t.Errorf("the directory goes on with %v, %v", names, err)
		}
		ask[None](m.testMount, "DropAll", None{})
		if got := m.answer(q); got != "ok" {
			t.Errorf("flock: %s", got)
		}
		q.want("EAGAIN", "lk %d set w 0 100", other)
		q.want("ok", "lk %d set w 0 5", other)
		q.want("ok r 20 10 pid="+fmt.Sprint(p.cmd.Process.Pid), "lk %d get w 16 100", other)
		q.want("ok", "lk %d set u 0 5", other)
		q.want("ok", "flock %d un", waits)
	}
	o.close(locked)
	q.want("ok", "close %d", other)
	q.want("ok", "close %d", waits)
	dir.Close()
	await(t, "all is closed", func() bool {
		n := ask[Counts](m.testMount, "Counts", None{})
		return n.Handles == 0 && n.Dirs == 0
	})
	ask[int](m.testMount, "Unknown", None{})
	if n := m.holders("locked", locks.Posix) + m.holders("waits", locks.Flock); n > 0 {
		t.Errorf("%d locks are left of files that are closed", n)
	}
}

// What the kernel had of files while a server was killed is dropped once. The first lock that
// comes from another host concerns only what it was told since, however many are open.
func TestKilledIsDroppedOnce(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p := startProgram(t, m.dir, nil)
	const files = 20
	lock := p.open("lock", "rw,creat")
	p.want("ok", "flock %d ex", lock) // from now on it takes no open locks
	var fds []int
	for i := range files {
		fds = append(fds, p.open(fmt.Sprint("f", i), "rw,creat"))
		p.want("ok", "write %d 0 text", fds[i])
	}
	p.want("ok", "flock %d un", lock)
	m.kill()
	must(t, m.goOn())
	await(t, "all is dropped", func() bool { return ask[Counts](m.testMount, "Counts", None{}).Dropped })
	before := ask[Stats](m.testMount, "Stats", None{})
	if n := ask[Counts](m.testMount, "Counts", None{}); n.Unprotected < files || n.Known > 0 || before.Grown < files {
		t.Errorf("of %d files that are open without an open lock %d may be known; %d were made as long as they are", n.Unprotected, n.Known, before.Grown)
	}
	drop := m.remote("lock", locks.Flock, locks.Write)
	writeFile(t, m.backing("f7"), "longer text")
	drop()
	p.want("ok", "flock %d ex", lock)
	p.want("ok longer text", "read %d 0 100", fds[7])
	after := ask[Stats](m.testMount, "Stats", None{})
	if drops := after.PageDrops + after.AttrDrops - before.PageDrops - before.AttrDrops; after.Refreshes != before.Refreshes+1 || drops > 3 {
		t.Errorf("%d files were dropped by %d refreshes", drops, after.Refreshes-before.Refreshes)
	}
}

// What was written through an open file of a server that was killed is written out only where
// a client of the storage may keep it.
func TestKilledOwesWhatAClientKeeps(t *testing.T) {
	t.Parallel()
	for _, client := range []bool{false, true} {
		root := tempDir(t)
		if client {
			mountConfig(t, childConfig{Loopback: true, Root: tempDir(t), Mount: root})
		}
		m := mountKept(t, func(c *childConfig) { c.Root, c.FileIDs = root, FileIDInode })
		p := startProgram(t, m.dir, nil)
		p.want("ok", "write %d 0 text", p.open("f", "rw,creat"))
		p.open("f", "r")
		m.kill()
		must(t, m.goOn())
		n, want := ask[Counts](m.testMount, "Counts", None{}), 0
		if client {
			want = 1
		}
		if n.Unsynced != want || n.Handles != 2 || n.Storage.ClientCache != client {
			t.Errorf("a client caches %v: of %d open files %d are owed a sync, want %d", n.Storage.ClientCache, n.Handles, n.Unsynced, want)
		}
		p.kill()
	}
}

// An open file that was written down, and of which nobody was told, is not there twice.
func TestKilledBeforeAnOpenFileIsAnswered(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	for _, x := range []struct {
		op   uint32
		call string
	}{{opOpen, "open f rw"}, {opCreate, "open g rw,creat,excl"}} {
		m.crashAt(Crash{Op: x.op, Where: atOpened})
		p.tell("%s", x.call)
		m.succeeded()
		fd, ok := strings.CutPrefix(m.answer(p), "ok ")
		if !ok {
			t.Fatalf("%s: %s", x.call, fd)
		}
		if n := ask[int](m.testMount, "OpenHandles", None{}); n != 1 {
			t.Errorf("%s: %d open files", x.call, n)
		}
		p.want("ok", "write %s 0 x", fd)
		p.want("ok", "close %s", fd)
		await(t, "it is closed", func() bool { return ask[int](m.testMount, "OpenHandles", None{}) == 0 })
	}
}

// What could not be written out is told, once, by whichever server there is then.
func TestKilledBeforeAFailureIsTold(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw,creat")
	p.want("ok", "write %d 0 x", fd)
	at := []string{"", atTaken, atBegun, atCalled, atMade, atDone, atAnswered}
	if !tests.Tests() {
		at = []string{"", atCalled, atDone}
	}
	for _, where := range at {
		ask[None](m.testMount, "Fail", m.key("f", locks.Open))
		if where == "" {
			m.kill()
			must(t, m.goOn())
			p.want("ENOSPC", "fsync %d", fd)
		} else {
			m.crashAt(Crash{Op: opFsync, Where: where})
			p.tell("fsync %d", fd)
			m.succeeded()
			if got := m.answer(p); got != "ENOSPC" {
				t.Errorf("fsync, killed at %q: %s", where, got)
			}
		}
		p.want("ok", "fsync %d", fd)
		m.kill()
		must(t, m.goOn())
		p.want("ok", "fsync %d", fd)
	}
}

// A server that was killed while it was in a notification cannot end before the next one
// answers what keeps the page locked.
func TestKilledInANotification(t *testing.T) {
	t.Parallel()
	m := mountKept(t, func(c *childConfig) { c.HoldAnswers = opRead })
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	fd := p.open("f", "rw")
	ask[None](m.testMount, "HoldAttr", 1)
	p.tell("read %d 0 5", fd)
	await(t, "the answer to the READ is held back", func() bool { return ask[int](m.testMount, "Held", None{}) == 1 })
	m.Go("Child.Refresh", m.key("f", locks.Open), &None{}, nil)
	await(t, "a thread is in a notification", func() bool {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", m.next.PID))
		return slices.ContainsFunc(tasks, func(e os.DirEntry) bool {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", m.next.PID, e.Name()))
			return strings.Contains(string(stat), ") D ")
		})
	})
	old := m.testMount
	m.kill()
	select {
	case <-old.exited:
		t.Fatal("it has ended: the notification did not wait")
	default:
	}
	must(t, m.goOn())
	if got := m.answer(p); got != "ok hello" {
		t.Errorf("read: %s", got)
	}
	select {
	case err := <-old.exited:
		old.exited <- err
	case <-time.After(20 * time.Second):
		t.Error("the old server does not end")
	}
}

// What a server that is killed has in its memory of requests is there as long as it is
// needed: with more requests at a time than there are slots it is of no use, and
// afterwards it is again.
func TestMoreRequestsThanSlots(t *testing.T) {
	t.Parallel()
	m, err := NewRequests(7)
	must(t, err)
	defer m.Close()
	m.areas[largeArea].most, m.areas[smallArea].most = 2, 16
	f := handlersOnly(t)
	c := newConnOf(f, f.mountOptions())
	c.requests = m
	check := func(want bool) {
		t.Helper()
		fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		r, err := OpenRequests(fd, 7)
		if (err == nil) != want {
			t.Errorf("%v", err)
		}
		if err != nil {
			unix.Close(fd)
			return
		}
		left, _, err := r.leftOf(func(fd int) int { return fd })
		if err != nil {
			t.Error(err)
		}
		if len(left) > 0 {
			t.Errorf("%d requests are left", len(left))
		}
		r.Close()
	}
	r := new(reader)
	var ps []place
	for range 3 {
		ps = append(ps, newPlace(c, r))
	}
	check(false)
	for i := range ps {
		ps[i].leave(c, r)
	}
	check(true)
	ps = nil
	for range 40 { // small ones stay where they are when there is no small slot
		p := newPlace(c, r)
		in := p.in[:headSize]
		head(in).Length, head(in).Opcode, head(in).Unique = uint32(headSize), opGetAttr, uint64(2+2*len(ps))
		p.settle(c, r, in)
		ps = append(ps, p)
	}
	if m.h.elsewhere.Load() != 40-16-2 {
		t.Errorf("%d are elsewhere", m.h.elsewhere.Load())
	}
	for i := range ps {
		ps[i].leave(c, r)
	}
	check(true)
}
