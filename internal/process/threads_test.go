package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Where a thread cannot be interrupted execve(2) would wait for it.
func TestStuckThreads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, x := range []struct{ stat, wchan, syscall string }{
		{"1 (a) R 0", "0", "running"},
		{"2 (b) D) S 0", "futex_wait_queue", "202 0x1"},
		{"3 (c) D 0", "folio_wait_bit", "1 0x1"},
		{"4 (d) S 0", "request_wait_answer", fmt.Sprint(unix.SYS_FSTATFS, " 0x1")},
		{"5 (e) S 0", "request_wait_answer", fmt.Sprint(unix.SYS_OPENAT, " 0x1")},
	} {
		thread := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(thread, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": x.stat, "wchan": x.wchan, "syscall": x.syscall} {
			if err := os.WriteFile(filepath.Join(thread, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, err := stuckThreads(dir); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	// This process has threads that write to a disk, for tests beside this one.
	for began := time.Now(); AwaitThreads(t.Context()) != nil; {
		if time.Since(began) > time.Minute {
			t.Fatal("threads of this process wait for a disk all the time")
		}
	}
}
