package fusefs

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// A program makes a file longer while its server is killed, and another one reads the last
// page when the kernel has dropped that, and before the write is done by the next server: it
// never sees zeros.
func TestKilledWhileAFileIsMadeLonger(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	w, r := p.open("f", "rw"), q.open("f", "r")
	// What is under an open lock is not dropped.
	p.want("ok", "flock %d sh", w)
	q.want("ok", "flock %d sh", r)
	q.want("ok hello", "read %d 0 20", r)
	m.crashAt(Crash{Op: opWrite, Where: atTaken})
	p.tell("write %d 5 world", w)
	m.killed()
	m.conf.Kept.Crash = Crash{Op: opWrite, Where: atBegun, Waits: true}
	must(t, m.goOn())
	// Its page is dropped, and read again.
	await(t, "all is dropped", func() bool { return ask[Counts](m.testMount, "Counts", None{}).Dropped })
	q.tell("read %d 0 20", r)
	read := make(chan string, 1)
	go func() { read <- q.answer() }()
	await(t, "it waits for the write, or has read what is there", func() bool { return len(read) > 0 || q.isSleeping() })
	must(t, m.Call("Child.CrashAt", Crash{Where: "nowhere"}, &None{}))
	if got := m.answer(p); got != "ok" {
		t.Errorf("the write: %s", got)
	}
	if got := <-read; got != "ok hello" && got != "ok helloworld" { // as far as the kernel knew
		t.Errorf("read meanwhile: %q", got)
	}
	q.want("ok helloworld", "read %d 0 20", r)
	if b, err := os.ReadFile(m.backing("f")); err != nil || !strings.HasPrefix(string(b), "helloworld") {
		t.Errorf("%q %v", b, err)
	}
}

// Reads wait for the writes of their file that came before, until those are answered, for a
// second, or until the mount is gone.
func TestWritesComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writesFirst
		w.begin()
		f, g := &fuse.InHeader{NodeId: 2}, &fuse.InHeader{NodeId: 3}
		var alive chan struct{}
		waits := func(in *fuse.InHeader) (over chan time.Duration) {
			began, over := time.Now(), make(chan time.Duration, 1)
			go func() {
				w.await(in, alive)
				over <- time.Since(began)
			}()
			synctest.Wait()
			return over
		}
		one, two := w.write(f), w.write(f)
		read := waits(f)
		if len(read) > 0 || len(waits(g)) == 0 {
			t.Error("a read does not wait, or one of another file does")
		}
		one()
		w.end()
		w.write(g)()
		if synctest.Wait(); len(read) > 0 || !w.on.Load() {
			t.Error("a read waits for one of two writes only")
		}
		two()
		if synctest.Wait(); len(read) == 0 || w.on.Load() {
			t.Error("it waits when there is no write any more")
		}
		w = writesFirst{}
		w.begin()
		w.write(f)
		if took := <-waits(f); took != writesTime {
			t.Errorf("for a write that waits: %v", took)
		}
		alive = make(chan struct{})
		close(alive)
		if took := <-waits(f); took != 0 {
			t.Errorf("of a mount that is gone: %v", took)
		}
	})
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
	if s := ask[Stats](m.testMount, "Stats", None{}); s.PageDrops != 1 {
		t.Errorf("the pages of %d files were dropped, want those of the one without an open lock", s.PageDrops)
	}
	p.want("ok Jello", "read %d 0 5", held)
	if b, err := os.ReadFile(m.backing("held")); err != nil || string(b) != "hello" {
		t.Errorf("on the storage: %q %v", b, err)
	}
	p.want("ok", "unmap")
	p.want("ok", "fsync %d", held)
	if b, err := os.ReadFile(m.backing("held")); err != nil || string(b) != "Jello" {
		t.Errorf("on the storage: %q %v", b, err)
	}
}
