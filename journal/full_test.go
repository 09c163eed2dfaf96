package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childFull runs in a mount namespace of its own. It makes a small disk, and
// fills it again and again while it appends as fast as it can.
func childFull(args []string) error {
	dir := args[0]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		return err
	}
	o := testOptions()
	o.MaxBytes = 16 << 20
	j, err := Open(filepath.Join(dir, "journal"), o)
	if err != nil {
		return err
	}
	var stop atomic.Bool
	appended := make(chan int)
	go func() {
		i := 0
		for ; !stop.Load(); i++ {
			r := sample(i, 100)
			r.Request += 100
			j.Pace(false) // as the engine
			j.Append(r)
			if j.Healthy() != nil { // as the engine: no new locks
				time.Sleep(time.Millisecond)
			}
		}
		appended <- i
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	until := func(what string, ok func() bool) error {
		for !ok() {
			if ctx.Err() != nil {
				return fmt.Errorf("waited in vain until %s; healthy: %v, %+v", what, j.Healthy(), j.Stats())
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	full := filepath.Join(dir, "full")
	for range 6 {
		next := j.Stats().Next
		if err := until("it runs", func() bool { return j.Stats().Next > next+100_000 }); err != nil {
			return err
		}
		if err := fillDisk(full); err != nil {
			return err
		}
		if err := until("it says that the disk is full", func() bool { return j.Healthy() != nil }); err != nil {
			return err
		}
		if err := j.Healthy(); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), dir) {
			return fmt.Errorf("Healthy: %w", err)
		}
		if err := j.Sync(ctx); !errors.Is(err, ErrNoSpace) {
			return fmt.Errorf("Sync: %w", err)
		}
		// It can be read meanwhile, with what is only in memory.
		n := uint64(0)
		if err := j.Query(ctx, Filter{Last: 1}, func(r Record) error { n = r.Seq; return nil }); err != nil {
			return err
		}
		if n <= next {
			return fmt.Errorf("the last record is %d after %d", n, next)
		}
		if err := os.Remove(full); err != nil {
			return err
		}
		if err := until("it is healthy", func() bool { return j.Healthy() == nil }); err != nil {
			return err
		}
	}
	stop.Store(true)
	total := <-appended
	if err := j.Sync(ctx); err != nil {
		return err
	}
	s := j.Stats()
	if err := j.Close(); err != nil {
		return err
	}

	// To open it on a full disk is refused; reading it is not.
	if err := fillDisk(full); err != nil {
		return err
	}
	if _, err := Open(filepath.Join(dir, "journal"), o); !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("opened on a full disk: %w", err)
	}
	j, err = OpenReadOnly(filepath.Join(dir, "journal"), Options{})
	if err != nil {
		return err
	}
	defer j.Close()
	got, dropped := 0, 0
	last := uint64(0)
	if err := j.Query(ctx, Filter{}, func(r Record) error {
		if last != 0 && r.Seq != last+1 {
			dropped += int(r.Seq - last - 1)
		}
		last = r.Seq
		got++
		return nil
	}); err != nil {
		return err
	}
	if len(j.Recovery().Damaged) > 0 {
		return fmt.Errorf("damaged: %v", j.Recovery().Damaged)
	}
	fmt.Printf("%d appended, %d kept, %d dropped, %d of them among those kept\n", total, got, s.Dropped, dropped)
	if uint64(dropped) > s.Dropped {
		return fmt.Errorf("%d records are missing, %d were dropped", dropped, s.Dropped)
	}
	return nil
}

// fillDisk writes a file until there is no byte left.
func fillDisk(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	return nil
}

// A full disk neither kills the daemon (Badger writes through memory maps) nor
// loses what is in memory, and the journal goes on when there is space.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	c := startChild(t, func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}, "full", t.TempDir())
	for c.out.Scan() {
		t.Log(c.out.Text())
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, c.err)
	}
}
