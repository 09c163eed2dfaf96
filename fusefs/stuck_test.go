package fusefs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// stuckAtMost is much longer than it takes until who stands behind a request
// that waits goes on, and much shorter than for ever.
const stuckAtMost = 30 * time.Second

// soon waits for the answer of a call that another host must not keep from ending.
func (p *testProgram) soon(call string) string {
	p.t.Helper()
	done := make(chan string, 1)
	go func() { done <- p.answer() }()
	select {
	case got := <-done:
		return got
	case <-time.After(stuckAtMost):
		pid := p.cmd.Process.Pid
		stack, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stack", pid))
		p.t.Fatalf("%s hangs:\n%s", call, stack)
		return ""
	}
}

// waitingCalls make a call on f that waits for another host's open lock, with
// the lock of the inode.
var waitingCalls = []struct {
	call  string
	again bool // the kernel makes it once more
}{
	{"truncate f 5", true},
	{"ftruncate %d 5", false},
	{"write %d 0 b", false},
	{"fallocate %d 10000", false},
}

// Whoever removes a file, and so on, does not stand for long behind a program of
// this host that waits for another host.
func TestNobodyStandsBehindAWait(t *testing.T) {
	for _, w := range waitingCalls {
		calls := []string{"unlink f", "rename g f", "rename f h", "chmod f 0600", "close 3"}
		if strings.HasPrefix(w.call, "f") {
			calls = calls[:1]
		}
		for _, call := range calls {
			t.Run(w.call+"/"+call, func(t *testing.T) {
				t.Parallel()
				m, p, other, drop := waitsForOther(t, w.call)
				defer drop()
				if call == "close 3" {
					call = fmt.Sprintf("close %d", other.fd)
				}
				other.tell("%s", call)
				if got := other.soon(call); got != "ok" {
					t.Errorf("%s: %s", call, got)
				}
				third := startProgram(t, m.dir, nil)
				third.tell("ls .")
				if got := third.soon("ls"); !strings.HasPrefix(got, "ok") {
					t.Errorf("ls: %s", got)
				}
				if !w.again && !strings.HasPrefix(call, "close") { // for which not all kernels need the lock
					if got := p.soon(w.call); got != "EINTR" {
						t.Errorf("%s after %s: %s", w.call, call, got)
					}
					return
				}
				drop()
				if got := p.soon(w.call); got != "ok" && got != "ENOENT" && w.again {
					t.Errorf("%s after %s: %s", w.call, call, got)
				}
			})
		}
	}
}

// Where nobody stands behind it, a call waits as long as it has to. Who wants to
// write the file as well is no reason to give up.
func TestAWaitGoesOnWhileNobodyStandsBehindIt(t *testing.T) {
	m, p, other, drop := waitsForOther(t, "write %d 0 b")
	other.tell("write %d 1 c", other.fd)
	await(t, "the other one stands behind it", func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", other.cmd.Process.Pid))
		return statusWord(status, "State:") == "D"
	})
	from := ask[Counts](m, "Counts", None{}).Looks
	await(t, "it was looked at", func() bool { return ask[Counts](m, "Counts", None{}).Looks > from+5*holdLooks })
	drop()
	for _, p := range []*testProgram{p, other.testProgram} {
		if got := p.answer(); got != "ok" {
			t.Error(got)
		}
	}
}

// fileUser is a program that has the file open.
type fileUser struct {
	*testProgram
	fd int
}

// waitsForOther has a program make a call that waits, because another host has
// the open lock, which its handle has given way to. The other program has the
// file open, too, and locks for itself.
func waitsForOther(t *testing.T, call string) (m *testMount, p *testProgram, other fileUser, drop func()) {
	m = mount(t, func(c *childConfig) {
		c.Rule, c.Hold = &Rule{Open: true, Yield: time.Millisecond}, 200*time.Millisecond
	})
	must(t, os.WriteFile(m.backing("f"), []byte("content"), 0o644))
	must(t, os.WriteFile(m.backing("g"), nil, 0o644))
	other.testProgram = startProgram(t, m.dir, nil)
	other.fd = other.open("f", "rw")
	other.want("ok", "flock %d ex", other.fd)
	other.want("ok", "flock %d un", other.fd)
	p = startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "write %d 0 a", fd)
	drop = sync.OnceFunc(m.remote("f", locks.Open, locks.Write))
	if strings.Contains(call, "%d") {
		call = fmt.Sprintf(call, fd)
	}
	p.tell("%s", call)
	await(t, "the program waits", func() bool { return ask[Counts](m, "Counts", None{}).Parked > 0 })
	return m, p, other, drop
}

