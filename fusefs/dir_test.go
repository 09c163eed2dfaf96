package fusefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
)

// readdir(3): whether files that are made or removed meanwhile are returned is
// not said, but each of the others is, once.
func TestADirectoryThatChangesWhileItIsRead(t *testing.T) {
	m := mount(t)
	steady := tests.Or(4000, 10_000)
	must(t, os.Mkdir(m.backing("d"), 0o755))
	for i := range steady {
		writeFile(t, m.backing(fmt.Sprint("d/steady-", i)), "")
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, dir := range []string{m.backing("d"), m.path("d")} { // another host, and this one
		wg.Go(func() {
			for i := 0; !closed(stop); i++ {
				name := filepath.Join(dir, fmt.Sprint("coming-and-going-", i%50))
				if os.WriteFile(name, nil, 0o644) == nil {
					os.Remove(name)
				}
			}
		})
	}
	for range tests.Or(2, 5) {
		seen := make(map[string]int)
		for _, e := range listDir(t, m.path("d"), 0) {
			seen[e.name]++
		}
		for i := range steady {
			if n := seen[fmt.Sprint("steady-", i)]; n != 1 {
				t.Fatalf("steady-%d was seen %d times", i, n)
			}
		}
	}
	close(stop)
	wg.Wait()
}

type dirEntry struct {
	name string
	off  uint64
	ino  uint64
}

// listDir reads a directory from a position on, as getdents(2) gives it.
func listDir(t *testing.T, dir string, from uint64) (es []dirEntry) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	_, err = unix.Seek(fd, int64(from), unix.SEEK_SET)
	must(t, err)
	buf := make([]byte, 32768)
	for {
		n, err := unix.Getdents(fd, buf)
		must(t, err)
		if n == 0 {
			return es
		}
		for b := buf[:n]; len(b) > 0; {
			e, size := parseDirent(b)
			es = append(es, dirEntry{e.Name, e.Off, e.Ino})
			b = b[size:]
		}
	}
}

// A position that telldir(3) gave leads to the same place in another open of
// the directory, and on the storage.
func TestPositionsInADirectory(t *testing.T) {
	m := mount(t)
	must(t, os.Mkdir(m.backing("d"), 0o755))
	for i := range 500 {
		writeFile(t, m.backing(fmt.Sprintf("d/%0*d", 1+i%200, i)), "")
	}
	all := listDir(t, m.path("d"), 0)
	native := listDir(t, m.backing("d"), 0)
	if fmt.Sprint(all) != fmt.Sprint(native) {
		t.Error("the mount lists something else than the storage, or in another order")
	}
	for i := 0; i < len(all)-1; i += 37 {
		if rest := listDir(t, m.path("d"), all[i].off); fmt.Sprint(rest) != fmt.Sprint(all[i+1:]) {
			t.Errorf("from entry %d on: %d entries, want %d", i, len(rest), len(all)-1-i)
		}
	}
	// One open, forth and back.
	d, err := os.Open(m.path("d"))
	must(t, err)
	defer d.Close()
	for range 3 {
		if _, err := d.Readdirnames(100); err != nil {
			t.Fatal(err)
		}
	}
	_, err = d.Seek(0, 0)
	must(t, err)
	names, err := d.Readdirnames(-1)
	if err != nil || len(names) != 500 {
		t.Errorf("after rewinding: %d names, %v", len(names), err)
	}
}

