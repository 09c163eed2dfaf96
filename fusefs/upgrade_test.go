package fusefs

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// openFiles is a program that has files open, one of them unlinked and one for
// appending, and another one in a directory.
type openFiles struct {
	p, in         *testProgram
	rw, gone, app int
	written       int // what was appended
}

func startOpenFiles(t *testing.T, m *testMount) *openFiles {
	t.Helper()
	o := &openFiles{p: startProgram(t, m.dir, nil)}
	p := o.p
	p.want("ok", "put f hello")
	o.rw = p.open("f", "rw")
	p.want("ok", "put gone unlinked")
	o.gone = p.open("gone", "rw")
	p.want("ok", "unlink gone")
	p.want("ok", "mkdir d 0700")
	o.in = startProgram(t, m.path("d"), nil)
	o.app = p.open("log", "w,creat,append")
	p.want("ok", "write %d 0 one", o.app)
	return o
}

// goOn uses all of them, after another process has taken over the mount.
func (o *openFiles) goOn() {
	o.p.t.Helper()
	p := o.p
	p.want("ok hello", "read %d 0 5", o.rw)
	p.want("ok unlinked", "read %d 0 8", o.gone)
	p.want("ok", "write %d 0 jelly", o.rw)
	p.want("ok jelly", "cat f")
	p.want("ok", "write %d 0 hello", o.rw)
	o.in.want("ok", "put x%d here", o.written)
	o.in.want("ok here", "cat x%d", o.written)
	p.want("ok", "write %d 0 more", o.app)
	o.written++
}

// close closes them, and others, when all that was appended is there once.
func (o *openFiles) close(others ...int) {
	o.p.t.Helper()
	o.p.want("ok one"+strings.Repeat("more", o.written), "cat log")
	for _, fd := range append([]int{o.rw, o.gone, o.app}, others...) {
		o.p.want("ok", "close %d", fd)
	}
}

// What programs have open, and where they are, stays as it is.
func TestUpgradeOpenFiles(t *testing.T) {
	t.Parallel()
	m := mount(t)
	o := startOpenFiles(t, m)
	for range 3 {
		m.mustUpgrade()
		o.goOn()
	}
	o.close()
	await(t, "all is closed", func() bool { return ask[Counts](m, "Counts", None{}).Handles == 0 })
}

// A pause that is ended leaves nothing behind.
func TestPauseAndUnpause(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	for range 20 {
		ask[None](m, "Pause", 10*time.Second)
		p.tell("cat f")
		p.sleeping()
		ask[None](m, "Unpause", None{})
		if got := p.answer(); got != "ok hello" {
			t.Fatal(got)
		}
	}
	if _, err := os.Stat(m.path("f")); err != nil {
		t.Fatal(err)
	}
}

// Over a client with caches a lock that comes opens files anew, and one that goes
// writes them out: the mount does not come to rest meanwhile.
func TestPauseWaitsForWhatTheLockEngineAsksFor(t *testing.T) {
	t.Parallel()
	m := mount(t, func(c *childConfig) { c.Caching = true })
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw,creat")
	k := m.key("f", locks.Flock)
	for _, call := range []string{"Refresh", "Flush", "FlushAll"} {
		p.want("ok", "write %d 0 hello", fd)
		ask[None](m, "HoldOpen", true)
		done := m.Go("Child."+call, k, &None{}, nil)
		await(t, call+" has begun", func() bool { return ask[Counts](m, "Counts", None{}).Telling == 1 })
		err := m.Call("Child.Pause", 10*time.Millisecond, &None{})
		if err == nil || !strings.Contains(err.Error(), "looked at anew for a lock") {
			t.Errorf("paused during %s: %v", call, err)
		}
		ask[None](m, "HoldOpen", false)
		if <-done.Done; done.Error != nil {
			t.Errorf("%s: %v", call, done.Error)
		}
		ask[None](m, "Pause", 10*time.Second)
		done = m.Go("Child."+call, k, &None{}, nil)
		ask[None](m, "Unpause", None{})
		if <-done.Done; done.Error != nil {
			t.Errorf("%s of a paused mount: %v", call, done.Error)
		}
	}
	m.mustUpgrade()
	p.want("ok hello", "read %d 0 5", fd)
}

