package fusefs

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file that looks as it did may have been changed by a host that has a lock
// on another file, if its times cannot tell; or replaced by one that has a lock
// of the old name of the new file alone, if locks go by path.
func TestUnchanged(t *testing.T) {
	at := func(d time.Duration) unix.Timespec { return unix.NsecToTimespec(time.Now().Add(d).UnixNano()) }
	old, fresh, ahead := at(-time.Hour), at(-time.Millisecond), at(time.Hour)
	second := unix.Timespec{Sec: old.Sec}
	for _, tt := range []struct {
		name         string
		mtime, ctime unix.Timespec
		locked       bool // another host had an explicit lock since
		changed      bool
		paths        bool // locks go by path
		want         bool
	}{
		{"old", old, old, true, false, false, true},
		{"just written, nobody else since", fresh, fresh, false, false, false, true},
		{"just written", fresh, fresh, true, false, false, false},
		{"just given another mode", old, fresh, true, false, false, false},
		{"the clock of the storage is ahead", ahead, ahead, true, false, false, false},
		{"whole seconds", second, second, true, false, false, false},
		{"whole seconds, nobody else since", second, second, false, false, false, true},
		{"by path, old", old, old, false, false, true, true},
		{"by path, just written", fresh, fresh, false, false, true, false},
		{"by path, whole seconds", second, second, false, false, true, false},
		{"of another size", old, old, false, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, n := &attrCache{base: &base{tree: &tree{ids: fileIDs{paths: tt.paths}}}}, new(node)
			st := unix.Stat_t{Size: 10, Mtim: tt.mtime, Ctim: tt.ctime}
			n.version = versionAt(&st, c.arrivals.explicit.Load())
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
