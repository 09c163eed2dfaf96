package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkBesideLoopback measures calls on a mount with a Locker that grants
// everything at once, beside the same calls on go-fuse's own loopback, turn by
// turn, so that all meet the same noise. The times are medians of one call;
// what counts is the ratio. The time that the server computes is a mean, and is
// less disturbed by whatever else the machine does. The loopback is measured as it comes, with
// passthrough, where the kernel reads and writes the backing files without
// asking, and without: a mount that has to keep programs from writing cannot
// use it.
func BenchmarkBesideLoopback(b *testing.B) {
	needFuse(b)
	needRoot(b)
	base := tempDir(b)
	mounts := [...]string{filepath.Join(base, "mnt"), filepath.Join(base, "loopback"), filepath.Join(base, "passthrough")}
	var servers [len(mounts)]*testMount
	for i, dir := range mounts {
		back := filepath.Join(base, fmt.Sprint("back", i))
		for _, d := range []string{dir, back} {
			must(b, os.Mkdir(d, 0o755))
		}
		writeFile(b, filepath.Join(back, "f"), "content")
		must(b, os.WriteFile(filepath.Join(back, "big"), make([]byte, 64<<20), 0o644))
		must(b, os.Mkdir(filepath.Join(back, "many"), 0o755))
		for j := range manyFiles {
			writeFile(b, filepath.Join(back, "many", fmt.Sprint(j)), "")
		}
		servers[i] = mountConfig(b, childConfig{
			Root: back, Mount: dir, NullLocker: true, Loopback: i > 0, Passthrough: i == 2, LoopbackTTL: time.Second,
		})
	}
	for _, c := range benchCalls {
		b.Run(c.name, func(b *testing.B) {
			var call [len(mounts)]func(int)
			for i, dir := range mounts {
				var end func()
				call[i], end = c.prepare(b, dir)
				defer end()
			}
			var times [len(mounts)][]time.Duration
			var cpu [len(mounts)]float64
			for i := range cpu {
				cpu[i] = -float64(ask[int64](servers[i], "CPU", None{}))
			}
			for n := 0; b.Loop(); n++ {
				for i := range call {
					start := time.Now()
					call[i](n)
					times[i] = append(times[i], time.Since(start))
				}
			}
			var median [len(mounts)]float64
			for i := range times {
				slices.Sort(times[i])
				median[i] = float64(times[i][len(times[i])/2].Nanoseconds()) / 1e3
			}
			for i := range cpu {
				cpu[i] = (cpu[i] + float64(ask[int64](servers[i], "CPU", None{}))) / float64(len(times[i]))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median[0], "µs")
			b.ReportMetric(median[1], "µs-loopback")
			b.ReportMetric(median[2], "µs-passthrough")
			b.ReportMetric(median[0]/median[1], "ratio")
			b.ReportMetric(cpu[0], "cpu-µs")
			b.ReportMetric(cpu[1], "cpu-µs-loopback")
		})
	}
}

const manyFiles = 1000

type benchCall struct {
	name    string
	prepare func(b *testing.B, dir string) (call func(n int), end func())
}

// onFile is a call that needs one open file.
func onFile(flags int, call func(fd int, n int) error) func(*testing.B, string) (func(int), func()) {
	return func(b *testing.B, dir string) (func(int), func()) {
		fd, err := unix.Open(filepath.Join(dir, "f"), flags, 0)
		must(b, err)
		return func(n int) { must(b, call(fd, n)) }, func() { unix.Close(fd) }
	}
}

// onDir is a call that needs a directory.
func onDir(call func(dir string, n int) error) func(*testing.B, string) (func(int), func()) {
	return func(b *testing.B, dir string) (func(int), func()) {
		return func(n int) { must(b, call(dir, n)) }, func() {}
	}
}

func openClose(name string, flags int) func(string, int) error {
	return func(dir string, n int) error {
		fd, err := unix.Open(filepath.Join(dir, name), flags, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

var benchBuffer = make([]byte, 128<<10)

var benchCalls = []benchCall{
	{"flock", onFile(unix.O_RDONLY, func(fd, n int) error {
		if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
			return err
		}
		return unix.Flock(fd, unix.LOCK_UN)
	})},
	{"fcntl", onFile(unix.O_RDWR, func(fd, n int) error {
		lk := unix.Flock_t{Type: unix.F_WRLCK, Start: 10, Len: 10}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &lk); err != nil {
			return err
		}
		lk.Type = unix.F_UNLCK
		return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lk)
	})},
	{"open for reading", onDir(openClose("f", unix.O_RDONLY))},
	{"open for writing", onDir(openClose("f", unix.O_WRONLY))},
	{"open and read", onDir(func(dir string, n int) error {
		_, err := os.ReadFile(filepath.Join(dir, "f"))
		return err
	})},
	{"stat", onDir(func(dir string, n int) error {
		var st unix.Stat_t
		return unix.Stat(filepath.Join(dir, "f"), &st)
	})},
	{"stat many", onDir(func(dir string, n int) error {
		var st unix.Stat_t
		return unix.Stat(filepath.Join(dir, "many", fmt.Sprint(n%manyFiles)), &st)
	})},
	{"list many", onDir(func(dir string, n int) error {
		es, err := os.ReadDir(filepath.Join(dir, "many"))
		if err == nil && len(es) != manyFiles {
			err = fmt.Errorf("%d entries", len(es))
		}
		return err
	})},
	{"create, write and remove", onDir(func(dir string, n int) error {
		name := filepath.Join(dir, fmt.Sprint("new", n))
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, benchBuffer[:1000]); err != nil {
			return err
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
		return unix.Unlink(name)
	})},
	{"write 4 KiB", onFile(unix.O_RDWR, func(fd, n int) error {
		_, err := unix.Pwrite(fd, benchBuffer[:4096], int64(n%1024)*4096)
		return err
	})},
	{"write 64 MiB", onFile(unix.O_RDWR, func(fd, n int) error {
		for off := 0; off < 64<<20; off += len(benchBuffer) {
			if _, err := unix.Pwrite(fd, benchBuffer, int64(off)); err != nil {
				return err
			}
		}
		return nil
	})},
	{"read 64 MiB", onDir(func(dir string, n int) error {
		fd, err := unix.Open(filepath.Join(dir, "big"), unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// What this mount has cached goes; the storage keeps it.
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		for off := 0; off < 64<<20; off += len(benchBuffer) {
			if _, err := unix.Pread(fd, benchBuffer, int64(off)); err != nil {
				return err
			}
		}
		return nil
	})},
}
