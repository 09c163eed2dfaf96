package fusefs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// On storage whose clients know by the time of a directory whether names in it
// have changed, that time is a later one than that of the last change when a
// lock is handed over.
func TestNamesAreMadeKnown(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.Caching, c.NamesByTime = true, true })
	for _, d := range []string{"d", "e"} {
		if err := os.Mkdir(m.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, m.path("lock"), "")
	for _, x := range []struct {
		name   string
		change func() error
		dirs   []string
	}{
		{"create", func() error { return os.WriteFile(m.path("d/f"), nil, 0o600) }, []string{"d"}},
		{"mkdir", func() error { return os.Mkdir(m.path("d/dir"), 0o700) }, []string{"d"}},
		{"symlink", func() error { return os.Symlink("f", m.path("d/s")) }, []string{"d"}},
		{"mknod", func() error { return unix.Mkfifo(m.path("d/p"), 0o600) }, []string{"d"}},
		{"link", func() error { return os.Link(m.path("d/f"), m.path("e/g")) }, []string{"e"}},
		{"rename", func() error { return os.Rename(m.path("d/f"), m.path("e/f")) }, []string{"d", "e"}},
		{"unlink", func() error { return os.Remove(m.path("e/f")) }, []string{"e"}},
		{"rmdir", func() error { return os.Remove(m.path("d/dir")) }, []string{"d"}},
	} {
		if err := x.change(); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		ask[None](m, "Flush", m.key("lock", locks.Flock))
		for _, d := range x.dirs {
			// The names changed when it was modified.
			var st unix.Stat_t
			if err := unix.Stat(m.back+"/"+d, &st); err != nil {
				t.Fatal(err)
			}
			if st.Ctim.Nano() <= st.Mtim.Nano() {
				t.Errorf("%s: %s has been modified at %v, and changed at %v", x.name, d, st.Mtim, st.Ctim)
			}
		}
	}
}
