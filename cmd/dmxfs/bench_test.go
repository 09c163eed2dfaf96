package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// serveLoopback is go-fuse's own pass-through, with the settings of its
// example: what a mount without locks between hosts costs.
func serveLoopback(args []string) error {
	source, mountpoint := args[0], args[1]
	root, err := fs.NewLoopbackRoot(source)
	if err != nil {
		return err
	}
	ttl := time.Second
	server, err := fs.Mount(mountpoint, root, &fs.Options{
		AttrTimeout: &ttl, EntryTimeout: &ttl,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, EnableLocks: true, FsName: source, Name: "loopback"},
	})
	if err != nil {
		return err
	}
	server.Wait()
	return nil
}

// loopback mounts dir by serveLoopback, in a process of its own.
func loopback(tb testing.TB, source string) string {
	tb.Helper()
	mountpoint := filepath.Join(tb.TempDir(), "loopback")
	if err := os.Mkdir(mountpoint, 0o755); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", source, mountpoint)
	cmd.Env = append(os.Environ(), helperEnv+"=loopback")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = unix.Unmount(mountpoint, unix.MNT_DETACH)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(10 * time.Second); ; waitALittle() {
		all, err := mountinfo.Read()
		if err != nil {
			tb.Fatal(err)
		}
		if _, ok := mountinfo.At(all, mountpoint); ok {
			return mountpoint
		}
		if time.Now().After(end) {
			tb.Fatal("the loopback does not mount")
		}
	}
}

// op is something to be timed, on a file that is open and by its path.
type op struct {
	name string
	do   func(fd int, path string) error
}

// rangeAt is where the next of many ranges begins.
var rangeAt int64

var benchOps = []op{
	{"flock lock+unlock", func(fd int, _ string) error {
		if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
			return err
		}
		return unix.Flock(fd, unix.LOCK_UN)
	}},
	{"fcntl lock+unlock", func(fd int, _ string) error {
		l := unix.Flock_t{Type: unix.F_WRLCK, Len: 100}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &l); err != nil {
			return err
		}
		l.Type = unix.F_UNLCK
		return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &l)
	}},
	{"fcntl lock+unlock of many ranges", func(fd int, _ string) error {
		rangeAt = (rangeAt + 300) % 3000 // all of them in the calls that are not timed
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: rangeAt, Len: 100}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &l); err != nil {
			return err
		}
		l.Type = unix.F_UNLCK
		return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &l)
	}},
	{"open+close for reading", openClose(unix.O_RDONLY)},
	{"open+close for writing", openClose(unix.O_RDWR)},
	{"stat", func(_ int, path string) error {
		var st unix.Stat_t
		return unix.Stat(path, &st)
	}},
}

func openClose(flags int) func(int, string) error {
	return func(_ int, path string) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// BenchmarkBesideLoopback times calls on one of several nodes, beside the
// same calls on go-fuse's loopback, in turns, so that a noisy machine is noisy
// for both. The figures to look at are the ratios: times mean little elsewhere.
func BenchmarkBesideLoopback(b *testing.B) {
	for _, nodes := range []int{2, 3} {
		c := newCluster(b, nodes)
		dir := filepath.Join(c.dir, "plain")
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		plain := loopback(b, dir)
		for _, o := range benchOps {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, o.name), func(b *testing.B) {
				compare(b, o, filepath.Join(plain, "f"), c.mounts[0].path("f"))
			})
		}
		for _, m := range c.mounts {
			m.remove()
		}
	}
}

// compare runs o on two files in turns, in rounds of some milliseconds.
func compare(b *testing.B, o op, plain, shim string) {
	const calls = 200
	// Programs that lock for themselves take no open locks; a process of
	// their own keeps the kinds of benchmark apart.
	round := func(path string) time.Duration {
		cmd := exec.Command("/proc/self/exe", o.name, path, fmt.Sprint(calls))
		cmd.Env = append(os.Environ(), helperEnv+"=time")
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		d, err := time.ParseDuration(string(out))
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
	// On which processors a program and a daemon are decides more about a
	// round than what they do, and stays the same for all of it: a round takes
	// one of two times, which differ by a factor of four. A median of rounds
	// is then the one or the other by chance; their mean is not.
	const rounds = 20
	var p, s time.Duration
	var n int
	for b.Loop() {
		for range rounds {
			p += round(plain)
			s += round(shim)
			n++
		}
	}
	b.ReportMetric(float64(s)/float64(p), "ratio")
	b.ReportMetric(float64(s.Nanoseconds())/1e3/float64(n), "µs/call")
	b.ReportMetric(0, "ns/op")
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// timeOp prints the median time of a call: time NAME PATH CALLS.
func timeOp(args []string) error {
	var n int
	if _, err := fmt.Sscan(args[2], &n); err != nil {
		return err
	}
	fd, err := unix.Open(args[1], unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	for _, o := range benchOps {
		if o.name != args[0] {
			continue
		}
		if !strings.Contains(o.name, "lock+unlock") {
			unix.Close(fd)
		}
		times := make([]float64, 0, n)
		for i := range n + n/10 {
			began := time.Now()
			if err := retry(func() error { return o.do(fd, args[1]) }); err != nil {
				return err
			}
			if i >= n/10 {
				times = append(times, float64(time.Since(began)))
			}
		}
		fmt.Print(time.Duration(median(times)))
		return nil
	}
	return fmt.Errorf("no operation %q", args[0])
}
