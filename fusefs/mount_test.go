package fusefs

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountLine is what /proc/self/mounts says of the topmost mount at a path.
func mountLine(t *testing.T, dir string) string {
	t.Helper()
	last := ""
	for line := range strings.Lines(readFile(t, "/proc/self/mounts")) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == dir {
			last = strings.TrimSpace(line)
		}
	}
	return last
}

func TestWhatTheMountTableShows(t *testing.T) {
	needRoot(t)
	m := mount(t)
	f := strings.Fields(mountLine(t, m.dir))
	if len(f) < 4 || f[0] != m.back || f[2] != "fuse.dmxfs" {
		t.Fatal(f)
	}
	for _, o := range []string{"rw", "nosuid", "nodev", "default_permissions", "allow_other"} {
		if !strings.Contains(","+f[3]+",", ","+o+",") {
			t.Errorf("%s is not among %s", o, f[3])
		}
	}
	m = mount(t, func(c *childConfig) {
		c.Options = []string{"ro,noexec,dev", "suid,noatime", "fsname=the-source", "_netdev,x-systemd.requires=a"}
	})
	f = strings.Fields(mountLine(t, m.dir))
	if f[0] != "the-source" {
		t.Errorf("source %s", f[0])
	}
	for _, o := range []string{"ro", "noexec", "noatime"} {
		if !strings.Contains(","+f[3]+",", ","+o+",") {
			t.Errorf("%s is not among %s", o, f[3])
		}
	}
	if strings.Contains(f[3], "nosuid") || strings.Contains(f[3], "nodev") {
		t.Error(f[3])
	}
	if err := os.WriteFile(m.path("f"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write: %v", err)
	}
}

func TestAMountOverTheSharedDirectory(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(tempDir(t), "shared")
	must(t, os.Mkdir(dir, 0o755))
	// The directory is a mount itself, which must survive.
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	writeFile(t, filepath.Join(dir, "f"), "before")
	var before unix.Stat_t
	must(t, unix.Stat(dir, &before))
	m, err := startChild(t, childConfig{Root: dir, Mount: dir}, nil)
	must(t, err)
	if got := readFile(t, m.path("f")); got != "before" {
		t.Error(got)
	}
	var during unix.Stat_t
	must(t, unix.Stat(dir, &during))
	if during.Ino != before.Ino || during.Dev == before.Dev {
		t.Errorf("the root is %d:%d, was %d:%d", during.Dev, during.Ino, before.Dev, before.Ino)
	}
	writeFile(t, m.path("g"), "through the mount")

	// Somebody else unmounts it. Asked for once more it must leave alone what
	// is there now.
	must(t, unix.Unmount(dir, 0))
	ask[None](m, "Ended", None{})
	ask[None](m, "Unmount", false)
	ask[None](m, "Unmount", true)
	if got := readFile(t, filepath.Join(dir, "g")); got != "through the mount" {
		t.Error(got)
	}
	m.dir = filepath.Join(dir, "nothing") // is left behind, for stop to see
}

func TestUnmount(t *testing.T) {
	m := mount(t)
	writeFile(t, m.path("f"), "x")
	f, err := os.Open(m.path("f"))
	must(t, err)
	defer f.Close()
	err = m.Call("Child.Unmount", false, new(None))
	if err == nil || !strings.Contains(err.Error(), ErrBusy.Error()) || !strings.Contains(err.Error(), "fuser -m "+m.dir) {
		t.Fatalf("with an open file: %v", err)
	}
	if _, err := os.Stat(m.path("f")); err != nil {
		t.Errorf("after that: %v", err)
	}
	ask[None](m, "Unmount", true)
	if es, err := os.ReadDir(m.dir); err != nil || len(es) != 0 {
		t.Errorf("it is still there: %v %v", es, err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 0); err != nil || b[0] != 'x' { // lazily: what is open goes on
		t.Errorf("the open file: %q %v", b, err)
	}
	must(t, f.Close())
	ask[None](m, "Ended", None{})
	if c := ask[Counts](m, "Counts", None{}); c.Handles != 0 {
		t.Errorf("%+v", c)
	}
}

func TestTheEndOfTheServer(t *testing.T) {
	m := mount(t)
	writeFile(t, m.path("f"), "x")
	waiting := startProgram(t, m.dir, nil)
	fd := waiting.open("f", "rw")
	drop := m.remote("f", 2, 2)
	_ = drop
	waiting.tell("flock %d ex", fd)
	waiting.sleeping()
	m.Close() // upon which the child aborts
	if got := waiting.answer(); got != "ECONNABORTED" && got != "EINTR" && got != "ENOTCONN" {
		t.Errorf("a call under way: %s", got)
	}
	waiting.want("ENOTCONN", "read %d 0 1", fd)
	if err := <-m.exited; err != nil {
		t.Error(err)
	}
	m.exited <- nil
}

func TestWhatCannotBeMounted(t *testing.T) {
	needFuse(t)
	needRoot(t)
	dir := tempDir(t)
	writeFile(t, filepath.Join(dir, "file"), "")
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	file, err := os.Open(filepath.Join(dir, "file"))
	must(t, err)
	defer file.Close()
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{MountPoint: dir}, "no shared directory"},
		{Options{Root: root}, "no mount point"},
		{Options{Root: root, MountPoint: filepath.Join(dir, "nothing")}, "mount at " + dir + "/nothing: no such file"},
		{Options{Root: root, MountPoint: filepath.Join(dir, "file")}, "not a directory"},
		{Options{Root: file, MountPoint: dir}, "not a directory"},
		{Options{Root: root, MountPoint: dir, FileIDs: "inodes"}, `"inodes"`},
	} {
		before := countDescriptors(t)
		c.o.Log = slog.New(slog.DiscardHandler)
		umask := syscall.Umask(0)
		s, err := New(c.o)
		syscall.Umask(umask)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
		if s != nil {
			s.Unmount(true)
		}
		if after := countDescriptors(t); after != before {
			t.Errorf("%s: %d descriptors, %d before", c.want, after, before)
		}
	}
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(es)
}