// What other hosts have changed is seen by who only looks, or locks for itself,
// while programs of this host wait with pages of the file locked. It keeps nobody
// waiting who cannot be interrupted.
func TestNobodyWaitsForLockedPages(t *testing.T) {
	const size = 16 << 20
	for _, call := range []string{"open f rw", "stat f", "unlink f", "read %d 0 3", "flock %d ex"} {
		for _, waits := range []string{"peek 100000 1", "write"} {
			for _, change := range []string{"mtime", "size"} {
				if strings.HasPrefix(call, "read") && change == "size" {
					continue // which waits, but can be interrupted
				}
				t.Run(waits+"/"+change+"/"+call, func(t *testing.T) {
					t.Parallel()
					m, p, other, drop := waitsWithPages(t, waits, size)
					defer drop()
					if change == "size" {
						must(t, os.Truncate(m.backing("f"), size+10))
					} else {
						sameLook(t, m.backing("f"), "new")
					}
					if strings.Contains(call, "%d") {
						call = fmt.Sprintf(call, other.fd)
					}
					if call == fmt.Sprintf("flock %d ex", other.fd) {
						m.remote("f", locks.Flock, locks.Write)() // so that pages are dropped
					}
					other.tell("%s", call)
					got := other.soon(call)
					if !strings.HasPrefix(got, "ok") {
						t.Errorf("%s: %s", call, got)
					}
					if call == "stat f" && change == "size" && !strings.HasSuffix(got, fmt.Sprint("size=", size+10)) {
						t.Error(got)
					}
					if call == fmt.Sprintf("read %d 0 3", other.fd) && change == "mtime" && got != "ok new" {
						t.Error(got)
					}
					_ = p
				})
			}
		}
	}
}

func waitsWithPages(t *testing.T, call string, size int) (m *testMount, p *testProgram, other fileUser, drop func()) {
	m = mount(t, func(c *childConfig) {
		c.Rule, c.Hold = &Rule{Open: true, Yield: time.Millisecond}, 200*time.Millisecond
	})
	must(t, os.WriteFile(m.backing("f"), []byte("old"), 0o644))
	must(t, os.WriteFile(m.backing("g"), nil, 0o644))
	must(t, os.Truncate(m.backing("f"), int64(size)))
	other.testProgram = startProgram(t, m.dir, nil)
	other.fd = other.open("f", "rw")
	other.want("ok", "flock %d sh", other.fd)
	other.want("ok", "flock %d un", other.fd)
	p = startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "map %d %d", fd, size)
	drop = sync.OnceFunc(m.remote("f", locks.Open, locks.Write))
	other.want("ok old", "read %d 0 3", other.fd)
	if call == "write" {
		call = fmt.Sprintf("write %d 100000 b", fd)
	}
	p.tell("%s", call)
	await(t, "the program waits", func() bool { return ask[Counts](m, "Counts", None{}).Parked > 0 })
	return m, p, other, drop
}

// Whoever was told a name just before a request began to wait may stand behind it.
func TestLookers(t *testing.T) {
	var l lookers
	seen := func(from int64) []uint32 { return slices.Sorted(l.since(from)) }
	if got := seen(-1000); len(got) > 0 {
		t.Errorf("nobody: %v", got)
	}
	for tid := range uint32(10) { // of which 0 cannot be seen
		l.add(tid, 100+int64(tid))
		l.add(tid, 100+int64(tid))
	}
	for _, tt := range []struct {
		from int64
		want []uint32
	}{{-500, []uint32{2, 3, 4, 5, 6, 7, 8, 9}}, {108, []uint32{8, 9}}, {110, nil}} {
		if got := seen(tt.from); !slices.Equal(got, tt.want) {
			t.Errorf("since %d: %v, want %v", tt.from, got, tt.want)
		}
	}
	l = lookers{}
	l.add(1, 1<<32+5) // the clock of the ring goes round after 49 days
	if got := seen(1<<32 - 100); !slices.Equal(got, []uint32{1}) {
		t.Errorf("%v", got)
	}
}

// A thread that the daemon cannot see, since it runs in a container, counts as one
// that stands behind a request; once.
func TestWhoCannotBeSeenStandsBehindAWait(t *testing.T) {
	f := handlersOnly(t, func(o *Options) { o.Locker, o.Hold = newFakeLocker(), 80*time.Millisecond })
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", nil, 0o644))
	h := f.openForTest(t, "f", os.O_RDWR)
	parks := func() (letsGo <-chan struct{}, unpark func()) {
		return f.waits.park(h.n, &parkedRequest{kind: parkedPages, holds: true})
	}
	letsGo, unpark := parks()
	f.waits.looksUp(h.n, 0)
	<-letsGo
	again, unparkAgain := parks()
	unpark()
	from := f.waits.looks.Load()
	await(t, "it is looked again", func() bool { return f.waits.looks.Load() > from+2*holdLooks })
	if closed(again) {
		t.Error("it gives up once more")
	}
	// stat(2), which looks up and then asks for the attributes, goes on; but that
	// may have been another thread.
	from = f.waits.looks.Load()
	f.waits.looksUp(h.n, 0)
	f.answerGetAttr(t, h.n.id)
	<-again
	if n := f.waits.looks.Load() - from; n < doubtLooks {
		t.Errorf("it gives up after %d looks", n)
	}
	unparkAgain()
}