func TestThePrivateDirectoryIsHidden(t *testing.T) {
	m := mount(t)
	must(t, os.MkdirAll(m.backing(".dmxfs/views"), 0o700))
	must(t, os.MkdirAll(m.backing("sub/.dmxfs"), 0o700)) // is anybody's
	writeFile(t, m.backing("f"), "")
	must(t, os.Mkdir(m.backing("d"), 0o755))
	p := startProgram(t, m.dir, nil)
	p.want("ok d f sub", "ls .")
	p.want("ok .dmxfs", "ls sub")
	for _, e := range listDir(t, m.dir, 0) {
		if e.name == ".dmxfs" {
			t.Error("it is listed")
		}
	}
	for call, want := range map[string]string{
		"stat .dmxfs": "ENOENT", "ls .dmxfs": "ENOENT", "ls .dmxfs/views": "ENOENT",
		"open .dmxfs r": "ENOENT", "open .dmxfs rw,creat": "EPERM", "open .dmxfs/views/x rw,creat": "ENOENT",
		"mkdir .dmxfs 0755": "EPERM", "symlink f .dmxfs": "EPERM", "mkfifo .dmxfs 0600": "EPERM", "link f .dmxfs": "EPERM",
		"rename f .dmxfs": "EPERM", "rename d .dmxfs": "EPERM", "rename .dmxfs x": "ENOENT", "unlink .dmxfs": "ENOENT",
		"stat ./sub/../.dmxfs": "ENOENT",
	} {
		if got := p.do("%s", call); got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, m.path("d"), unix.AT_FDCWD, m.path(".dmxfs"), unix.RENAME_EXCHANGE); err == nil {
		t.Error("exchanged")
	}
	if err := os.RemoveAll(m.path("sub")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(m.backing(".dmxfs/views")); err != nil {
		t.Error(err)
	}
}

// A path can be longer than PATH_MAX when it is walked in steps.
func TestDeepDirectories(t *testing.T) {
	m := mount(t)
	name := strings.Repeat("n", 200)
	const depth = 60 // 12000 bytes
	fd, err := unix.Open(m.dir, unix.O_PATH, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	defer unix.Close(fd)
	file, err := unix.Openat(fd, "f", unix.O_RDWR|unix.O_CREAT, 0o600)
	must(t, err)
	_, err = unix.Write(file, []byte("deep"))
	must(t, err)
	must(t, unix.Flock(file, unix.LOCK_EX))
	must(t, unix.Renameat(fd, "f", fd, "g"))
	must(t, unix.Linkat(fd, "g", fd, "h", 0))
	must(t, unix.Symlinkat("g", fd, "s"))
	again, err := unix.Openat(fd, "s", unix.O_RDONLY, 0)
	must(t, err)
	b := make([]byte, 10)
	n, err := unix.Read(again, b)
	if err != nil || string(b[:n]) != "deep" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	unix.Close(again)
	want := strings.Repeat(name+"/", depth) + "f"
	found := false
	for _, c := range ask[[]string](m, "Calls", None{}) {
		found = found || strings.Contains(c, "lock flock:") && strings.HasSuffix(c, "path="+want)
	}
	if !found {
		t.Error("the locker was not told the path")
	}
	unix.Close(file)
}

// Other file systems are mounted below the shared directory. Their inode
// numbers are the same ones again.
func TestFileSystemsBelowTheRoot(t *testing.T) {
	needRoot(t)
	base := tempDir(t)
	back := filepath.Join(base, "back")
	for _, d := range []string{"back/one", "back/two", "mnt"} {
		must(t, os.MkdirAll(filepath.Join(base, d), 0o755))
	}
	for _, d := range []string{"one", "two"} {
		dir := filepath.Join(back, d)
		must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		writeFile(t, filepath.Join(dir, "f"), d)
	}
	m := mountConfig(t, childConfig{Root: back, Mount: filepath.Join(base, "mnt")})
	var a, b unix.Stat_t
	must(t, unix.Stat(m.backing("one/f"), &a))
	must(t, unix.Stat(m.backing("two/f"), &b))
	if a.Ino != b.Ino {
		t.Skip("the two do not have the same number here")
	}
	if x, y := readFile(t, m.path("one/f")), readFile(t, m.path("two/f")); x != "one" || y != "two" {
		t.Errorf("read %q and %q", x, y)
	}
	must(t, unix.Stat(m.path("one/f"), &a))
	must(t, unix.Stat(m.path("two/f"), &b))
	if a.Ino == b.Ino {
		t.Error("they look like two links of one file")
	}
	for _, d := range []string{"one", "two"} {
		for _, e := range listDir(t, m.path(d), 0) {
			var st unix.Stat_t
			must(t, unix.Lstat(m.path(d+"/"+e.name), &st))
			if e.name == "f" && e.ino != st.Ino {
				t.Errorf("%s: listed as %d, and is %d", d, e.ino, st.Ino)
			}
		}
	}
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fp, fq := p.open("one/f", "rw"), q.open("two/f", "rw")
	ask[[]string](m, "Calls", None{})
	p.want("ok", "flock %d ex", fp)
	q.want("ok", "flock %d ex nb", fq)
	calls := fmt.Sprint(ask[[]string](m, "Calls", None{}))
	for _, d := range []string{"one", "two"} {
		if want := fmt.Sprintf("lock flock:d%s:i", d); !strings.Contains(calls, want) {
			t.Errorf("the locker was asked %s; want %s", calls, want)
		}
	}
	if err := os.Rename(m.path("one/f"), m.path("two/g")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("rename: %v", err)
	}
	if err := os.Link(m.path("one/f"), m.path("two/g")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("link: %v", err)
	}
}

// A program that opens all it can takes nothing from the daemon: other programs
// have their locks, and the daemon has descriptors for itself.
func TestProgramsLeaveDescriptorsToTheDaemon(t *testing.T) {
	needRoot(t)
	const limit = 300
	m := mount(t, func(c *childConfig) { c.Files = limit })
	writeFile(t, m.path("f"), "")
	writeFile(t, m.path("lock"), "")
	must(t, os.Mkdir(m.path("d"), 0o755))
	other := startProgram(t, m.dir, nil)
	fd := strconv.Itoa(other.open("lock", "rw"))
	greedy := startProgram(t, m.dir, nil)
	own := fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid)
	for _, open := range []string{"open f r", "open d r,dir", "open new%d rw,creat,excl", "open d rw,tmpfile"} {
		var fds []string
		for {
			call := open
			if strings.Contains(open, "%d") {
				call = fmt.Sprintf(open, len(fds))
			}
			got := greedy.do("%s", call)
			n, ok := strings.CutPrefix(got, "ok ")
			if !ok {
				if got != "ENFILE" || len(fds) < limit/4 {
					t.Errorf("%s: %s after %d", open, got, len(fds))
				}
				break
			}
			fds = append(fds, n)
			if len(fds) > limit {
				t.Fatal("there is no limit")
			}
		}
		if es, err := os.ReadDir(own); err != nil || len(es) > limit-limit/5 {
			t.Errorf("%s: %d descriptors, %v", open, len(es), err)
		}
		for _, call := range []string{"flock %s ex", "lk %s set w 0 10", "lk %s ofdset w 20 10", "flock %s un", "write %s 0 text"} {
			if got := other.do(call, fd); !strings.HasPrefix(got, "ok") {
				t.Errorf("%s: others: %s: %s", open, call, got)
			}
		}
		if _, err := os.Stat(m.path("f")); err != nil {
			t.Errorf("%s: %v", open, err)
		}
		for _, n := range fds {
			greedy.want("ok", "close %s", n)
		}
		await(t, "files can be opened again", func() bool {
			f, err := os.Open(m.path("f"))
			f.Close()
			return err == nil
		})
	}
}

// callsByPath are calls of all kinds on a file, or in its directory.
func callsByPath(m *testMount) map[string]func(path string) error {
	return map[string]func(path string) error{
		"stat":     func(p string) error { _, err := os.Stat(p); return err },
		"chmod":    func(p string) error { return os.Chmod(p, 0o600) },
		"chown":    func(p string) error { return os.Chown(p, 1, 2) },
		"utimes":   func(p string) error { return os.Chtimes(p, time.Unix(1, 0), time.Unix(2, 0)) },
		"truncate": func(p string) error { return os.Truncate(p, 1) },
		"setxattr": func(p string) error { return unix.Setxattr(p, "user.a", []byte("v"), 0) },
		"link":     func(p string) error { return os.Link(p, p+".link") },
		"rename":   func(p string) error { return os.Rename(p, p+".new") },
		"unlink":   func(p string) error { return os.Remove(p) },
		"statfs":   func(p string) error { var st unix.Statfs_t; return unix.Statfs(p, &st) },
		"readlink": func(string) error { _, err := os.Readlink(m.path("symlink")); return err },
		"create":   func(p string) error { return os.WriteFile(filepath.Dir(p)+"/created", nil, 0o644) },
		"mkdir":    func(p string) error { return os.Mkdir(p+".dir", 0o755) },
		"list":     func(p string) error { _, err := os.ReadDir(filepath.Dir(p)); return err },
	}
}

// There are more files that the kernel knows than the daemon may have
// descriptors.
func TestDescriptorsDoNotRunOut(t *testing.T) {
	needRoot(t)
	const limit = 300
	many := tests.Or(1500, 3000)
	if tests.Race {
		many = 1500 // with the rest of .ci/run beside it 3000 can take longer than a test may
	}
	name := func(i int) string { return fmt.Sprintf("d%d/f%d", i%10, i) }
	for _, ttl := range []time.Duration{0, time.Hour} { // an hour: the kernel does not even look up again
		m := mount(t, func(c *childConfig) { c.Files, c.TTL = limit, ttl })
		for i := range 10 {
			must(t, os.Mkdir(m.backing(fmt.Sprint("d", i)), 0o755))
		}
		for i := range many {
			writeFile(t, m.backing(name(i)), fmt.Sprint(i))
		}
		must(t, os.Symlink("target", m.backing("symlink")))
		if _, err := os.Readlink(m.path("symlink")); err != nil {
			t.Fatal(err)
		}
		for i := range many {
			if got := readFile(t, m.path(name(i))); got != fmt.Sprint(i) {
				t.Fatalf("%s: %q", name(i), got)
			}
		}
		for d := range 10 {
			es, err := os.ReadDir(m.path(fmt.Sprint("d", d)))
			if err != nil || len(es) != many/10 {
				t.Errorf("%d entries, %v", len(es), err)
			}
			for _, e := range es {
				if _, err := e.Info(); err != nil {
					t.Fatal(err)
				}
			}
		}
		// All kinds of calls on files that were not used for long.
		next := 0
		for what, call := range callsByPath(m) {
			if err := call(m.path(name(next))); err != nil {
				t.Errorf("TTL %v: %s: %v", ttl, what, err)
			}
			next++
		}
		// Another host has put another file there meanwhile.
		must(t, os.Remove(m.backing(name(100))))
		writeFile(t, m.backing(name(100)), "replaced")
		if got := readFile(t, m.path(name(100))); got != "replaced" {
			t.Errorf("TTL %v: %q", ttl, got)
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := 200; i < many; i++ {
					if _, err := os.Stat(m.path(name((i*8+g)%(many-200) + 200))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if s := ask[Stats](m, "Stats", None{}); s.Weighed == 0 {
			t.Error("there were enough descriptors")
		}
		if c := ask[Counts](m, "Counts", None{}); c.Descriptors > limit || c.Nodes < many/2 {
			t.Errorf("%+v", c)
		}
	}
}

func TestFilesThatMustNotMove(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.NoMove = []string{"here", "d/there"} })
	must(t, os.Mkdir(m.backing("d"), 0o755))
	writeFile(t, m.backing("here"), "")
	writeFile(t, m.backing("f"), "")
	p := startProgram(t, m.dir, nil)
	p.want("EXDEV", "rename here g")
	p.want("EXDEV", "link here g")
	p.want("EXDEV", "rename f d/there")
	p.want("EXDEV", "link f d/there")
	p.want("ENOENT", "rename nothing d/there")
	p.want("ok", "rename f d/elsewhere")
	if err := unix.Renameat2(unix.AT_FDCWD, m.path("d/elsewhere"), unix.AT_FDCWD, m.path("here"), unix.RENAME_EXCHANGE); err != unix.EXDEV {
		t.Errorf("exchange: %v", err)
	}
	p.want("ok", "unlink here")
}

// What is made exists, and what was there before was not made: also if another
// host removes it at once, or puts something else in its place.
func TestMakingWhatAnotherHostRemoves(t *testing.T) {
	m := mount(t)
	for what, call := range map[string]func(string) error{
		"mkdir":   func(p string) error { return unix.Mkdir(p, 0o755) },
		"symlink": func(p string) error { return unix.Symlink("target", p) },
		"mkfifo":  func(p string) error { return unix.Mkfifo(p, 0o644) },
		"mknod":   func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) },
	} {
		calls := tests.Or(int64(300), 1000)
		var made atomic.Int64
		var over atomic.Bool
		var other sync.WaitGroup
		other.Go(func() {
			p := m.backing(what)
			for now := int64(0); !over.Load(); {
				if os.Remove(p) != nil {
					now = made.Load()
					continue
				}
				if now%2 == 0 {
					if what == "mkdir" {
						unix.Symlink("other", p)
					} else {
						unix.Mkdir(p, 0o755)
					}
				}
				// Once for each call: otherwise none might ever end.
				for was := now; now == was && !over.Load(); now = made.Load() {
					runtime.Gosched()
				}
			}
		})
		outcomes := make(map[error]int)
		// On a busy machine there may be another file each time.
		for n := made.Load(); n < calls || outcomes[nil] == 0 && n < 100*calls; n = made.Add(1) {
			outcomes[call(m.path(what))]++
		}
		over.Store(true)
		other.Wait()
		for err := range outcomes {
			if err != nil && err != unix.EEXIST {
				t.Errorf("%s: %v", what, outcomes)
			}
		}
		if outcomes[nil] == 0 {
			t.Errorf("%s: nothing was made: %v", what, outcomes)
		}
	}
}

// ls(1) asks for the label of each file of a file system until one answers
// that there are none.
func TestLabelsOfSELinux(t *testing.T) {
	needRoot(t)
	if labelsCount() {
		t.Skip("SELinux is on here")
	}
	m := mount(t)
	writeFile(t, m.path("f"), "")
	b := make([]byte, 100)
	if _, err := unix.Lgetxattr(m.path("f"), labelAttr, b); err != unix.ENOTSUP {
		t.Errorf("of a file without one: %v", err)
	}
	if _, err := unix.Lgetxattr(m.path("f"), "user.other", b); err != unix.ENODATA {
		t.Errorf("another attribute: %v", err)
	}
	must(t, unix.Setxattr(m.backing("f"), labelAttr, []byte("label"), 0))
	if n, err := unix.Lgetxattr(m.path("f"), labelAttr, b); err != nil || string(b[:n]) != "label" {
		t.Errorf("of a file with one: %q %v", b[:max(n, 0)], err)
	}
}
