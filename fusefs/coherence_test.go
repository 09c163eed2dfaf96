package fusefs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// sameLook changes a file of the storage so that its size does not tell.
func sameLook(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// The kernel keeps attributes and pages for as long as the test takes, and is
// told by the grants of locks alone.
func TestDataIsHandedOverWithTheLock(t *testing.T) {
	for _, c := range []struct {
		name, lock, unlock string
		class              locks.Class
	}{
		{"flock", "flock %d ex", "flock %d un", locks.Flock},
		{"fcntl", "lk %d setw w 0 1", "lk %d set u 0 1", locks.Posix},
		{"OFD", "lk %d ofdsetw w 0 1", "lk %d ofdset u 0 1", locks.Posix},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mount(t, longTTL)
			writeFile(t, m.backing("f"), "first ..")
			p := startProgram(t, m.dir, nil)
			fd := p.open("f", "rw")
			p.want("ok", c.lock, fd)
			p.want("ok first ..", "read %d 0 100", fd)
			p.want("ok", "map %d 8", fd)
			p.want("ok first ..", "peek 0 8")
			p.want("ok", c.unlock, fd)

			drop := m.remote("f", c.class, locks.Write)
			sameLook(t, m.backing("f"), "second..")
			drop()
			p.want("ok", c.lock, fd)
			p.want("ok second..", "read %d 0 100", fd)
			p.want("ok second..", "peek 0 8")
			p.want("ok", "poke 0 mapped..")
			p.want("ok", c.unlock, fd)

			drop = m.remote("f", c.class, locks.Write)
			if got := readFile(t, m.backing("f")); got != "mapped.." {
				t.Errorf("the other host finds %q", got)
			}
			writeFile(t, m.backing("f"), "third, and it is longer")
			drop()
			p.want("ok", c.lock, fd)
			p.want("ok mode=100644 uid=0 gid=0 size=23", "fstat %d", fd)
			p.want("ok third, and it is longer", "read %d 0 100", fd)
			p.want("ok third, a", "peek 0 8")
		})
	}
}

// A lock on one file protects others that are kept open.
func TestALockFileHandsOverOtherFiles(t *testing.T) {
	m := mount(t, longTTL)
	for _, n := range []string{"lock", "data", "mapped", "renamed"} {
		writeFile(t, m.backing(n), n+"-1")
	}
	p := startProgram(t, m.dir, nil)
	lock, data, mapped := p.open("lock", "rw"), p.open("data", "rw"), p.open("mapped", "rw")
	p.want("ok", "flock %d ex", lock)
	p.want("ok data-1", "read %d 0 100", data)
	p.want("ok", "map %d 8", mapped)
	p.want("ok mapped-1", "peek 0 8")
	p.want("ok renamed-1", "cat renamed")
	p.want("ok mode=100644 uid=0 gid=0 size=9", "stat renamed")
	p.want("ok", "poke 0 MAPPED")
	p.want("ok", "write %d 0 DATA", data)
	p.want("ok", "flock %d un", lock)

	drop := m.remote("lock", locks.Flock, locks.Write)
	if got := readFile(t, m.backing("mapped")) + readFile(t, m.backing("data")); got != "MAPPED-1DATA-1" {
		t.Errorf("the other host finds %q", got)
	}
	writeFile(t, m.backing("data"), "data-2, longer")
	sameLook(t, m.backing("mapped"), "mapped-2")
	must(t, os.Remove(m.backing("renamed")))
	writeFile(t, m.backing("made"), "")
	must(t, os.Mkdir(m.backing("renamed"), 0o700))
	drop()
	p.want("ok", "flock %d ex", lock)
	p.want("ok data-2, longer", "read %d 0 100", data)
	p.want("ok mapped-2", "peek 0 8")
	if got := p.do("stat renamed"); !strings.HasPrefix(got, "ok mode=40700") {
		t.Errorf("stat: %s", got)
	}
}

