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
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/sigbus"
)

// A page that the disk cannot take just when Badger writes to it neither ends the
// process nor the journal: it goes on when the database was opened anew, and nothing is
// lost.
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
	faults := sigbus.Faults()
	add(1000)
	if err := j.Sync(context.Background()); !errors.Is(err, errFault) {
		t.Errorf("Sync: %v, want %v", err, errFault)
	}
	if sigbus.Faults() == faults {
		t.Fatal("there was no page fault")
	}
	if n := last(); n != before+1000 {
		t.Errorf("the last record is %d, want %d", n, before+1000)
	}
	add(1000)
	for j.Sync(context.Background()) != nil { // it is tried again soon
		runtime.Gosched()
	}
	if err := j.Healthy(); err != nil {
		t.Errorf("Healthy: %v", err)
	}
	if n, all := notesOfMending(t, j); n != 1 || all != int(before)+2001 {
		t.Errorf("%d notes, %d records in all, want 1 and %d", n, all, before+2001)
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}

	j, err = Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if r := j.Recovery(); len(r.Damaged) > 0 || r.Rebuilt != "" {
		t.Errorf("opened anew: %+v", r)
	}
	if n, all := notesOfMending(t, j); n != 1 || all < int(before)+2001 {
		t.Errorf("after that %d notes, %d records in all", n, all)
	}
}

// notesOfMending is how many records tell that the database was opened anew, and how
// many there are.
func notesOfMending(t *testing.T, j *Journal) (notes, all int) {
	t.Helper()
	if err := j.Query(context.Background(), Filter{}, func(r Record) error {
		all++
		if r.Event == Note && strings.Contains(r.Reason, "opened anew") {
			notes++
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	return notes, all
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
	if err := writeUntilFault(s, &w); err != nil {
		return err
	}
	if err := s.room(); !errors.Is(err, errFault) || !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("room: %w", err)
	}
	if err := os.Remove(full); err != nil {
		return err
	}
	s.remake = func() (string, error) { return (&directory{path: path}).rebuild(s.log) }
	for began := time.Now(); ; runtime.Gosched() {
		if err = s.room(); err == nil {
			break
		}
		if time.Since(began) > 10*time.Second {
			return fmt.Errorf("room on a disk with space: %w", err)
		}
	}
	if err := errors.Join(s.write(w.pairs(nil)), s.sync(), s.close()); err != nil {
		return err
	}
	written := int(w.next - 1<<20)
	if j, err = Open(path, testOptions()); err != nil {
		return err
	}
	n := 0
	if err := j.Query(context.Background(), Filter{}, func(r Record) error {
		if r.Seq >= 1<<20 && r.Seq < w.next {
			n++
		}
		return nil
	}); err != nil {
		return err
	}
	if n != written {
		return fmt.Errorf("%d records of %d are left; %+v", n, written, j.Recovery().Damaged)
	}
	j.Append(sample(0, 100))
	if err := j.Sync(context.Background()); err != nil {
		return err
	}
	fmt.Printf("%d records are left; %+v\n", n, j.Recovery())
	return j.Close()
}

// writeUntilFault writes what nothing makes shorter until there is a page fault.
func writeUntilFault(s *badgerStore, w *blockWriter) (err error) {
	var reason [4000]byte
	rnd := rand.New(rand.NewPCG(1, 0))
	for i := 0; err == nil; i++ {
		if i == 20_000 {
			return errors.New("80 MB are written to a full disk")
		}
		r := sample(i, 100)
		for k := range reason {
			reason[k] = byte(rnd.Uint32())
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
	return nil
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
