package fusefs

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
)

// longTTL makes the kernel believe what it was told for as long as a test takes.
func longTTL(c *childConfig) { c.TTL = time.Hour }

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Another host changes names behind the mount's back while the kernel still
// believes in what it was told.
func TestOpenSeesWhereANameLeadsNow(t *testing.T) {
	m := mount(t, longTTL)

	t.Run("replaced", func(t *testing.T) {
		writeFile(t, m.backing("f"), "old")
		if got := readFile(t, m.path("f")); got != "old" {
			t.Fatal(got)
		}
		writeFile(t, m.backing("f.new"), "new")
		must(t, os.Rename(m.backing("f.new"), m.backing("f")))
		if got := readFile(t, m.path("f")); got != "new" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("changed", func(t *testing.T) {
		writeFile(t, m.backing("c"), "short")
		if got := readFile(t, m.path("c")); got != "short" {
			t.Fatal(got)
		}
		writeFile(t, m.backing("c"), "quite a bit longer")
		if got := readFile(t, m.path("c")); got != "quite a bit longer" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("removed", func(t *testing.T) {
		writeFile(t, m.backing("g"), "g")
		readFile(t, m.path("g"))
		must(t, os.Remove(m.backing("g")))
		if _, err := os.Open(m.path("g")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("open: %v", err)
		}
		writeFile(t, m.path("g"), "made again")
		if got := readFile(t, m.backing("g")); got != "made again" {
			t.Errorf("the storage has %q", got)
		}
	})
	t.Run("removed, opened for creation", func(t *testing.T) {
		writeFile(t, m.backing("h"), "h")
		readFile(t, m.path("h"))
		must(t, os.Remove(m.backing("h")))
		f, err := os.OpenFile(m.path("h"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := os.Stat(m.backing("h")); err != nil {
			t.Error(err)
		}
	})
	t.Run("one of two links replaced", func(t *testing.T) {
		writeFile(t, m.backing("l1"), "linked")
		must(t, os.Link(m.backing("l1"), m.backing("l2")))
		readFile(t, m.path("l1"))
		readFile(t, m.path("l2"))
		must(t, os.Remove(m.backing("l1")))
		writeFile(t, m.backing("l1"), "other")
		if a, b := readFile(t, m.path("l1")), readFile(t, m.path("l2")); a != "other" || b != "linked" {
			t.Errorf("read %q and %q", a, b)
		}
	})
}

// What takes the place of a file may be of another kind, or have no name at all.
func TestOpenSeesWhatIsThereNow(t *testing.T) {
	m := mount(t, longTTL)

	t.Run("replaced by a directory", func(t *testing.T) {
		writeFile(t, m.backing("d"), "file")
		readFile(t, m.path("d"))
		must(t, os.Remove(m.backing("d")))
		must(t, os.Mkdir(m.backing("d"), 0o755))
		if _, err := os.ReadFile(m.path("d")); !errors.Is(err, unix.EISDIR) {
			t.Errorf("read: %v", err)
		}
	})
	t.Run("replaced by a symbolic link", func(t *testing.T) {
		writeFile(t, m.backing("s"), "file")
		writeFile(t, m.backing("target"), "target")
		readFile(t, m.path("s"))
		must(t, os.Remove(m.backing("s")))
		must(t, os.Symlink("target", m.backing("s")))
		if got := readFile(t, m.path("s")); got != "target" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("replaced by a fifo", func(t *testing.T) {
		writeFile(t, m.backing("p"), "file")
		readFile(t, m.path("p"))
		must(t, os.Remove(m.backing("p")))
		must(t, unix.Mkfifo(m.backing("p"), 0o600))
		fd, err := unix.Open(m.path("p"), unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != unix.ENXIO { // as a fifo without a reader says
			t.Errorf("open: %v", err)
			unix.Close(fd)
		}
	})
	t.Run("reached without a name", func(t *testing.T) {
		writeFile(t, m.backing("n"), "nameless")
		fd, err := unix.Open(m.path("n"), unix.O_PATH, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, os.Remove(m.backing("n")))
		if got := readFile(t, fdPath(fd)); got != "nameless" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("no such file yet", func(t *testing.T) {
		if _, err := os.Stat(m.path("later")); !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		writeFile(t, m.backing("later"), "now")
		if got := readFile(t, m.path("later")); got != "now" {
			t.Errorf("read %q", got)
		}
	})
}

// Programs here open a file for creation while another host makes and removes
// it all the time. None of them may see how that is sorted out.
func TestCreationRacesWithAnotherHost(t *testing.T) {
	m := mount(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for !closed(stop) {
			if fd, err := unix.Open(m.backing("f"), unix.O_RDWR|unix.O_CREAT, 0o600); err == nil {
				unix.Close(fd)
			}
			unix.Unlink(m.backing("f"))
		}
	})
	errs := make(map[error]int)
	for range tests.Or(2500, 5000) {
		fd, err := unix.Open(m.path("f"), unix.O_RDWR|unix.O_CREAT, 0o600)
		errs[err]++
		if err == nil {
			unix.Close(fd)
		}
	}
	close(stop)
	wg.Wait()
	t.Log(errs)
	for err, n := range errs {
		if err != nil {
			t.Errorf("%d times: %v", n, err)
		}
	}
}
