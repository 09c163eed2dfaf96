package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// reservedDisk mounts an ext4 that keeps two fifths of its space for root.
func reservedDisk(t *testing.T, dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "40", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("no loop device can be had: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the disk: %v", err)
		}
	})
}

// What the storage keeps back for root is not for users, by write, fallocate or
// copy; and root still has it.
func TestTheReserveIsRoots(t *testing.T) {
	t.Parallel()
	needTool(t, "mkfs.ext4", "setpriv")
	c := newCluster(t, 0)
	c.src = filepath.Join(c.dir, "disk")
	reservedDisk(t, c.src)
	m := c.add()
	m.src = c.src
	m.mount()
	use := func(dir, how string) int64 {
		path := filepath.Join(dir, "user", "f")
		script := map[string]string{
			"write":  `head -c 60M /dev/zero > f`,
			"append": `head -c 60M /dev/zero >> f`,
			"space":  `for i in $(seq 60); do fallocate -o $((i-1))M -l 1M f || break; done`,
		}[how]
		cmd := exec.Command("setpriv", "--reuid=11000", "--regid=11000", "--clear-groups", "sh", "-c", script)
		cmd.Dir = filepath.Dir(path)
		if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), "No space left on device") {
			t.Errorf("%s in %s: %v: %s", how, dir, err, out)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		// Once in a while the kernel forgets a file that was removed up to a second
		// later, and until then its space is not free.
		await(t, "the space of what was removed is free", func() bool {
			var st unix.Statfs_t
			return unix.Statfs(c.src, &st) == nil && st.Bfree*uint64(st.Bsize) > 46<<20
		})
		return st.Blocks * 512 >> 20
	}
	if err := os.Mkdir(filepath.Join(c.src, "user"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(c.src, "user"), 11000, 11000); err != nil {
		t.Fatal(err)
	}
	bare := use(c.src, "write")
	for _, how := range []string{"write", "append", "space"} {
		here := use(m.dir, how)
		if bare < 5 || bare > 45 || here > bare+2 || here < bare-2 {
			t.Errorf("%s: a user gets %d MiB of the storage, and %d MiB through dmxfs", how, bare, here)
		}
	}
	if out, code := m.start("head -c 45M /dev/zero > root").wait(); code != 0 {
		t.Errorf("root: %d %s", code, out)
	}
}

// A daemon has no capabilities that it does not need.
func TestADaemonHasFewCapabilities(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	fenced := c.add("--fence-command", "true")
	fenced.mount()
	for _, x := range []struct {
		m    *testMount
		has  []uintptr
		hasN []uintptr
	}{
		{c.mounts[0], []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETUID}, []uintptr{unix.CAP_SYS_RESOURCE, unix.CAP_NET_ADMIN, unix.CAP_SYS_BOOT}},
		{fenced, []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}, []uintptr{unix.CAP_SYS_RESOURCE}},
	} {
		b := read(t, fmt.Sprintf("/proc/%d/status", x.m.daemon()))
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
			_, after, _ := strings.Cut(b, set+":")
			caps, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range x.has {
				if caps&(1<<n) == 0 && os.Geteuid() == 0 && ownCaps(t)&(1<<n) != 0 {
					t.Errorf("%s: %s has lost capability %d", x.m.dir, set, n)
				}
			}
			for _, n := range x.hasN {
				if caps&(1<<n) != 0 {
					t.Errorf("%s: %s has capability %d", x.m.dir, set, n)
				}
			}
		}
		if l := read(t, fmt.Sprintf("/proc/%d/limits", x.m.daemon())); !strings.Contains(l, "Max open files") {
			t.Error(l)
		}
	}
	// The root of a mount has no file that is nowhere.
	if _, err := os.Lstat(c.mounts[0].path(".go-fuse-epoll-hack")); !os.IsNotExist(err) {
		t.Errorf(".go-fuse-epoll-hack: %v", err)
	}
}

func ownCaps(t *testing.T) uint64 {
	t.Helper()
	_, after, _ := strings.Cut(read(t, "/proc/self/status"), "CapEff:")
	caps, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return caps
}
