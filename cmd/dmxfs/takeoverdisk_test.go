package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// There is not a byte left on the storage, or on the disk of the state directory, when daemons
// are killed: the next ones go on, with all locks.
func TestTakeoverWithAFullDisk(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for _, full := range []string{"storage", "state"} {
		side.run(t, full, func(t *testing.T) {
			c := newCluster(t, 0)
			disk := c.src
			if full == "storage" {
				if err := os.Remove(c.src); err != nil {
					t.Fatal(err)
				}
				smallDisk(t, disk, 2)
			} else {
				disk = filepath.Join(c.dir, "disk")
				smallDisk(t, disk, 160)
			}
			a, b := c.add("--takeover"), c.add("--takeover")
			if full == "state" {
				a.state = filepath.Join(disk, "state")
			}
			a.mount()
			b.mount()
			c.awaitMembers(2)
			if out, code := a.sh("touch held"); code != 0 {
				t.Fatal(out)
			}
			hold := a.helper("hold", "flock", "held")
			a.held("held", 1)
			wait := b.helper("take", "flock", "held")
			b.blocked("held", 1)
			free := fill(t, disk)
			for i := range 2 {
				a.killed(unix.SIGKILL)
				fill(t, disk) // what was under way may have left some
				if full == "storage" {
					b.killed(unix.SIGKILL)
					fill(t, disk)
				}
				c.awaitMembers(2)
				if hold.ended() || wait.ended() {
					t.Fatalf("round %d: %s%s", i, hold.out.String(), wait.out.String())
				}
				if n := a.count("held", "held"); n != 1 {
					t.Errorf("round %d: %d locks are held", i, n)
				}
			}
			hold.signal(unix.SIGKILL)
			if out, code := wait.wait(); code != 0 {
				t.Errorf("who waited: %d %s", code, out)
			}
			free()
			for _, m := range c.mounts {
				await(t, "it is well", func() bool { s, err := m.status(); return err == nil && s.Healthy })
				if r := m.journal("--event", "lost,fenced"); len(r) > 0 {
					t.Errorf("lost: %+v", r)
				}
			}
		})
	}
}