// The client may have listings that it had before this process.
func TestListingsOfBeforeMayBeKept(t *testing.T) {
	l := listings{all: 5000}
	for _, x := range []struct {
		now  int64
		want bool
	}{{1, true}, {5000, true}, {5001, true}, {5001 + keptNames.Milliseconds() + 1, false}} {
		if got := l.mayBeKept("d", x.now); got != x.want {
			t.Errorf("at %d: %v", x.now, got)
		}
	}
	if l.mayBeKept("e", 5001) {
		t.Error("one that was not listed since")
	}
}

// Who waits for another host goes on waiting, and is answered when that lets go.
func TestUpgradeWhileProgramsWait(t *testing.T) {
	t.Parallel()
	m := mount(t)
	if err := os.WriteFile(m.backing("f"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		class   locks.Class
		prepare string // answers with a descriptor
		call    string
		want    string
	}{
		{"flock", locks.Flock, "open f rw", "flock %d ex", "ok"},
		{"fcntl", locks.Posix, "open f rw", "lk %d setw w 0 10", "ok"},
		{"ofd", locks.Posix, "open f rw", "lk %d ofdsetw w 0 10", "ok"},
		{"open", locks.Open, "", "cat f", "ok hello"},
		{"open to write", locks.Open, "", "put f hello", "ok"},
		{"truncate", locks.Open, "", "truncate f 5", "ok"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startProgram(t, m.dir, nil)
			call, fd := tt.call, 0
			if tt.prepare != "" {
				fd = p.open("f", "rw")
				call = fmt.Sprintf(tt.call, fd)
			}
			drop := m.remote("f", tt.class, locks.Write)
			p.tell("%s", call)
			p.sleeping()
			for range 2 {
				m.mustUpgrade()
				p.sleeping()
			}
			drop()
			if got := p.answer(); got != tt.want {
				t.Errorf("%s: %s", call, got)
			}
			if tt.prepare != "" {
				if n := m.holders("f", tt.class); n != 1 {
					t.Errorf("%d locks are held", n)
				}
				p.want("ok", "close %d", fd)
			}
			await(t, "nothing is locked", func() bool { return m.holders("f", tt.class) == 0 })
		})
	}
	if got := ask[Counts](m, "Counts", None{}); got.Handles != 0 || got.Parked != 0 {
		t.Errorf("left over: %+v", got)
	}
}

// A signal ends the wait of a program whose request was handed over, whether it
// came before or after.
func TestUpgradeInterrupted(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	fd := p.open("f", "rw")
	drop := m.remote("f", locks.Flock, locks.Write)
	p.tell("flock %d ex", fd)
	p.sleeping()
	m.mustUpgrade()
	p.sleeping()
	p.kill()
	drop()
	await(t, "nothing is locked", func() bool { return m.holders("f", locks.Flock) == 0 })
	await(t, "all is closed", func() bool { return ask[Counts](m, "Counts", None{}).Handles == 0 })
}

// I/O that waits for the open lock of its file goes on when that is had.
func TestUpgradeWhileReadWaits(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	fd := p.open("f", "rw")
	drop := m.remote("f", locks.Open, locks.Write) // it is idle, so it gives way
	p.tell("read %d 0 5", fd)
	p.sleeping()
	m.mustUpgrade()
	p.sleeping()
	drop()
	if got := p.answer(); got != "ok hello" {
		t.Error(got)
	}
	drop = m.remote("f", locks.Open, locks.Write)
	p.tell("write %d 0 jelly", fd)
	p.sleeping()
	m.mustUpgrade()
	p.sleeping()
	drop()
	if got := p.answer(); got != "ok" {
		t.Error(got)
	}
	if b, _ := os.ReadFile(m.backing("f")); string(b) != "jelly" {
		t.Errorf("%q", b)
	}
}

