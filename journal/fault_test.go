//go:build linux && amd64

package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A page that the disk cannot take just when Badger writes to it does not end the
// process: history is kept in memory from then on, and what was written before is
// there when the journal is opened anew.
func TestPageFaultIsSurvived(t *testing.T) {
	dir := t.TempDir()
	o := testOptions()
	o.retry = time.Millisecond
	j, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	add := func(n int) {
		for i := range n {
			r := sample(i, 100)
			r.Request += 100
			j.Append(r)
		}
	}
	last := func() (n uint64) {
		t.Helper()
		if err := j.Query(context.Background(), Filter{Last: 1}, func(r Record) error { n = r.Seq; return nil }); err != nil {
			t.Error(err)
		}
		return n
	}
	add(1000)
	syncNow(t, j)
	before := last()

	// The log ends where its map does not: as a hole on a full disk.
	s := j.st.(*badgerStore)
	if err := os.Truncate(s.memPath(s.mem), 0); err != nil {
		t.Fatal(err)
	}
	add(1000)
	if err := j.Sync(context.Background()); !errors.Is(err, errFault) {
		t.Errorf("Sync: %v, want %v", err, errFault)
	}
	if err := j.Healthy(); !errors.Is(err, errFault) {
		t.Errorf("Healthy: %v, want %v", err, errFault)
	}
	add(1000)
	if n := last(); n != before+2000 {
		t.Errorf("the last record is %d, want %d", n, before+2000)
	}
	if err := j.Close(); !errors.Is(err, errFault) {
		t.Errorf("Close: %v, want %v", err, errFault)
	}

	j, err = Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Healthy(); err != nil {
		t.Errorf("opened anew: %v", err)
	}
	if n := last(); n < before {
		t.Errorf("the last record is %d, want %d at least", n, before)
	}
	add(10)
	syncNow(t, j)
}

// childHole fills a small disk to its last byte, and then writes all the same, as
// if the disk had been filled just when it had been looked at.
func childHole(args []string) error {
	dir := args[0]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		return err
	}
	path, full := filepath.Join(dir, "journal"), filepath.Join(dir, "full")
	j, err := Open(path, testOptions())
	if err != nil {
		return err
	}
	db := j.dir.db()
	if err := j.Close(); err != nil {
		return err
	}
	s, err := openBadgerStore(db, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := fillDisk(full); err != nil {
		return err
	}
	w := blockWriter{node: "n1", next: 1 << 20}
	var reason [4000]byte
	rnd := rand.New(rand.NewPCG(1, 0))
	for i := 0; err == nil; i++ {
		if i == 20_000 {
			return errors.New("80 MB are written to a full disk")
		}
		r := sample(i, 100)
		for k := range reason {
			reason[k] = byte(rnd.Uint32()) // which nothing makes shorter
		}
		r.Seq, r.Reason = 1<<20+uint64(i), string(reason[:])
		w.reset()
		w.add(&r)
		w.finish()
		err = s.write(w.pairs(nil))
	}
	if !errors.Is(err, errFault) {
		return fmt.Errorf("write: %w", err)
	}
	if err := s.room(); !errors.Is(err, errFault) {
		return fmt.Errorf("room: %w", err)
	}
	if err := os.Remove(full); err != nil {
		return err
	}
	fmt.Println("closed:", s.close())
	if j, err = Open(path, testOptions()); err != nil {
		return err
	}
	n := 0
	if err := j.Query(context.Background(), Filter{}, func(Record) error { n++; return nil }); err != nil {
		return err
	}
	j.Append(sample(0, 100))
	if err := j.Sync(context.Background()); err != nil {
		return err
	}
	fmt.Printf("%d records are left; %+v\n", n, j.Recovery())
	return j.Close()
}

// Nor does a disk that is full while Badger makes a table, in a goroutine of its
// own.
func TestFullDiskBehindTheCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	c := startChild(t, func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}, "hole", t.TempDir())
	for c.out.Scan() {
		t.Log(c.out.Text())
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, c.err)
	}
}

func init() { children["hole"] = childHole }
