package fusefs

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// A file that looks as it did may have been changed by a host that has a lock
// on another file, if its times cannot tell; or replaced by one that has a lock
// of the old name of the new file alone, if locks go by path.
func TestUnchanged(t *testing.T) {
	at := func(d time.Duration) unix.Timespec { return unix.NsecToTimespec(time.Now().Add(d).UnixNano()) }
	old, fresh, ahead := at(-time.Hour), at(-time.Millisecond), at(time.Hour)
	second, now := unix.Timespec{Sec: old.Sec}, unix.Timespec{Sec: fresh.Sec}
	for _, tt := range []struct {
		name         string
		mtime, ctime unix.Timespec
		locked       bool // another host had an explicit lock since
		changed      bool
		paths        bool // locks go by path
		exact        bool // no two changes have one time
		want         bool
	}{
		{"old", old, old, true, false, false, false, true},
		{"just written, nobody else since", fresh, fresh, false, false, false, false, false},
		{"just written, and times are exact", fresh, fresh, true, false, false, true, true},
		{"just written, and times are exact but for those of this file system", now, now, true, false, false, true, false},
		{"just written", fresh, fresh, true, false, false, false, false},
		{"just given another mode", old, fresh, true, false, false, false, false},
		{"the clock of the storage is ahead", ahead, ahead, true, false, false, false, false},
		{"whole seconds", second, second, true, false, false, false, false},
		{"whole seconds, nobody else since", second, second, false, false, false, false, true},
		{"by path, old", old, old, false, false, true, false, true},
		{"by path, just written", fresh, fresh, false, false, true, false, false},
		{"by path, whole seconds", second, second, false, false, true, false, false},
		{"of another size", old, old, false, true, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, n := &attrCache{base: &base{tree: &tree{ids: fileIDs{paths: tt.paths}}}}, new(node)
			c.storage.ExactTimes = tt.exact
			st := unix.Stat_t{Size: 10, Mtim: tt.mtime, Ctim: tt.ctime}
			n.version = c.versionAt(&n.look, &st, c.arrivals.explicit.Load())
			if tt.locked {
				c.arrivals.explicit.Add(1)
			}
			if tt.changed {
				st.Size++
			}
			if got := c.unchanged(n, &st); got != tt.want {
				t.Errorf("unchanged: %v, want %v", got, tt.want)
			}
			n.forgetVersion()
			if c.unchanged(n, &st) {
				t.Error("unchanged without a version")
			}
		})
	}
}

// What was read one step of the storage's clock after the file was first seen as it
// is cannot be changed without another time; what was read sooner can.
func TestTimesThatTell(t *testing.T) {
	fine := version{known: true, mtime: unix.Timespec{Sec: 5, Nsec: 1}, ctime: unix.Timespec{Sec: 5, Nsec: 1}}
	whole := version{known: true, mtime: unix.Timespec{Sec: 5}, ctime: unix.Timespec{Sec: 5}}
	for _, tt := range []struct {
		name         string
		v            version
		first, clean int64
		want         bool
	}{
		{"read at once", fine, 1000, 1000, false},
		{"read soon", fine, 1000, 1049, false},
		{"read a step later", fine, 1000, 1050, true},
		{"read before", fine, 1000, 100, false},
		{"whole seconds, read soon", whole, 1000, 3000, false},
		{"whole seconds, read a step later", whole, 1000, 3500, true},
	} {
		var l look
		l.sees(version{}, 1)
		l.sees(tt.v, tt.first)
		l.sees(tt.v, tt.first+10_000)
		l.clean = tt.clean
		if got := l.tells(tt.v); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if other := tt.v; !tt.want {
			continue
		} else if other.size++; l.tells(other) {
			t.Errorf("%s: it tells of what was not seen", tt.name)
		}
	}
}

// A program of another host writes to a file under flock(2) of which this host knows
// nothing, within the second in which it was written before, and the size is the same.
// Who opens the file anew finds what it has written, though nothing tells.
func TestPagesDoNotOutliveTheirSecond(t *testing.T) {
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, LoopbackTTL: time.Hour, Seconds: true})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, FileIDs: FileIDInode})
	second := func() int64 {
		var st unix.Stat_t
		must(t, unix.Stat(below+"/f", &st))
		return st.Ctim.Sec
	}
	for {
		writeFile(t, below+"/f", "000")
		if got := readFile(t, dir+"/f"); got != "000" {
			t.Fatalf("read %q, want 000", got)
		}
		m.awaitOpenLocks("f", 0)
		was := second()
		drop := m.remote("f", locks.Flock, locks.Write)
		sameLook(t, below+"/f", "006")
		drop()
		if second() == was {
			break
		}
	}
	if got := readFile(t, dir+"/f"); got != "006" {
		t.Errorf("read %q, want 006", got)
	}
}

// A program of another host writes to a file under flock(2) while a program of this one
// has it open: who opens it anew finds what was written.
func TestWhoOpensAFileThatIsOpenFindsWhatIsNew(t *testing.T) {
	m := mount(t, longTTL)
	writeFile(t, m.backing("f"), "000")
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "r")
	p.want("ok 000", "read %d 0 3", fd)
	drop := m.remote("f", locks.Flock, locks.Write)
	sameLook(t, m.backing("f"), "006")
	drop()
	if got := readFile(t, m.path("f")); got != "006" {
		t.Errorf("read %q, want 006", got)
	}
}