func TestNamesAndAttributesAreHandedOver(t *testing.T) {
	for _, expire := range []bool{true, false} { // false: as on an old kernel
		m := mount(t, longTTL, func(c *childConfig) { c.NoExpire = !expire })
		writeFile(t, m.backing("lock"), "")
		for i := range 700 { // more than are remembered one by one
			writeFile(t, m.backing(fmt.Sprint("n", i)), "")
		}
		p := startProgram(t, m.dir, nil)
		lock := p.open("lock", "r")
		p.want("ok", "flock %d ex", lock)
		for i := range 10 {
			p.do("stat n%d", i)
		}
		p.want("ok", "flock %d un", lock)
		drop := m.remote("lock", locks.Flock, locks.Write)
		must(t, os.Rename(m.backing("n1"), m.backing("n2")))
		must(t, os.Chmod(m.backing("n3"), 0o600))
		must(t, os.Truncate(m.backing("n4"), 44))
		if expire {
			p.want("ok mode=100644 uid=0 gid=0 size=0", "stat n1") // late, as it should be without a lock
		}
		drop()
		p.want("ok", "flock %d ex", lock)
		p.want("ENOENT", "stat n1")
		p.want("ok mode=100600 uid=0 gid=0 size=0", "stat n3")
		p.want("ok mode=100644 uid=0 gid=0 size=44", "stat n4")
	}
}

