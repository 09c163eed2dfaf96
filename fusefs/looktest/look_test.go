package looktest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

var (
	steps = flag.Int("looks.steps", long.Or(40, 250), "how many changes are made")
	seed  = flag.Uint64("looks.seed", uint64(time.Now().UnixNano()), "of the changes")
)

// soon is until when a change must be seen without a lock: much longer than it
// takes on a busy machine, and much shorter than cacheTime.
const soon = cacheTime / 2

// see is all that a program sees of dir.
func see(dir string) string {
	var b strings.Builder
	walk := func(path string) {
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(dir, path), &st)
		fmt.Fprintf(&b, "%s: ", path)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			return
		}
		kind := st.Mode & unix.S_IFMT
		fmt.Fprintf(&b, "%d %o %d links, %d bytes, %d.%09d %d.%09d", st.Ino, st.Mode, st.Nlink, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
		if kind == unix.S_IFLNK {
			to, err := os.Readlink(filepath.Join(dir, path))
			fmt.Fprintf(&b, " -> %s %v", to, err)
		}
		if kind != unix.S_IFDIR {
			fmt.Fprintln(&b)
			return
		}
		es, err := os.ReadDir(filepath.Join(dir, path))
		for _, e := range es {
			fmt.Fprintf(&b, " %s", e.Name())
		}
		fmt.Fprintf(&b, " %v\n", err)
	}
	walk(".")
	for _, d := range dirs {
		walk(d)
		for _, n := range names {
			walk(d + "/" + n)
		}
	}
	return b.String()
}

var (
	dirs  = []string{"x", "y"}
	names = []string{"a", "b", "c", "d", "e"}
)

// change makes a change at random, which may fail, and says what it was.
func change(rng *rand.Rand, dir string) string {
	name := func() string {
		return filepath.Join(dirs[rng.IntN(len(dirs))], names[rng.IntN(len(names))])
	}
	a, b := name(), name()
	in := func(n string) string { return filepath.Join(dir, n) }
	what, err := "", error(nil)
	switch k := rng.IntN(13); k {
	case 0, 1:
		what = "create " + a
		f, e := os.OpenFile(in(a), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err = e; e == nil {
			err = f.Close()
		}
	case 2, 3:
		what = "append to " + a
		f, e := os.OpenFile(in(a), os.O_APPEND|os.O_WRONLY, 0)
		if err = e; e == nil {
			_, e = f.Write(make([]byte, 1+rng.IntN(5000)))
			err = errors.Join(e, f.Close())
		}
	case 4:
		what = "truncate " + a
		err = os.Truncate(in(a), rng.Int64N(3000))
	case 5:
		what = "chmod " + a
		err = unix.Fchmodat(unix.AT_FDCWD, in(a), 0o600|rng.Uint32N(0o100), 0)
	case 6:
		what = "touch " + a
		at := time.Unix(rng.Int64N(1e9), rng.Int64N(1e9))
		err = os.Chtimes(in(a), at, at)
	case 7:
		what = "rename " + a + " " + b
		err = os.Rename(in(a), in(b))
	case 8, 9:
		what = "remove " + a
		err = os.Remove(in(a))
	case 10:
		what = "link " + a + " " + b
		err = os.Link(in(a), in(b))
	case 11:
		what = "symlink " + a
		err = os.Symlink(strings.Repeat("t", 1+rng.IntN(100)), in(a))
	case 12:
		what = "mkdir " + a
		err = os.Mkdir(in(a), 0o755)
	}
	var known unix.Errno
	if err != nil && (!errors.As(err, &known) || known == unix.EIO) {
		what += fmt.Sprintf(" FAILED: %v", err)
	}
	return what
}

// lookers look around on both hosts for as long as the test lasts.
func (h *hosts) lookers() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(*seed, uint64(i)))
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rng.IntN(1000)) * time.Microsecond):
				}
				dir := filepath.Join(h.at[i%2], dirs[rng.IntN(len(dirs))])
				for range 5 {
					os.Lstat(filepath.Join(dir, names[rng.IntN(len(names))]))
				}
				os.ReadDir(dir)
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// await looks around on a host until some host keeps names, or it takes too long.
func (h *hosts) await(at string) (keeper int) {
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if k := h.keeper(); k >= 0 {
			return k
		}
		see(at)
	}
	return -1
}

