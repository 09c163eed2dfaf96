package journal

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

func init() {
	children["power"] = childPower
	children["powercheck"] = childPowerCheck
}

// mountImage mounts the file system in a file, for this process only.
func mountImage(image, dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

func childPower(args []string) error {
	if err := mountImage(args[0], args[1]); err != nil {
		return err
	}
	return childAppend([]string{filepath.Join(args[1], "journal"), "4194304"})
}

// childPowerCheck opens the journal on a file system after a power cut.
func childPowerCheck(args []string) error {
	if err := mountImage(args[0], args[1]); err != nil {
		return err
	}
	o := testOptions()
	o.MaxBytes = 4 << 20
	j, err := Open(filepath.Join(args[1], "journal"), o)
	if err != nil {
		return err
	}
	last := uint64(0)
	err = j.Query(context.Background(), Filter{}, func(r Record) error {
		if r.Event != Lost && r.Event != Withdrawn && r.Event != Recovered {
			last = r.Seq
		}
		return nil
	})
	if err != nil {
		return err
	}
	if r := j.Recovery(); len(r.Damaged) > 0 || r.Rebuilt != "" {
		return fmt.Errorf("%+v", r)
	}
	fmt.Println(last)
	return j.Close()
}

// What Sync promised is there after a power cut: the writer is stopped, and
// what has reached the block device by then is looked at.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("formats disks")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount an image of a disk")
	}
	for _, tool := range []string{"mkfs.ext4", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ns := func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS} }
	for range long.Or(2, 4) {
		dir := t.TempDir()
		image, cut, mnt := filepath.Join(dir, "image"), filepath.Join(dir, "cut"), filepath.Join(dir, "mnt")
		if err := os.Mkdir(mnt, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(image, 100<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		c := startChild(t, ns, "power", image, mnt)
		if !c.out.Scan() {
			c.Wait()
			t.Skipf("no disk image can be mounted here: %s", c.err)
		}
		line := c.out.Text()
		for range rnd.IntN(400) {
			line = c.line(t)
		}
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("not stopped: %v, %v", status, err)
		}
		if err := copyFile(cut, image); err != nil {
			t.Fatal(err)
		}
		var safe, got uint64
		if _, err := fmt.Sscanf(line, "synced %d", &safe); err != nil {
			t.Fatal(err)
		}
		c.Process.Kill()
		c.Wait()

		check := startChild(t, ns, "powercheck", cut, mnt)
		if _, err := fmt.Sscan(check.line(t), &got); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d records were safe, %d are there", safe, got)
		if got < safe {
			t.Errorf("%d records are lost that were synced", safe-got)
		}
		if err := check.Wait(); err != nil {
			t.Errorf("%v: %s", err, check.err)
		}
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, in)
	return err
}
