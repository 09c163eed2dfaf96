package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var everyday = flag.Bool("everyday", false, "run BenchmarkEveryday, which takes half an hour; see make bench-everyday")

// work is what people do all day, as a shell command in a directory that has
// tree, a git work tree of 3000 files; tree.tar, the same; and big, 128 MiB.
type work struct {
	name    string
	prepare string // not timed
	command string
	cold    bool // nothing is cached
	fio     bool // the command is fio's, and what counts is its IOPS
}

var works = []work{
	{name: "tar-x", prepare: "rm -rf untarred; mkdir untarred", command: "tar xf tree.tar -C untarred"},
	{name: "find", command: "find tree -type f -size +1"},
	{name: "ls-lR", command: "ls -lR tree"},
	{name: "git-status", command: "git -C tree status"},
	{name: "grep-warm", prepare: "cat $(find tree -type f)", command: "grep -r no-such-word tree || true"},
	{name: "grep-cold", command: "grep -r no-such-word tree || true", cold: true},
	{name: "cp-r", prepare: "rm -rf copy", command: "cp -r tree copy"},
	{name: "rm-rf", prepare: "rm -rf copy; cp -r tree copy", command: "rm -rf copy"},
	{name: "append-100B-20000-times", prepare: "rm -f log", command: "dd if=/dev/zero of=log bs=100 count=20000 oflag=append conv=notrunc"},
	{name: "write-sequential", prepare: "rm -f written", command: "dd if=/dev/zero of=written bs=1M count=128 conv=fsync"},
	{name: "read-sequential-cold", command: "dd if=big of=/dev/null bs=1M", cold: true},
	{name: "read-sequential-warm", prepare: "cat big", command: "dd if=big of=/dev/null bs=1M"},
	{name: "read-4k-cold", command: "--rw=randread --ioengine=psync --number_ios=5000", cold: true, fio: true},
	{name: "read-4k-direct-4-jobs", command: "--rw=randread --ioengine=psync --direct=1 --numjobs=4 --runtime=2 --time_based", fio: true},
	{name: "read-4k-direct-libaio-16", command: "--rw=randread --ioengine=libaio --iodepth=16 --direct=1 --runtime=2 --time_based", fio: true},
	{name: "write-4k", prepare: "cp big written", command: "--rw=randwrite --ioengine=psync --number_ios=5000 --end_fsync=1 --filename=written", fio: true},
}

// BenchmarkEveryday prints, for each work, how long it takes on the first of two
// nodes, whose other one looks on, as times what it takes on the storage below
// (x-storage) and on go-fuse's loopback (x-loopback); x-cached is the first with
// --cache-time. All take turns.
func BenchmarkEveryday(b *testing.B) {
	if !*everyday {
		b.Skip("only with -everyday")
	}
	needTool(b, "git", "tar", "grep", "find", "fio")
	c := newCluster(b, 2)
	cached := newCluster(b, 2, "--cache-time=10s")
	bare := filepath.Join(c.dir, "bare")
	below := filepath.Join(c.dir, "below")
	for _, dir := range []string{bare, below} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	places := []string{bare, loopback(b, below), c.mounts[0].dir, cached.mounts[0].dir}
	makeTree(b, places)
	for _, w := range works {
		b.Run(w.name, func(b *testing.B) {
			times := make([][]float64, len(places))
			for b.Loop() {
				for i, dir := range places {
					times[i] = append(times[i], w.time(b, dir))
				}
			}
			var m []float64
			for _, t := range times {
				m = append(m, median(t))
			}
			b.ReportMetric(m[0]*1e3, "ms-storage")
			b.ReportMetric(m[2]/m[0], "x-storage")
			b.ReportMetric(m[2]/m[1], "x-loopback")
			b.ReportMetric(m[3]/m[0], "x-cached")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// time returns the seconds that the work takes in dir, or that one of its
// requests takes.
func (w *work) time(b *testing.B, dir string) float64 {
	b.Helper()
	shell := func(command string) []byte {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("%s in %s: %v %s", command, dir, err, stderr.Bytes())
		}
		return out
	}
	if w.prepare != "" {
		shell(w.prepare)
	}
	if w.cold {
		shell("sync; echo 3 >/proc/sys/vm/drop_caches")
	}
	if w.fio {
		name := "--filename=big "
		if strings.Contains(w.command, "--filename") {
			name = ""
		}
		return 1 / iops(b, shell("fio --name=x --output-format=json --group_reporting --bs=4k --size=128M "+name+w.command))
	}
	began := time.Now()
	shell(w.command)
	return time.Since(began).Seconds()
}

// iops reads what fio(1) has measured.
func iops(b *testing.B, out []byte) float64 {
	b.Helper()
	var result struct {
		Jobs []struct {
			Read, Write struct{ IOPS float64 }
		}
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.Jobs) != 1 {
		b.Fatalf("fio: %v: %s", err, out)
	}
	return result.Jobs[0].Read.IOPS + result.Jobs[0].Write.IOPS
}

// makeTree makes what works need, in all places: of Go's sources, since
// everybody who runs this has them.
func makeTree(b *testing.B, places []string) {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	var names []string
	err = filepath.WalkDir(src, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && len(names) < 3000 {
			names = append(names, strings.TrimPrefix(path, src+"/"))
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	slices.Sort(names)
	for _, dir := range places {
		cmd := exec.Command("sh", "-ec", fmt.Sprintf(`
			mkdir tree && tar cf - -C %s -T - | tar xf - -C tree
			git -C tree init -q && git -C tree add . && git -C tree -c user.name=x -c user.email=x@x commit -qm all
			tar cf tree.tar tree
			dd if=/dev/urandom of=big bs=1M count=128 status=none`, src))
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}