// More names were told than are remembered: the grant waits for them to expire.
func TestManyNamesAreHandedOver(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.TTL = 300 * time.Millisecond })
	writeFile(t, m.backing("lock"), "")
	many := tests.Or(1000, 2000)
	for i := range many {
		writeFile(t, m.backing(fmt.Sprint("n", i)), "")
	}
	p := startProgram(t, m.dir, nil)
	lock := p.open("lock", "r")
	p.want("ok", "flock %d ex", lock)
	p.want("ok", "flock %d un", lock)
	drop := m.remote("lock", locks.Flock, locks.Write)
	for i := range many {
		if _, err := os.Stat(m.path(fmt.Sprint("n", i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		must(t, os.Rename(m.backing(fmt.Sprint("n", i)), m.backing(fmt.Sprint("o", i))))
	}
	drop()
	p.want("ok", "flock %d ex", lock)
	for i := range many {
		if _, err := os.Stat(m.path(fmt.Sprint("n", i))); err == nil {
			t.Fatalf("n%d is still there", i)
		}
	}
}

// What nobody else has written stays in the cache.
func TestNothingIsDroppedWithoutNeed(t *testing.T) {
	m := mount(t, longTTL)
	writeFile(t, m.backing("f"), "content")
	writeFile(t, m.backing("g"), "content")
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	var before Stats
	for i := range 20 {
		p.want("ok", "flock %d ex", fd)
		p.want("ok content", "read %d 0 7", fd)
		p.want("ok", "flock %d un", fd)
		p.want("ok", "lk %d setw w 0 10", fd)
		p.want("ok", "lk %d set u 0 10", fd)

		g := q.open("g", "r")
		q.want("ok content", "read %d 0 7", g)
		q.want("ok", "close %d", g)
		m.awaitOpenLocks("g", 0)
		if i == 0 {
			before = ask[Stats](m, "Stats", None{})
			drop := m.remote("g", locks.Open, locks.Read)
			drop()
		}
	}
	after := ask[Stats](m, "Stats", None{})
	if after.PageDrops != 0 || after.AttrDrops != 0 || after.EntryDrops != 0 {
		t.Errorf("dropped: %+v", after)
	}
	if after.Reads != before.Reads {
		t.Errorf("%d reads, and %d after them, of data that was cached", before.Reads, after.Reads-before.Reads)
	}
}

// What an open lock has protected is still good at the next one, but not if
// another host had it, and not if somebody wrote without any lock.
func TestPagesOfAClosedFile(t *testing.T) {
	m := mount(t, longTTL)
	writeFile(t, m.backing("f"), "first ..")
	read := func() string {
		t.Helper()
		s := readFile(t, m.path("f"))
		m.awaitOpenLocks("f", 0)
		return s
	}
	read()
	reads := ask[Stats](m, "Stats", None{}).Reads
	read()
	if n := ask[Stats](m, "Stats", None{}).Reads - reads; n != 0 {
		t.Errorf("%d reads of what was cached", n)
	}
	sameLook(t, m.backing("f"), "second..")
	if got := read(); got != "second.." {
		t.Errorf("after a change without a lock: %q", got)
	}
	drop := m.remote("f", locks.Open, locks.Write)
	sameLook(t, m.backing("f"), "third ..")
	drop()
	if got := read(); got != "third .." {
		t.Errorf("after a change under a lock: %q", got)
	}
	writeFile(t, m.path("f"), "fourth, longer")
	m.awaitOpenLocks("f", 0)
	if got := read(); got != "fourth, longer" {
		t.Errorf("after a change of our own: %q", got)
	}
	if got := readFile(t, m.backing("f")); got != "fourth, longer" {
		t.Errorf("the storage has %q", got)
	}
}

// The first process has the file open under an open lock and lets it idle; the
// second one locks for itself, and has pages of it cached when the lock comes
// back. Neither may hold the other up, nor see old data under its lock.
func TestAnOpenLockComesBackToAFileThatIsCached(t *testing.T) {
	m := mount(t, longTTL, func(c *childConfig) { c.Rule = &Rule{Open: true, Yield: time.Millisecond} })
	const size = 8 << 20 // many requests
	text := func(c string) string { return strings.Repeat(c, size) }
	writeFile(t, m.backing("f"), text("1"))
	writeFile(t, m.backing("lock"), "")
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	l := q.open("lock", "rw")
	q.want("ok", "flock %d ex", l)
	for _, c := range []string{"2", "3", "4"} {
		drop := m.remote("f", locks.Open, locks.Write)
		q.do("cat f") // unprotected, and cached
		sameLook(t, m.backing("f"), text(c))
		p.tell("read %d 4000000 10", fd)
		p.sleeping()
		q.tell("cat f")
		drop()
		if got := p.answer(); got != "ok "+strings.Repeat(c, 10) {
			t.Errorf("%s: read: %s", c, got)
		}
		q.answer()
		p.want("ok "+strings.Repeat(c, 10), "read %d 100 10", fd)
		drop = m.remote("f", locks.Open, locks.Write)
		q.do("cat f")
		p.tell("write %d 5000000 X", fd)
		p.sleeping()
		sameLook(t, m.backing("f"), text(c + "")[:10]+c)
		drop()
		if got := p.answer(); got != "ok" {
			t.Errorf("%s: write: %s", c, got)
		}
		p.want("ok X"+strings.Repeat(c, 9), "read %d 5000000 10", fd)
	}
}

// The storage is itself a mount that caches and is not told of changes, as an
// NFS client is: go-fuse's loopback with an hour of TTL. What happens on other
// hosts happens below it.
func TestStorageWhoseClientCaches(t *testing.T) {
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, LoopbackTTL: time.Hour})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, FileIDs: FileIDInode, WriteThrough: true})
	if s := ask[Counts](m, "Counts", None{}).Storage; !s.ClientCache || s.StableInodes || s.Type != "fuse.loopback" {
		t.Fatalf("the storage is taken for %+v", s)
	}
	writeFile(t, below+"/f", "first ..")
	writeFile(t, below+"/lock", "")

	p := startProgram(t, dir, nil)
	fd, lock := p.open("f", "rw"), p.open("lock", "rw")
	p.want("ok", "flock %d ex", lock)
	p.want("ok first ..", "read %d 0 100", fd)
	p.want("ok", "flock %d un", lock)
	drop := m.remote("lock", locks.Flock, locks.Write)
	sameLook(t, below+"/f", "second..")
	drop()
	p.want("ok", "flock %d ex", lock)
	p.want("ok second..", "read %d 0 100", fd)
	p.want("ok", "flock %d un", lock)

	drop = m.remote("lock", locks.Flock, locks.Write)
	writeFile(t, below+"/f", "third, longer")
	drop()
	p.want("ok", "flock %d ex", lock)
	p.want("ok third, longer", "read %d 0 100", fd)
	p.kill()

	// Open locks, one host after the other.
	for i := range 3 {
		text := fmt.Sprintf("round %d", i)
		drop = m.remote("f", locks.Open, locks.Write)
		writeFile(t, below+"/f", text)
		drop()
		if got := readFile(t, dir+"/f"); got != text {
			t.Errorf("read %q, want %q", got, text)
		}
		writeFile(t, dir+"/f", text+" and more")
		if got := readFile(t, below+"/f"); got != text+" and more" {
			t.Errorf("written: %q", got)
		}
	}
}

