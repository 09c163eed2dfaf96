package fusefs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory that has only files .nfs… is removed, or replaced, when those have
// gone; one that has others, or whose files stay, is not.
func TestADirectoryGetsEmpty(t *testing.T) {
	t.Parallel()
	m := mount(t, func(c *childConfig) { c.SillyRenames = true })
	for _, x := range []struct {
		name  string
		call  func(dir string) error
		files []string
		goes  bool
		want  error
	}{
		{"rmdir", unix.Rmdir, []string{".nfs01", ".nfs02"}, true, nil},
		{"rename", func(dir string) error { return unix.Rename(m.path("other"), dir) }, []string{".nfs01"}, true, nil},
		{"with others", unix.Rmdir, []string{".nfs01", "f"}, false, unix.ENOTEMPTY},
		{"that stays", unix.Rmdir, []string{".nfs01"}, false, unix.ENOTEMPTY},
	} {
		dir, back := m.path(x.name), m.back+"/"+x.name
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.MkdirAll(m.path("other"), 0o755))
		for _, f := range x.files {
			must(t, os.WriteFile(back+"/"+f, nil, 0o600))
		}
		looks, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		must(t, err)
		defer unix.Close(looks)
		_, err = unix.InotifyAddWatch(looks, back, unix.IN_OPEN)
		must(t, err)
		over := make(chan error, 1)
		go func() { over <- x.call(dir) }()
		if x.goes {
			looked := make(chan error, 1)
			go func() {
				_, err := unix.Read(looks, make([]byte, 1024))
				looked <- err
			}()
			select {
			case err := <-over:
				t.Fatalf("%s: it was %v at once", x.name, err)
			case err := <-looked: // what is there
				must(t, err)
			}
			for _, f := range x.files {
				must(t, os.Remove(back+"/"+f))
			}
		}
		if err := <-over; err != x.want {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
}
