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

	"github.com/dmxfs/dmxfs/internal/long"
)

// fullDisk is a journal on a small disk, which is filled again and again.
type fullDisk struct {
	*Journal
	ctx     context.Context
	dir     string // the disk
	options Options
}

// childFull runs in a mount namespace of its own. It makes a small disk, and
// fills it again and again while it appends as fast as it can.
func childFull(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d := &fullDisk{ctx: ctx, dir: args[0], options: testOptions()}
	d.options.MaxBytes = 16 << 20
	if err := d.mount(); err != nil {
		return err
	}
	var err error
	if d.Journal, err = Open(d.journalDir(), d.options); err != nil {
		return err
	}
	stop := d.appendAlways()
	for range long.Or(3, 6) {
		if err := d.fillAndEmpty(); err != nil {
			return err
		}
	}
	total := stop()
	if err := d.Sync(ctx); err != nil {
		return err
	}
	s := d.Stats()
	if err := d.Close(); err != nil {
		return err
	}
	return d.openFull(total, s.Dropped)
}

func (d *fullDisk) journalDir() string { return filepath.Join(d.dir, "journal") }

// full is the file that fills the disk.
func (d *fullDisk) full() string { return filepath.Join(d.dir, "full") }

func (d *fullDisk) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", d.dir, "tmpfs", 0, "size=96m")
}

// appendAlways appends until stop, which says how many records these were.
func (d *fullDisk) appendAlways() (stop func() int) {
	var stopped atomic.Bool
	appended := make(chan int)
	go func() {
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		i := 0
		for ; !stopped.Load(); i++ {
			r := sample(i, 100)
			r.Request += 100
			d.Pace(false) // as the engine
			d.Append(r)
			if d.Healthy() != nil { // as the engine: no new locks
				<-again.C
			}
		}
		appended <- i
	}()
	return func() int {
		stopped.Store(true)
		return <-appended
	}
}

func (d *fullDisk) until(what string, ok func() bool) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-d.ctx.Done():
			return fmt.Errorf("waited in vain until %s; healthy: %v, %+v", what, d.Healthy(), d.Stats())
		case <-look.C:
		}
	}
	return nil
}

// fillAndEmpty fills the disk and makes room again: the journal tells so, and
// can be read meanwhile.
func (d *fullDisk) fillAndEmpty() error {
	next := d.Stats().Next
	if err := d.until("it runs", func() bool { return d.Stats().Next > next+100_000 }); err != nil {
		return err
	}
	if err := fillDisk(d.full()); err != nil {
		return err
	}
	if err := d.until("it says that the disk is full", func() bool { return d.Healthy() != nil }); err != nil {
		return err
	}
	if err := d.Healthy(); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), d.dir) {
		return fmt.Errorf("Healthy: %w", err)
	}
	if err := d.Sync(d.ctx); !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("Sync: %w", err)
	}
	// It can be read meanwhile, with what is only in memory.
	n := uint64(0)
	if err := d.Query(d.ctx, Filter{Last: 1}, func(r Record) error { n = r.Seq; return nil }); err != nil {
		return err
	}
	if n <= next {
		return fmt.Errorf("the last record is %d after %d", n, next)
	}
	if err := os.Remove(d.full()); err != nil {
		return err
	}
	return d.until("it is healthy", func() bool { return d.Healthy() == nil })
}

// openFull opens the journal on a full disk, which is refused; reading it is
// not. No more is missing than was dropped.
func (d *fullDisk) openFull(appended int, dropped uint64) error {
	if err := fillDisk(d.full()); err != nil {
		return err
	}
	if _, err := Open(d.journalDir(), d.options); !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("opened on a full disk: %w", err)
	}
	j, err := OpenReadOnly(d.journalDir(), Options{})
	if err != nil {
		return err
	}
	defer j.Close()
	got, missing := 0, 0
	last := uint64(0)
	if err := j.Query(d.ctx, Filter{}, func(r Record) error {
		if last != 0 && r.Seq != last+1 {
			missing += int(r.Seq - last - 1)
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
	fmt.Printf("%d appended, %d kept, %d dropped, %d of them among those kept\n", appended, got, dropped, missing)
	if uint64(missing) > dropped {
		return fmt.Errorf("%d records are missing, %d were dropped", missing, dropped)
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