// A process asks for the attributes of a file on the storage, another host
// writes, a lock comes and they are asked for again; the kernel takes over the
// first answer, and ignores the second since the first came in between.
func TestAnOldAnswerOfTheStorageIsOvercome(t *testing.T) {
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	storage := mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, LoopbackTTL: time.Hour, HoldAttr: true})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, FileIDs: FileIDInode})
	writeFile(t, below+"/f", "old")
	p := startProgram(t, dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "flock %d ex", fd)
	p.want("ok old", "read %d 0 100", fd)
	p.want("ok", "flock %d un", fd)

	f, err := os.OpenFile(client+"/f", unix.O_PATH, 0)
	must(t, err)
	defer f.Close()
	held := func(n int) {
		await(t, fmt.Sprintf("%d answers are held back", n), func() bool {
			return ask[int](storage, "Held", None{}) == n
		})
	}
	drop := m.remote("f", locks.Flock, locks.Write)
	ask[None](storage, "HoldAttr", 2)
	first := make(chan error, 1)
	go func() {
		st, err := attrOf(int(f.Fd()), unix.AT_STATX_FORCE_SYNC)
		if err == nil && st.size != 3 {
			err = fmt.Errorf("the size is %d, want 3", st.size)
		}
		first <- err
	}()
	held(1)
	writeFile(t, below+"/f", "new, and longer")
	drop()
	p.tell("flock %d ex", fd)
	held(2)
	ask[None](storage, "Answer", 0)
	must(t, <-first)
	ask[None](storage, "Answer", 1)
	if got := p.answer(); got != "ok" {
		t.Fatalf("flock: %s", got)
	}
	p.want("ok new, and longer", "read %d 0 100", fd)
}

// Before a new view every file is written out once, however many locks there are.
func TestFlushAllLooksAtEachFileOnce(t *testing.T) {
	f := handlersOnly(t)
	defer runtime.UnlockOSThread()
	var keys []locks.Key
	var hs []*handle
	pins := map[*node]int{}
	for i := range 40 {
		name := fmt.Sprint("f", i)
		if st := f.createForTest(name, uint32(os.Getuid()), syscall.O_RDWR); !st.Ok() {
			t.Fatal(st)
		}
		h := f.openForTest(t, name, syscall.O_RDWR)
		h.wrote.Store(true)
		f.unprotected.mu.Lock()
		f.unprotected.known[h.n] = struct{}{}
		f.unprotected.mu.Unlock()
		hs = append(hs, h)
		pins[h.n] = h.n.pins
		file, _ := f.tree.identify(h.n)
		for _, c := range locks.Classes {
			keys = append(keys, locks.Key{File: file, Class: c})
		}
	}
	files, _, _ := f.coherence.concernedByAll(keys)
	if len(files) != len(hs) {
		t.Errorf("%d looks at %d files", len(files), len(hs))
	}
	f.tree.unpinAll(files)
	if failed := f.coherence.flushAll(keys); len(failed) > 0 {
		t.Error(failed)
	}
	for i, h := range hs {
		if h.wrote.Load() {
			t.Errorf("file %d is not written out", i)
		}
		if h.n.pins != pins[h.n] {
			t.Errorf("file %d is pinned %d times more", i, h.n.pins-pins[h.n])
		}
	}

	// What could not be written out is told of each lock that it matters to. The
	// file itself is under all of its locks, and under each explicit one of others.
	bad := hs[7]
	bad.wrote.Store(true)
	fd := bad.fd
	defer func() { bad.fd = fd }()
	pipe := make([]int, 2)
	must(t, unix.Pipe2(pipe, unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	bad.fd = pipe[0] // fsync(2) fails
	failed := f.coherence.flushAll(keys)
	for i, k := range keys {
		if want := i/len(locks.Classes) == 7 || k.Class != locks.Open; (failed[k] != nil) != want {
			t.Errorf("%v: %v", k, failed[k])
		}
	}
}

func TestFlushReportsWhatTheStorageSays(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.Caching = true })
	writeFile(t, m.path("f"), "x")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw")
	p.want("ok", "write %d 0 y", fd)
	ask[None](m, "Flush", m.key("f", locks.Open))
	ask[None](m, "Flush", m.key("f", locks.Flock))
	ask[None](m, "Flush", locks.Key{File: "i0", Class: locks.Open})
	if got := unix.Access(m.path("f"), unix.R_OK); got != nil {
		t.Error(got)
	}
}
