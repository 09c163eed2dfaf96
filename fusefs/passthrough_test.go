package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

var scenarios = []scenario{
	{"create and remove", func(d *dirScript) {
		d.write("f", "hello")
		d.show("f")
		d.did("create again", unixErr(unix.Open(d.path("f"), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)))
		d.did("mkdir over it", unix.Mkdir(d.path("f"), 0o755))
		d.did("rmdir", unix.Rmdir(d.path("f")))
		d.did("open missing", unixErr(unix.Open(d.path("g"), unix.O_RDONLY, 0)))
		d.did("open below a file", unixErr(unix.Open(d.path("f/x"), unix.O_RDONLY, 0)))
		d.did("unlink", unix.Unlink(d.path("f")))
		d.did("unlink again", unix.Unlink(d.path("f")))
		d.show("f")
		d.did("too long", unixErr(unix.Open(d.path(strings.Repeat("x", 256)), unix.O_CREAT|unix.O_RDWR, 0o600)))
	}},
	{"directories", func(d *dirScript) {
		d.did("mkdir", unix.Mkdir(d.path("a"), 0o750))
		d.did("mkdir below", unix.Mkdir(d.path("a/b"), 0o700))
		d.show("a")
		d.did("rmdir not empty", unix.Rmdir(d.path("a")))
		d.did("unlink", unix.Unlink(d.path("a")))
		d.did("rmdir", unix.Rmdir(d.path("a/b")))
		d.show("a")
		fd := d.open("a", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		d.did("fsync", unix.Fsync(fd))
		d.did("rmdir of an open one", unix.Rmdir(d.path("a")))
		d.did("create in it", unixErr(unix.Openat(fd, "x", unix.O_CREAT|unix.O_RDWR, 0o600)))
		unix.Close(fd)
	}},
	{"links", func(d *dirScript) {
		d.write("f", "x")
		d.did("link", unix.Link(d.path("f"), d.path("g")))
		d.did("link over", unix.Link(d.path("f"), d.path("g")))
		d.show("f")
		d.show("g")
		d.did("unlink", unix.Unlink(d.path("f")))
		d.show("g")
		d.did("symlink", unix.Symlink("g", d.path("s")))
		d.did("dangling", unix.Symlink(strings.Repeat("n/", 400), d.path("t")))
		d.did("link of a symlink", unix.Linkat(unix.AT_FDCWD, d.path("s"), unix.AT_FDCWD, d.path("u"), 0))
		for _, n := range []string{"s", "t", "u"} {
			to, err := os.Readlink(d.path(n))
			d.did("readlink "+n, err)
			d.sayf("-> %s", to)
			d.show(n)
		}
		d.did("readlink of a file", unixErr(unix.Readlink(d.path("g"), make([]byte, 10))))
	}},
	{"special files", func(d *dirScript) {
		d.did("fifo", unix.Mkfifo(d.path("p"), 0o640))
		d.did("socket", unix.Mknod(d.path("s"), unix.S_IFSOCK|0o600, 0))
		d.did("device", unix.Mknod(d.path("c"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		d.did("block device", unix.Mknod(d.path("b"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 300))))
		d.did("file", unix.Mknod(d.path("f"), unix.S_IFREG|0o604, 0))
		for _, n := range []string{"p", "s", "c", "b", "f"} {
			d.show(n)
		}
		fd := d.open("p", unix.O_RDWR, 0)
		_, err := unix.Write(fd, []byte("through"))
		d.did("write to the fifo", err)
		b := make([]byte, 10)
		n, err := unix.Read(fd, b)
		d.did("read from the fifo", err)
		d.sayf("%s", b[:n])
		unix.Close(fd)
	}},
	{"rename", func(d *dirScript) {
		d.write("a", "aaa")
		d.write("b", "b")
		unix.Mkdir(d.path("d"), 0o755)
		unix.Mkdir(d.path("e"), 0o755)
		d.write("e/x", "x")
		ren := func(from, to string, flags uint) {
			d.did(fmt.Sprintf("rename %s %s %d", from, to, flags),
				unix.Renameat2(unix.AT_FDCWD, d.path(from), unix.AT_FDCWD, d.path(to), flags))
		}
		ren("a", "b", unix.RENAME_NOREPLACE)
		ren("a", "b", unix.RENAME_EXCHANGE)
		d.show("a")
		d.show("b")
		ren("a", "b", 0)
		d.show("a")
		d.show("b")
		ren("b", "d", 0)
		ren("d", "b", 0)
		ren("d", "e", 0)
		ren("e", "d", 0)
		d.show("d/x")
		ren("d", "d/e", 0)
		ren("b", "d/b", unix.RENAME_WHITEOUT)
		d.show("b")
		d.show("d/b")
		ren("d/x", "b", unix.RENAME_EXCHANGE)
		d.show("d/x")
		ren("nothing", "b", 0)
		ren("b", "nowhere/b", 0)
		unix.Link(d.path("d/b"), d.path("d/c"))
		ren("d/b", "d/c", 0) // the same file: nothing happens
		d.show("d/b")
		d.show("d/c")
	}},
	{"modes and owners", func(d *dirScript) {
		d.write("f", "x")
		d.did("chmod", unix.Chmod(d.path("f"), 0o6711))
		d.show("f")
		d.did("chown", unix.Chown(d.path("f"), 1234, 2345))
		d.show("f")
		d.did("chmod", unix.Chmod(d.path("f"), 0o2701))
		d.did("chown gid", unix.Chown(d.path("f"), -1, 3456))
		d.show("f")
		d.did("chown by fd", func() error {
			fd := d.open("f", unix.O_RDONLY, 0)
			defer unix.Close(fd)
			return errors.Join(unix.Fchown(fd, 1, 2), unix.Fchmod(fd, 0))
		}())
		d.show("f")
		unix.Symlink("f", d.path("s"))
		d.did("lchown", unix.Lchown(d.path("s"), 77, 78))
		d.show("s")
		d.show("f")
		d.did("chmod of a symlink", unix.Fchmodat(unix.AT_FDCWD, d.path("s"), 0o600, unix.AT_SYMLINK_NOFOLLOW))
		unix.Mkdir(d.path("d"), 0o755)
		d.did("setgid directory", errors.Join(unix.Chown(d.path("d"), 5, 6), unix.Chmod(d.path("d"), 0o2775)))
		d.write("d/f", "")
		unix.Mkdir(d.path("d/e"), 0o700)
		unix.Symlink("x", d.path("d/s"))
		for _, n := range []string{"d", "d/f", "d/e", "d/s"} {
			d.show(n)
		}
	}},
	{"times", func(d *dirScript) {
		d.write("f", "x")
		unix.Symlink("f", d.path("s"))
		set := func(n string, flags int, ts ...unix.Timespec) {
			d.did("utimensat "+n, unix.UtimesNanoAt(unix.AT_FDCWD, d.path(n), ts, flags))
			var st unix.Stat_t
			unix.Lstat(d.path(n), &st)
			d.sayf("atime %d.%d mtime %d.%d", st.Atim.Sec, st.Atim.Nsec, st.Mtim.Sec, st.Mtim.Nsec)
		}
		set("f", 0, unix.Timespec{Sec: 1, Nsec: 2}, unix.Timespec{Sec: 3, Nsec: 4})
		set("f", 0, unix.Timespec{Sec: -5, Nsec: 6}, unix.Timespec{Nsec: unix.UTIME_OMIT})
		set("f", 0, unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Sec: 1 << 32, Nsec: 999999999})
		set("s", unix.AT_SYMLINK_NOFOLLOW, unix.Timespec{Sec: 7}, unix.Timespec{Sec: 8})
		set(".", 0, unix.Timespec{Sec: 9}, unix.Timespec{Sec: 10})
	}},
	{"time of birth", func(d *dirScript) {
		d.write("f", "x")
		var a, b unix.Statx_t
		d.did("statx", unix.Statx(unix.AT_FDCWD, d.path("f"), 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &a))
		d.sayf("has it: %v, now: %v", a.Mask&unix.STATX_BTIME != 0, a.Btime.Sec >= a.Mtime.Sec && a.Btime.Sec > 0)
		unix.Chmod(d.path("f"), 0o600)
		d.write("f", "xy")
		unix.Statx(unix.AT_FDCWD, d.path("f"), 0, unix.STATX_BTIME, &b)
		d.sayf("the same: %v", a.Btime == b.Btime)
	}},
	{"sizes", func(d *dirScript) {
		d.write("f", "0123456789")
		d.did("truncate", unix.Truncate(d.path("f"), 4))
		d.show("f")
		d.did("extend", unix.Truncate(d.path("f"), 100000))
		d.show("f")
		fd := d.open("f", unix.O_RDWR, 0)
		d.did("ftruncate", unix.Ftruncate(fd, 3))
		d.show("f")
		d.did("open O_TRUNC", unixErr(unix.Open(d.path("f"), unix.O_RDONLY|unix.O_TRUNC, 0)))
		d.show("f")
		_, err := unix.Pwrite(fd, []byte("end"), 9000)
		d.did("write beyond the end", err)
		d.show("f")
		d.did("ftruncate of a read-only one", func() error {
			fd := d.open("f", unix.O_RDONLY, 0)
			defer unix.Close(fd)
			return unix.Ftruncate(fd, 0)
		}())
		d.did("negative", unix.Truncate(d.path("f"), -1))
		d.did("of a directory", unix.Truncate(d.dir, 0))
		unix.Close(fd)
	}},
	{"append", func(d *dirScript) {
		d.write("f", "start")
		fd := d.open("f", unix.O_RDWR|unix.O_APPEND, 0)
		_, err := unix.Pwrite(fd, []byte("-one"), 0)
		d.did("append", err)
		_, err = unix.Write(fd, []byte("-two"))
		d.did("append", err)
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_APPEND)
		_, err = unix.Pwrite(fd, []byte("S"), 0)
		d.did("no more", err)
		unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
		_, err = unix.Write(fd, []byte("-three"))
		d.did("and again", err)
		b, _ := os.ReadFile(d.path("f"))
		d.sayf("%s", b)
		unix.Close(fd)
	}},
	{"a mapping of a file that is open for appending", func(d *dirScript) {
		d.write("f", strings.Repeat("x", 8192))
		fd := d.open("f", unix.O_RDWR|unix.O_APPEND, 0)
		m, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			d.t.Fatal(err)
		}
		copy(m[4096:], "mapped")
		d.did("msync", unix.Msync(m, unix.MS_SYNC))
		unix.Munmap(m)
		unix.Close(fd)
		d.show("f")
	}},
	{"holes and allocation", func(d *dirScript) {
		fd := d.open("f", unix.O_RDWR|unix.O_CREAT, 0o600)
		defer unix.Close(fd)
		unix.Pwrite(fd, bytes.Repeat([]byte("d"), 4096), 0)
		unix.Pwrite(fd, bytes.Repeat([]byte("e"), 4096), 1<<20)
		unix.Fsync(fd)
		for _, at := range []int64{0, 4096, 1 << 20, 1<<20 + 4096} {
			for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
				off, err := unix.Seek(fd, at, whence)
				d.did(fmt.Sprintf("seek %d %d -> %d", at, whence, off), err)
			}
		}
		for _, c := range []struct {
			mode     uint32
			off, len int64
		}{
			{0, 0, 2 << 20},
			{unix.FALLOC_FL_KEEP_SIZE, 2 << 20, 1 << 20},
			{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 1 << 20, 4096},
			{unix.FALLOC_FL_PUNCH_HOLE, 0, 4096},
			{unix.FALLOC_FL_ZERO_RANGE, 100, 200},
			{0, 0, 0},
		} {
			d.did(fmt.Sprintf("fallocate %#x %d %d", c.mode, c.off, c.len), unix.Fallocate(fd, c.mode, c.off, c.len))
			d.show("f")
		}
	}},
	{"copy_file_range", func(d *dirScript) {
		d.write("a", strings.Repeat("abcdefgh", 1<<18)) // 2 MiB
		from := d.open("a", unix.O_RDONLY, 0)
		to := d.open("b", unix.O_RDWR|unix.O_CREAT, 0o600)
		off, woff, total := int64(5), int64(0), 0
		for {
			n, err := unix.CopyFileRange(from, &off, to, &woff, 1<<30, 0)
			if err != nil {
				d.did("copy", err)
			}
			if n <= 0 {
				break
			}
			total += n
		}
		d.sayf("%d copied, at %d and %d", total, off, woff)
		d.show("b")
		o2, w2 := int64(0), int64(3<<20)
		n, err := unix.CopyFileRange(to, &o2, to, &w2, 4096, 0)
		d.did(fmt.Sprintf("within the file: %d", n), err)
		d.show("b")
		unix.Close(from)
		unix.Close(to)
	}},
	{"shared mappings", func(d *dirScript) {
		d.write("f", strings.Repeat("-", 10000))
		fd := d.open("f", unix.O_RDWR, 0)
		m, err := unix.Mmap(fd, 0, 10000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			d.t.Fatal(err)
		}
		unix.Close(fd)
		copy(m[5000:], "in the middle")
		d.did("msync", unix.Msync(m, unix.MS_SYNC))
		d.show("f")
		d.did("munmap", unix.Munmap(m))
		ro := d.open("f", unix.O_RDONLY, 0)
		_, err = unix.Mmap(ro, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED)
		d.did("map a read-only file for writing", err)
		unix.Close(ro)
	}},
	{"direct access", func(d *dirScript) {
		fd, err := unix.Open(d.path("f"), unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o600)
		d.did("open", err)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		b, err := unix.Mmap(-1, 0, 3<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			d.t.Fatal(err)
		}
		defer unix.Munmap(b)
		for i := range b {
			b[i] = byte(i >> 9)
		}
		n, err := unix.Pwrite(fd, b, 0)
		d.did(fmt.Sprintf("write %d", n), err)
		clear(b)
		n, err = unix.Pread(fd, b, 4096)
		d.did(fmt.Sprintf("read %d sum %x", n, checksum(b)), err)
		d.show("f")
	}},
	{"temporary files", func(d *dirScript) {
		fd, err := unix.Open(d.dir, unix.O_TMPFILE|unix.O_RDWR, 0o640)
		d.did("open", err)
		if err != nil {
			return
		}
		unix.Write(fd, []byte("was nameless"))
		var st unix.Stat_t
		unix.Fstat(fd, &st)
		d.sayf("mode=%o nlink=%d size=%d", st.Mode, st.Nlink, st.Size)
		d.did("linkat", unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, d.path("f"), unix.AT_SYMLINK_FOLLOW))
		d.did("linkat by descriptor", unix.Linkat(fd, "", unix.AT_FDCWD, d.path("g"), unix.AT_EMPTY_PATH))
		d.show("f")
		unix.Write(fd, []byte(", has two"))
		unix.Close(fd)
		d.show("g")
		fd, err = unix.Open(d.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL, 0o640)
		d.did("open for ever nameless", err)
		d.did("linkat", unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, d.path("h"), unix.AT_SYMLINK_FOLLOW))
		unix.Close(fd)
		d.did("only for reading", unixErr(unix.Open(d.dir, unix.O_TMPFILE|unix.O_RDONLY, 0o640)))
	}},
	{"a file that is open and removed", func(d *dirScript) {
		d.write("f", "still here")
		fd := d.open("f", unix.O_RDWR, 0)
		d.did("unlink", unix.Unlink(d.path("f")))
		var st unix.Stat_t
		d.did("fstat", unix.Fstat(fd, &st))
		d.sayf("nlink=%d size=%d", st.Nlink, st.Size)
		_, err := unix.Pwrite(fd, []byte("STILL"), 0)
		d.did("write", err)
		b := make([]byte, 20)
		n, err := unix.Pread(fd, b, 0)
		d.did("read", err)
		d.sayf("%s", b[:n])
		d.did("fchmod", unix.Fchmod(fd, 0o600))
		d.did("ftruncate", unix.Ftruncate(fd, 2))
		again, err := unix.Open(fdPath(fd), unix.O_RDONLY, 0)
		d.did("open by /proc", err)
		n, err = unix.Pread(again, b, 0)
		d.did("read", err)
		d.sayf("%s", b[:n])
		unix.Close(again)
		d.did("link", unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, d.path("g"), unix.AT_SYMLINK_FOLLOW))
		d.write("f", "another")
		n, err = unix.Pread(fd, b, 0)
		d.did("read the old one", err)
		d.sayf("%s", b[:n])
		unix.Close(fd)
	}},
	{"extended attributes", func(d *dirScript) {
		d.write("f", "")
		unix.Symlink("f", d.path("s"))
		unix.Mkdir(d.path("d"), 0o755)
		for _, n := range []string{"f", "s", "d"} {
			for _, a := range []string{"user.a", "trusted.b", "security.c", "nonsense", "system.x"} {
				d.did("set "+n+" "+a, unix.Lsetxattr(d.path(n), a, []byte("value of "+a), 0))
			}
			d.did("create", unix.Lsetxattr(d.path(n), "trusted.b", []byte("x"), unix.XATTR_CREATE))
			d.did("replace", unix.Lsetxattr(d.path(n), "trusted.z", []byte("x"), unix.XATTR_REPLACE))
			d.did("empty", unix.Lsetxattr(d.path(n), "trusted.empty", nil, 0))
			b := make([]byte, 1000)
			size, err := unix.Llistxattr(d.path(n), b)
			d.did("list", err)
			names := strings.Split(string(b[:max(size, 0)]), "\x00")
			slices.Sort(names)
			d.sayf("%q", names)
			for _, a := range []string{"user.a", "trusted.b", "trusted.empty", "user.none"} {
				size, err := unix.Lgetxattr(d.path(n), a, b)
				d.did("get", err)
				d.sayf("%q", b[:max(size, 0)])
				size, err = unix.Lgetxattr(d.path(n), a, nil)
				d.did(fmt.Sprintf("size %d", size), err)
				_, err = unix.Lgetxattr(d.path(n), a, b[:1])
				d.did("short", err)
			}
			d.did("remove", unix.Lremovexattr(d.path(n), "trusted.b"))
			d.did("remove again", unix.Lremovexattr(d.path(n), "trusted.b"))
		}
		d.did("large", unix.Setxattr(d.path("f"), "user.large", bytes.Repeat([]byte("l"), 3000), 0))
		d.did("too large", unix.Setxattr(d.path("f"), "user.huge", make([]byte, 70000), 0))
	}},
	{"flags of files", func(d *dirScript) {
		d.write("f", "x")
		unix.Mkdir(d.path("d"), 0o755)
		for _, n := range []string{"f", "d"} {
			fd := d.open(n, unix.O_RDONLY, 0)
			const noDump, immutable, compressed = 0x40, 0x10, 0x4
			have, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
			d.did("get", err)
			for _, set := range []int{noDump, immutable, 0} {
				d.did(fmt.Sprintf("set %#x", set), unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, have&^(noDump|immutable)|set))
				now, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
				d.did("get", err)
				d.sayf("%#x", now&(noDump|immutable|compressed))
				d.did("rename", unix.Rename(d.path(n), d.path(n+"2")))
				unix.Rename(d.path(n+"2"), d.path(n))
			}
			_, err = unix.IoctlGetInt(fd, fsIocGetVersion)
			d.did("get version", err)
			_, err = unix.IoctlGetInt(fd, unix.TCGETS)
			d.did("not a terminal", err)
			unix.Close(fd)
		}
	}},
	{"files that can only be appended to", func(d *dirScript) {
		const appendOnly = 0x20
		d.write("f", "old")
		lk := d.open("f", unix.O_RDONLY, 0)
		defer unix.Close(lk)
		have, err := unix.IoctlGetInt(lk, unix.FS_IOC_GETFLAGS)
		d.did("get", err)
		d.did("set", unix.IoctlSetPointerInt(lk, unix.FS_IOC_SETFLAGS, have|appendOnly))
		defer unix.IoctlSetPointerInt(lk, unix.FS_IOC_SETFLAGS, have)
		for _, o := range []struct {
			how   string
			flags int
		}{{"to write", unix.O_WRONLY}, {"to read and write", unix.O_RDWR}, {"to truncate", unix.O_WRONLY | unix.O_APPEND | unix.O_TRUNC}, {"to read and truncate", unix.O_RDONLY | unix.O_TRUNC}} {
			_, err := unix.Open(d.path("f"), o.flags, 0)
			d.did("open "+o.how, err)
		}
		for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_CREAT} {
			fd := d.open("f", flags|unix.O_APPEND, 0)
			_, err := unix.Write(fd, []byte(" more"))
			d.did("append", err)
			_, err = unix.Pwrite(fd, []byte(" at the end"), 1)
			d.did("pwrite", err)
			d.did("ftruncate", unix.Ftruncate(fd, 1))
			d.did("punch", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1))
			d.did("fsync", unix.Fsync(fd))
			unix.Close(fd)
		}
		d.did("truncate", unix.Truncate(d.path("f"), 1))
		d.did("rename", unix.Rename(d.path("f"), d.path("g")))
		d.did("link", unix.Link(d.path("f"), d.path("g")))
		d.did("unlink", unix.Unlink(d.path("f")))
		b, err := os.ReadFile(d.path("f"))
		d.did("read", err)
		d.sayf("%s", b)
	}},
	{"statfs", func(d *dirScript) {
		var st unix.Statfs_t
		d.did("statfs", unix.Statfs(d.dir, &st))
		d.sayf("%d %d %d %d", st.Bsize, st.Frsize, st.Namelen, st.Blocks)
	}},
	{"running a program", func(d *dirScript) {
		exe, err := os.ReadFile("/bin/true")
		if err != nil {
			d.t.Fatal(err)
		}
		os.WriteFile(d.path("prog"), exe, 0o755)
		p, err := os.StartProcess(d.path("prog"), []string{"prog"}, &os.ProcAttr{})
		d.did("run", err)
		if err == nil {
			st, err := p.Wait()
			d.did("wait", err)
			d.sayf("%v", st)
		}
		os.Chmod(d.path("prog"), 0o644)
		_, err = os.StartProcess(d.path("prog"), []string{"prog"}, &os.ProcAttr{})
		d.did("run without x", err)
	}},
	{"names", func(d *dirScript) {
		odd := []string{"a b", "ä", "\xff\xfe", "a\nb", "...", " ", "-", strings.Repeat("n", 255), ".hidden", ".dmxfs"}
		for _, n := range odd {
			d.did("create "+n, os.WriteFile(d.path(n), nil, 0o600))
		}
		es, err := os.ReadDir(d.dir)
		d.did("list", err)
		for _, e := range es {
			d.sayf("%q", e.Name())
		}
	}},
	{"synchronous files", func(d *dirScript) {
		for _, flag := range []int{unix.O_SYNC, unix.O_DSYNC, unix.O_NOATIME, unix.O_NONBLOCK} {
			fd := d.open("f", unix.O_RDWR|unix.O_CREAT|flag, 0o600)
			_, err := unix.Write(fd, []byte("data"))
			d.did("write", err)
			d.did("fsync", unix.Fsync(fd))
			d.did("fdatasync", unix.Fdatasync(fd))
			d.did("syncfs", unix.Syncfs(fd))
			unix.Close(fd)
		}
		d.show("f")
	}},
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
	m := mount(t)
	native := tempDir(t)
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	for _, s := range scenarios {
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