// answerGetAttr has a GETATTR answered, of a thread that the daemon cannot see.
func (f *fileSystem) answerGetAttr(t *testing.T, node uint64) {
	t.Helper()
	in := fuse.GetAttrIn{InHeader: header(node)}
	in.Pid = 0
	if st := f.GetAttr(nil, &in, new(fuse.AttrOut)); !st.Ok() {
		t.Fatal(st)
	}
}

// Open locks are between processes, and another process of this host waits for that
// of one that truncates, with pages of the file locked.
func TestATruncationDoesNotWaitForThoseWhoWaitForIt(t *testing.T) {
	f := handlersOnly(t, func(o *Options) {
		o.Locker = newFakeLocker()
		o.Rule = func(string) Rule { return Rule{Open: true, PerProcess: true, Yield: time.Second} }
	})
	name := f.opts.Root.Name() + "/f"
	for how, truncate := range map[string]func() fuse.Status{
		"truncate": func() fuse.Status {
			in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: header(f.lookupForTest(t, "f")), Valid: fuse.FATTR_SIZE}}
			return f.SetAttr(nil, &in, new(fuse.AttrOut))
		},
		"open": func() fuse.Status {
			in := fuse.OpenIn{InHeader: header(f.lookupForTest(t, "f")), Flags: unix.O_WRONLY | unix.O_TRUNC}
			var out fuse.OpenOut
			st := f.Open(nil, &in, &out)
			if st.Ok() {
				f.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
			}
			return st
		},
	} {
		must(t, os.WriteFile(name, []byte("content"), 0o644))
		n := f.tree.get(f.lookupForTest(t, "f"))
		_, unpark := f.waits.park(n, &parkedRequest{kind: parkedPages, end: pageSize})
		done := make(chan fuse.Status, 1)
		go func() { done <- truncate() }()
		select {
		case st := <-done:
			if st != fuse.OK {
				t.Errorf("%s: %v", how, st)
			}
			unpark()
		case <-time.After(stuckAtMost):
			t.Errorf("%s waits", how)
			unpark()
			<-done
		}
		if got := readFile(t, name); got != "" {
			t.Errorf("%s: %q", how, got)
		}
	}
}

// Whoever stands behind a request that has given up for him, since the program has
// made its call once more and was faster, does not wait as long again.
func TestWhoIsOvertakenIsFreedSoon(t *testing.T) {
	var s stand
	looks := func(n int, switches string, waits bool) (needed int) {
		for i := range n {
			s.seen(switches, waits)
			if s.stands() {
				return i + 1
			}
		}
		return 0
	}
	if n := looks(holdLooks, "5", true); n != holdStands {
		t.Errorf("he is freed after %d looks", n)
	}
	s.freed = true
	if n := looks(holdLooks, "6", true); n != 1 {
		t.Errorf("when he was overtaken he is freed after %d looks more", n)
	}
	s.freed = true
	s.seen("8", false) // he has gone on
	if n := looks(holdLooks, "9", true); n != holdStands {
		t.Errorf("elsewhere he is freed after %d looks", n)
	}
	s = stand{}
	for i := range 2 * holdLooks { // he gets something done
		if s.seen(fmt.Sprint(i), true); s.stands() {
			t.Fatal("he is taken to stand")
		}
	}
}

// Those who stand behind a request that gives up are known still when its program
// makes the call once more, however late.
func TestWhoStandsIsNotForgottenAtOnce(t *testing.T) {
	f := handlersOnly(t, func(o *Options) { o.Locker, o.Hold = newFakeLocker(), 80*time.Millisecond })
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", nil, 0o644))
	h := f.openForTest(t, "f", os.O_RDWR)
	parks := func() (letsGo <-chan struct{}, unpark func()) {
		return f.waits.park(h.n, &parkedRequest{kind: parkedPages, holds: true})
	}
	tid := uint32(unix.Gettid())
	known := func() bool {
		h.n.cacheMu.Lock()
		defer h.n.cacheMu.Unlock()
		return h.n.onlookers[tid] != nil
	}
	_, unpark := parks()
	f.waits.looksUp(h.n, tid)
	// Between two looks nobody may wait.
	from := f.waits.looks.Load()
	unpark()
	await(t, "he is forgotten when no call comes", func() bool { return !known() })
	if f.waits.looks.Load() == from {
		t.Error("he is forgotten without another look")
	}
	// Who was told the name before the next call is known at once.
	f.waits.looksUp(h.n, tid)
	_, unpark = parks()
	if !known() {
		t.Error("who was told the name is not known")
	}
	unpark()
}
