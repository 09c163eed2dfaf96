package fusefs

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// A program writes, and the client of the storage tells who opens the file then how
// long it was before. That one gets the lock next.
func TestAStorageThatIsBehind(t *testing.T) {
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	storage := mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, LoopbackTTL: time.Hour, HoldAttr: true})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, FileIDs: FileIDInode})
	caughtUp := func() int64 { return ask[Stats](m, "Stats", None{}).CaughtUp }
	p, q := startProgram(t, dir, nil), startProgram(t, dir, nil)
	for i, x := range []struct {
		what string
		use  func(fd int, name string)
		is   string
	}{
		{"end", func(fd int, _ string) { q.want("ok 5", "end %d", fd) }, "first"},
		{"stat", func(_ int, name string) { q.want("ok mode=100644 uid=0 gid=0 size=5", "stat %s", name) }, "first"},
		{"read", func(fd int, _ string) { q.want("ok first", "read %d 0 100", fd) }, "first"},
		{"append", func(fd int, _ string) { q.want("ok", "write %d 0 +", fd) }, "first+"},
		{"copy", func(_ int, name string) {
			q.want("ok", "put copied -")
			q.want("ok", "copy copied %s", name)
			if got := readFile(t, below+"/copied"); got != "first" {
				t.Errorf("%q was copied", got)
			}
		}, "first"},
	} {
		t.Run(x.what, func(t *testing.T) {
			name, how := fmt.Sprint("f", i), "rw"
			if x.what == "append" {
				how = "rw,append"
			}
			writeFile(t, dir+"/"+name, "")
			fd := p.open(name, "rw")
			p.want("ok", "flock %d ex", fd)
			p.want("ok", "write %d 0 first", fd)
			before := caughtUp()
			ask[None](storage, "FallBehind", None{})
			next := q.open(name, how)
			p.want("ok", "flock %d un", fd)
			q.want("ok", "flock %d ex", next)
			x.use(next, name)
			if n := caughtUp() - before; n != 1 {
				t.Errorf("the client was asked again %d times", n)
			}
			q.want("ok "+x.is, "cat %s", name)
			if got := readFile(t, below+"/"+name); got != x.is {
				t.Errorf("the storage has %q, want %q", got, x.is)
			}
		})
	}
	t.Run("truncated", func(t *testing.T) {
		before := caughtUp()
		for range 3 {
			p.want("ok", "put f0 four")
			p.want("ok", "put f0 123")
		}
		if n := caughtUp() - before; n != 0 {
			t.Errorf("the client was asked again %d times, though this host has made the file shorter", n)
		}
		must(t, os.Truncate(below+"/f0", 2)) // not by way of dmxfs
		fd := q.open("f0", "rw")
		for range 3 {
			q.want("ok 2", "end %d", fd)
		}
		if n := caughtUp() - before; n != 1 {
			t.Errorf("the client was asked again %d times, want once", n)
		}
	})
}