// A user mounts for himself, with the help of fusermount3.
func TestWithoutPrivileges(t *testing.T) {
	needFuse(t)
	needRoot(t) // to become another user
	if _, err := os.Stat("/usr/bin/fusermount3"); err != nil {
		t.Skip("no fusermount3:", err)
	}
	if !deviceForAll(t) {
		inNamespace(t)
		return
	}
	base := tempDir(t)
	c := childConfig{Root: filepath.Join(base, "back"), Mount: filepath.Join(base, "mnt")}
	for _, d := range []string{c.Root, c.Mount} {
		must(t, os.Mkdir(d, 0o755))
		must(t, os.Chown(d, 65534, 65534))
	}
	alice := user(65534, 65534) // fusermount3 wants a name for the number
	m, err := startChild(t, c, alice)
	must(t, err)
	p := startProgram(t, m.dir, alice)
	for _, call := range []string{
		"put f text", "cat f", "mkdir d 0755", "rename f d/g", "link d/g h", "truncate h 2", "chmod h 0600", "symlink h s", "ls .",
		"unlink s", "open . rw,tmpfile",
	} {
		if got := p.do("%s", call); !strings.HasPrefix(got, "ok") {
			t.Errorf("%s: %s", call, got)
		}
	}
	fd := p.open("h", "rw")
	p.want("ok", "flock %d ex", fd)
	p.want("ok", "close %d", fd)
	if _, err := os.Stat(m.path("h")); !errors.Is(err, unix.EACCES) {
		t.Errorf("another user may look: %v", err)
	}
	busy := m.Call("Child.Unmount", false, new(None))
	if busy == nil || !strings.Contains(busy.Error(), ErrBusy.Error()) { // p works there
		t.Errorf("unmount while it is used: %v", busy)
	}
	p.end()
	if err := m.Call("Child.Unmount", false, new(None)); err != nil {
		t.Error(err)
	}
	ask[None](m, "Ended", None{})
}

func deviceForAll(t *testing.T) bool {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat("/dev/fuse", &st))
	return st.Mode&0o666 == 0o666
}

// namespaceEnv makes the test program run where every user may open /dev/fuse,
// as on most hosts.
const namespaceEnv = "DMXFS_TEST_NAMESPACE"

// inNamespace runs a test again, in a mount namespace of its own.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		t.Fatal("a device for all did not help")
	}
	device := filepath.Join(tempDir(t), "fuse")
	must(t, unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))))
	must(t, os.Chmod(device, 0o666))
	cmd := exec.Command(thisProgram, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceEnv+"="+device)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// enterNamespace is what that run does first.
func enterNamespace(device string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount(device, "/dev/fuse", "", unix.MS_BIND, "")
}

func TestTheKernelReadsAhead(t *testing.T) {
	needRoot(t)
	m := mount(t)
	id, err := mountID(m.dir)
	must(t, err)
	number, err := connectionNumber(id)
	must(t, err)
	file := mountpoint{number: number}.readAheadFile()
	if unix.Access(file, unix.W_OK) != nil {
		t.Skipf("%s cannot be written here", file)
	}
	if got := strings.TrimSpace(readFile(t, file)); got != "512" {
		t.Errorf("%s: %s", file, got)
	}
}
