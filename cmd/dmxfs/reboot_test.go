package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A host that was rebooted has another boot ID: that a daemon held a lock file
// in the former boot proves nothing, since the state directory may be a copy.

// canReboot lets mounts that are made in another mount namespace be seen here,
// and taken away again.
func (c *testCluster) canReboot() {
	c.t.Helper()
	needTool(c.t, "unshare", "mount")
	if err := unix.Mount(c.dir, c.dir, "", unix.MS_BIND, ""); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := unix.Unmount(c.dir, unix.MNT_DETACH); err != nil {
			c.t.Errorf("unmount %s: %v", c.dir, err)
		}
	})
	if err := unix.Mount("", c.dir, "", unix.MS_SHARED, ""); err != nil {
		c.t.Fatal(err)
	}
}

// rebooted makes cmd see another boot ID.
func (m *testMount) rebooted(cmd *exec.Cmd) {
	m.c.t.Helper()
	file := filepath.Join(m.c.dir, "boot-"+m.boot)
	if err := os.WriteFile(file, []byte(m.boot+"\n"), 0o644); err != nil {
		m.c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		m.c.t.Fatal(err)
	}
	script := "mount --make-rprivate /proc && mount --bind " + file + ` /proc/sys/kernel/random/boot_id && exec "$@"`
	cmd.Args = append([]string{"unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh", self}, cmd.Args[1:]...)
	if cmd.Path, err = exec.LookPath("unshare"); err != nil {
		m.c.t.Fatal(err)
	}
}

const otherBoot = "11111111-2222-3333-4444-555555555555"

// One host reboots: its locks come free when they must have ended, not sooner.
func TestReboot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	c.canReboot()
	for range 2 {
		c.add().mount()
	}
	c.awaitMembers(2)
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("hold", "flock", "f")
	a.held("f", 1)
	wait := b.helper("take", "flock", "f")
	b.blocked("f", 1)
	began := time.Now()
	a.kill()
	hold.signal(unix.SIGKILL)
	c.run("unmount", a.dir) // as a reboot does
	a.boot = otherBoot
	a.mount()
	if out, code := wait.wait(); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	d := time.Since(began)
	t.Logf("its lock came free after %v", d)
	if d < 4500*time.Millisecond {
		t.Errorf("the lock came free after %v: the former self was taken for dead", d)
	}
	c.awaitMembers(2)
	for _, r := range b.journal("--event", "leave") {
		if strings.Contains(r.Reason, "it was restarted") {
			t.Errorf("without proof: %s", r.Reason)
		}
	}
	a.lost("f", hold.cmd.Process.Pid)
}

// All hosts reboot, with their state directories.
func TestAllReboot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	c.canReboot()
	for range 3 {
		c.add().mount()
	}
	c.awaitMembers(3)
	pids := map[*testMount]int{}
	for _, m := range c.mounts {
		file := filepath.Base(m.dir) + "-file"
		p := m.helper("hold", "flock", file)
		m.held(file, 1)
		pids[m] = p.cmd.Process.Pid
	}
	for _, m := range c.mounts {
		m.kill()
	}
	for _, m := range c.mounts {
		_ = unix.Kill(pids[m], unix.SIGKILL)
		await(t, "the dead mount is taken away", func() bool { _, err := c.try("unmount", m.dir); return err == nil || !m.mounted() })
		m.boot = otherBoot
	}
	began := time.Now()
	c.mounts[0].mount()
	t.Logf("the first mount was usable after %v", time.Since(began))
	c.mounts[1].mount()
	c.mounts[2].mount()
	c.awaitMembers(3)
	for _, m := range c.mounts {
		file := filepath.Base(m.dir) + "-file"
		if n := m.count(file, "held"); n != 0 {
			t.Errorf("%d locks are held of %s", n, file)
		}
		m.lost(file, pids[m])
	}
}
