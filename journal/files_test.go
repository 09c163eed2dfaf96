package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() { children["files"] = childFiles }

// childFiles uses up all file descriptors again and again, as clients of the
// daemon can, while it appends.
func childFiles(args []string) error {
	j, err := Open(args[0], testOptions())
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: 256}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, sick := 0, 0
	for range 12 {
		var fs []*os.File
		for {
			f, err := os.Open(os.DevNull)
			if errors.Is(err, unix.EMFILE) {
				break
			} else if err != nil {
				return err
			}
			fs = append(fs, f)
		}
		// More than a memory table takes, but what the buffer can hold.
		for range 60_000 {
			r := sample(n, 1000)
			r.Reason = samplePaths[n*7919%1000] + fmt.Sprint(n*1299709)
			j.Append(r)
			n++
		}
		if err := j.Sync(ctx); err != nil {
			if !errors.Is(err, unix.EMFILE) {
				return err
			}
			sick++
		}
		for _, f := range fs {
			f.Close()
		}
		for j.Sync(ctx) != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("not healthy again: %w", j.Healthy())
			}
		}
	}
	if err := j.Close(); err != nil {
		return err
	}
	if j, err = OpenReadOnly(args[0], Options{}); err != nil {
		return err
	}
	got := 0
	if err := j.Query(ctx, Filter{}, func(Record) error { got++; return nil }); err != nil {
		return err
	}
	fmt.Printf("refused %d times; %d records of %d\n", sick, got, n)
	if got != n || sick == 0 {
		return errors.New("not as expected")
	}
	return j.Close()
}

// Without file descriptors Badger would end the process, or lose a table.
func TestNoFileDescriptors(t *testing.T) {
	c := startChild(t, func(*exec.Cmd) {}, "files", t.TempDir())
	for c.out.Scan() {
		t.Log(c.out.Text())
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, c.err)
	}
}
