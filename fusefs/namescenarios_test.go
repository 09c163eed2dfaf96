package fusefs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// nameScenarios are about names, and what is known of a file without what is in it.
var nameScenarios = []scenario{
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
		d.sayf("has it: %v, now: %v", a.Mask&unix.STATX_BTIME != 0, a.Btime.Sec > 0 && a.Btime.Sec <= a.Mtime.Sec && a.Mtime.Sec-a.Btime.Sec < 60)
		unix.Chmod(d.path("f"), 0o600)
		d.write("f", "xy")
		unix.Statx(unix.AT_FDCWD, d.path("f"), 0, unix.STATX_BTIME, &b)
		d.sayf("the same: %v", a.Btime == b.Btime)
	}},
}