// A directory that was read in part is read to its end, each name once.
func TestUpgradeReadingDirectory(t *testing.T) {
	t.Parallel()
	m := mount(t)
	const files = 3000
	for i := range files {
		if err := os.WriteFile(m.backing(fmt.Sprintf("a-name-that-is-not-quite-short-%04d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := os.Open(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	seen := make(map[string]int)
	for i := 0; ; i++ {
		names, err := d.Readdirnames(100)
		for _, n := range names {
			seen[n]++
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%8 == 1 {
			m.mustUpgrade()
		}
	}
	if len(seen) != files {
		t.Errorf("%d names", len(seen))
	}
	for n, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", n, times)
		}
	}
}

// What is mapped can be read and changed on.
func TestUpgradeMappedFile(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f %s", strings.Repeat("a", 9000))
	fd := p.open("f", "rw")
	p.want("ok", "map %d 9000", fd)
	p.want("ok", "poke 0 before")
	m.mustUpgrade()
	p.want("ok before", "peek 0 6")
	p.want("ok aaaa", "peek 8000 4")
	p.want("ok", "poke 4096 after")
	m.mustUpgrade()
	p.want("ok", "poke 8995 later")
	p.want("ok", "unmap")
	p.want("ok", "fsync %d", fd)
	p.want("ok", "close %d", fd)
	b, err := os.ReadFile(m.backing("f"))
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); s[:6] != "before" || s[4096:4101] != "after" || s[8995:] != "later" || len(s) != 9000 {
		t.Errorf("%q …", s[:10])
	}
}

// Locks that were granted before are held after, and given up as ever.
func TestUpgradeHeldLocks(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	a, b := p.open("f", "rw"), q.open("f", "rw")
	p.want("ok", "flock %d ex", a)
	p.want("ok", "lk %d set w 0 10", a)
	m.mustUpgrade()
	q.want("EAGAIN", "flock %d ex nb", b)
	q.want("EAGAIN", "lk %d set w 5 10", b)
	q.want(fmt.Sprintf("ok w 0 10 pid=%d", p.cmd.Process.Pid), "lk %d get w 5 10", b)
	q.tell("flock %d ex", b)
	q.sleeping()
	m.mustUpgrade()
	q.sleeping()
	p.want("ok", "flock %d un", a)
	if got := q.answer(); got != "ok" {
		t.Fatal(got)
	}
	dup := p.do("dup %d", a)
	p.want("ok", "close %s", strings.TrimPrefix(dup, "ok ")) // ends the POSIX locks of p
	q.want("ok", "lk %d set w 5 10", b)
	q.end()
	m.mustUpgrade()
	await(t, "nothing is locked", func() bool { return m.holders("f", locks.Flock)+m.holders("f", locks.Posix) == 0 })
	p.want("ok hello", "read %d 0 5", a)
}

// What sizes the kernel believes files to have is known as before: else each READ at
// the end of a file would be made twice, for ever.
func TestUpgradeKeepsWhatSizesTheKernelBelieves(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	fd := p.open("f", "rw")
	p.want("ok hello", "read %d 0 100", fd)
	k := m.key("f", locks.Open)
	ask[None](m, "Reread", k)
	before := ask[[5]int64](m, "Bounds", k)
	m.mustUpgrade()
	if after := ask[[5]int64](m, "Bounds", k); after != before || after[0] > 5 || after[1] < 5 || after[2] == 0 || after[3] == 0 || after[4] != 5 {
		t.Errorf("%v, and %v before", after, before)
	}
	p.want("ok hello", "read %d 0 100", fd)
}

// Who has lost a lock is not given it back by an upgrade.
func TestUpgradeLostLock(t *testing.T) {
	t.Parallel()
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	fd, other := p.open("f", "rw"), p.open("g", "rw,creat")
	p.want("ok", "flock %d ex", fd)
	ask[None](m, "Expel", true)
	p.want("EIO", "write %d 0 x", fd)
	m.mustUpgrade()
	p.want("EIO", "read %d 0 1", fd)
	p.want("EIO", "write %d 0 x", fd)
	p.want("EIO", "write %d 0 x", other) // the process has lost a lock
	p.want("ok", "close %d", fd)
	p.want("EIO", "write %d 0 x", other) // it was under lock, too, by its process
	p.want("ok", "close %d", other)
	p.want("ok", "put f again")
}
