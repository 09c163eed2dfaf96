package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// dataScenarios are about what is in files, and what else belongs to them.
var dataScenarios = []scenario{
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
