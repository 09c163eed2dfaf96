package fusefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A scenario does something in an empty directory and says what happened. It
// must say the same on the mount as on the storage itself.
type scenario struct {
	name string
	run  func(d *dirScript)
}

// dirScript makes calls in a directory and writes down how they went.
type dirScript struct {
	t   testing.TB
	dir string
	out strings.Builder
}

func (d *dirScript) path(name string) string { return filepath.Join(d.dir, name) }

func (d *dirScript) sayf(format string, args ...any) {
	fmt.Fprintf(&d.out, format+"\n", args...)
}

// did writes down an error, or that there was none.
func (d *dirScript) did(what string, err error) {
	var errno unix.Errno
	switch {
	case err == nil:
		d.sayf("%s: ok", what)
	case errors.As(err, &errno):
		d.sayf("%s: %s", what, unix.ErrnoName(errno))
	default:
		d.sayf("%s: %v", what, err)
	}
}

// open opens, and must be able to.
func (d *dirScript) open(name string, flags int, mode uint32) int {
	d.t.Helper()
	fd, err := unix.Open(d.path(name), flags|unix.O_CLOEXEC, mode)
	if err != nil {
		d.t.Fatalf("open %s: %v", name, err)
	}
	return fd
}

func (d *dirScript) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// show writes down what a file is like.
func (d *dirScript) show(name string) {
	var st unix.Stat_t
	if err := unix.Lstat(d.path(name), &st); err != nil {
		d.did("stat "+name, err)
		return
	}
	d.sayf("%s: mode=%o nlink=%d uid=%d gid=%d size=%d space=%d rdev=%d", name, st.Mode, st.Nlink, st.Uid, st.Gid,
		sizeOf(&st), (st.Blocks+32)/64, st.Rdev) // the storage may use some blocks for itself
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		b, err := os.ReadFile(d.path(name))
		d.did("read "+name, err)
		d.sayf("%d bytes, sum %x", len(b), checksum(b))
	}
}

// sizeOf leaves out the size of a directory, which is the storage's affair.
func sizeOf(st *unix.Stat_t) int64 {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return 0
	}
	return st.Size
}

func checksum(b []byte) uint32 {
	var s uint32
	for _, c := range b {
		s = s*31 + uint32(c)
	}
	return s
}

// unixErr is the error of a call that gives a descriptor, which it closes.
func unixErr(fd int, err error) error {
	if err == nil && fd >= 0 {
		unix.Close(fd)
	}
	return err
}

func TestSameAsStorage(t *testing.T) {
	needRoot(t)
	t.Run("names are kept for a moment", func(t *testing.T) { sameAsStorage(t, mount(t)) })
	t.Run("names are kept for long", func(t *testing.T) {
		m := mount(t, func(c *childConfig) { c.CacheTime = MaxCacheTime })
		awaitKeeping(t, m)
		sameAsStorage(t, m)
	})
}

// awaitKeeping looks around until the kernel keeps what it is told, and asks nobody.
func awaitKeeping(t *testing.T, m *testMount) {
	t.Helper()
	writeFile(t, m.backing("looked for"), "")
	look := time.NewTicker(DefaultTTL / 10)
	defer look.Stop()
	for asked := int64(100); asked > 5; {
		before := ask[Stats](m, "Stats", None{}).Looks
		for range 100 {
			if _, err := os.Stat(m.path("looked for")); err != nil {
				t.Fatal(err)
			}
			<-look.C
		}
		asked = ask[Stats](m, "Stats", None{}).Looks - before
	}
}

func sameAsStorage(t *testing.T, m *testMount) {
	native := tempDir(t)
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	for _, s := range slices.Concat(nameScenarios, dataScenarios) {
		t.Run(s.name, func(t *testing.T) {
			run := func(base string) string {
				d := &dirScript{t: t, dir: filepath.Join(base, s.name)}
				if err := os.Mkdir(d.dir, 0o755); err != nil {
					t.Fatal(err)
				}
				s.run(d)
				return d.out.String()
			}
			want, got := run(native), run(m.dir)
			diffLines(t, want, got)
			sameTree(t, m.backing(s.name), m.path(s.name))
			sameTree(t, filepath.Join(native, s.name), m.backing(s.name), "ino", "times", "blocks", "sizes of directories")
		})
	}
}

func diffLines(t *testing.T, want, got string) {
	t.Helper()
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			t.Errorf("line %d:\n storage: %s\n mount:   %s", i+1, x, y)
		}
	}
}

// sameTree compares all files below two directories; but not in some respects.
func sameTree(t *testing.T, a, b string, but ...string) {
	t.Helper()
	la, lb := treeOf(t, a, but), treeOf(t, b, but)
	for name, x := range la {
		if y := lb[name]; x != y {
			t.Errorf("%s:\n %s: %s\n %s: %s", name, a, x, b, y)
		}
	}
	for name := range lb {
		if la[name] == "" {
			t.Errorf("%s is only in %s", name, b)
		}
	}
}

func treeOf(t *testing.T, dir string, but []string) map[string]string {
	t.Helper()
	m := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		m[name] = describe(t, path, but)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func describe(t *testing.T, path string, but []string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	s := fmt.Sprintf("mode=%o nlink=%d uid=%d gid=%d rdev=%d", st.Mode, st.Nlink, st.Uid, st.Gid, st.Rdev)
	if !slices.Contains(but, "ino") {
		s += fmt.Sprintf(" ino=%d", st.Ino)
	}
	if !slices.Contains(but, "times") {
		s += fmt.Sprintf(" mtime=%v ctime=%v", st.Mtim, st.Ctim)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || !slices.Contains(but, "sizes of directories") {
		s += fmt.Sprintf(" size=%d blksize=%d", st.Size, st.Blksize)
	}
	if !slices.Contains(but, "blocks") {
		s += fmt.Sprintf(" blocks=%d", st.Blocks)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s += fmt.Sprintf(" sum=%x", checksum(b))
	case unix.S_IFLNK:
		to, _ := os.Readlink(path)
		s += " -> " + to
	}
	names := make([]byte, 65536)
	n, _ := unix.Llistxattr(path, names)
	list := strings.Split(string(names[:max(n, 0)]), "\x00")
	slices.Sort(list)
	for _, a := range list {
		if a != "" {
			b := make([]byte, 65536)
			n, err := unix.Lgetxattr(path, a, b)
			s += fmt.Sprintf(" %s=%x,%v", a, checksum(b[:max(n, 0)]), err)
		}
	}
	return s
}