// Two hosts change things at random, and look around: what one has changed the
// other one sees soon, and at once under a lock, whoever keeps names meanwhile.
func TestVisible(t *testing.T) {
	t.Parallel()
	h := mount(t)
	rng := rand.New(rand.NewPCG(*seed, 100))
	for _, d := range dirs {
		must(t, os.Mkdir(filepath.Join(h.raw, d), 0o755))
	}
	writeFile := func(n string) { must(t, os.WriteFile(filepath.Join(h.raw, n), nil, 0o644)) }
	writeFile("lock")
	stop := h.lookers()
	defer stop()
	kept := [2]int{}
	for i := range *steps {
		x := rng.IntN(2)
		if rng.IntN(3) > 0 { // the other one is to keep what is changed here
			if k := h.await(h.at[1-x]); k >= 0 {
				kept[k]++
				see(h.at[k])
			}
		}
		if rng.IntN(20) == 0 {
			h.underLock(rng, rng.IntN(len(h.at)))
			continue
		}
		what := change(rng, h.at[x])
		if strings.Contains(what, "FAILED") {
			t.Fatalf("seed %d, change %d: host %d: %s", *seed, i, x, what)
		}
		want := see(h.raw)
		for y := range plain {
			h.sees(y, want, soon, fmt.Sprintf("seed %d, change %d: host %d: %s", *seed, i, x, what))
		}
	}
	t.Logf("host 0 kept names before %d of %d changes, host 1 before %d", kept[0], *steps, kept[1])
	if kept[0]+kept[1] < *steps/4 {
		t.Errorf("names were kept %v times in %d changes: it shows little", kept, *steps)
	}
}

// underLock has host x change something under a lock, and those others that keep
// names look under the same lock, one after the other. (Without it they may see
// late what the plain host has changed.)
func (h *hosts) underLock(rng *rand.Rand, x int) {
	lock := func(host int) *os.File {
		f, err := os.OpenFile(filepath.Join(h.at[host], "lock"), os.O_RDWR, 0)
		must(h.t, err)
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
				break
			}
		}
		must(h.t, err)
		return f
	}
	f := lock(x)
	var what []string
	for range 1 + rng.IntN(3) {
		what = append(what, change(rng, h.at[x]))
	}
	must(h.t, f.Close())
	for y := range plain {
		if y == x {
			continue
		}
		f = lock(y)
		h.sees(y, see(h.raw), 0, fmt.Sprintf("seed %d: host %d under a lock: %v", *seed, x, what))
		must(h.t, f.Close())
	}
}

// sees wants a host to see what is on the storage, within a time.
func (h *hosts) sees(host int, want string, within time.Duration, what string) {
	h.t.Helper()
	end := time.Now().Add(within)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for ; ; <-again.C {
		late := time.Now().After(end)
		got := see(h.at[host])
		if got == want {
			return
		}
		if late {
			h.t.Fatalf("%s: host %d still sees otherwise, after %v:\n%s", what, host, within, difference(want, got))
		}
	}
}

func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var b strings.Builder
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			fmt.Fprintf(&b, "want %s\ngot  %s\n", w[i], g[i])
		}
	}
	return b.String()
}

// What is changed past dmxfs is seen within cacheTime.
func TestChangedPastTheMounts(t *testing.T) {
	t.Parallel()
	h := mount(t)
	must(t, os.WriteFile(filepath.Join(h.raw, "f"), nil, 0o644))
	for h.await(h.at[0]) != 0 {
	}
	for range 3 {
		os.Lstat(filepath.Join(h.at[0], "f"))
		os.Lstat(filepath.Join(h.at[0], "g"))
		os.ReadDir(h.at[0])
	}
	told := time.Now()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	must(t, os.Rename(filepath.Join(h.raw, "f"), filepath.Join(h.raw, "g")))
	for _, want := range []struct {
		name string
		err  error
	}{{"g", nil}, {"f", fs.ErrNotExist}} {
		for {
			_, err := os.Lstat(filepath.Join(h.at[0], want.name))
			if errors.Is(err, want.err) || err == nil && want.err == nil {
				break
			}
			if time.Since(told) > cacheTime+5*time.Second {
				t.Fatalf("%s after %v: %v, want %v", want.name, time.Since(told), err, want.err)
			}
			<-again.C
		}
	}
	es, err := os.ReadDir(h.at[0])
	must(t, err)
	if !slices.ContainsFunc(es, func(e fs.DirEntry) bool { return e.Name() == "g" }) {
		t.Errorf("it lists %v", es)
	}
}
