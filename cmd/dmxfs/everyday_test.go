package main

import (
	"bytes"
	"cmp"
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

var everyday = flag.Bool("everyday", false, "run BenchmarkEveryday and BenchmarkOverStorage, which take half an hour for each kind of storage; see make bench-everyday")

// work is what people do all day, as a shell command in a directory that has
// tree, a git work tree of 3000 files; tree.tar, the same; and big, 128 MiB.
type work struct {
	name    string
	prepare string // not timed
	command string
	cold    bool // nothing is cached
	looks   bool // it looks at the tree alone
	fio     bool // the command is fio's, and what counts is its IOPS
}

var works = []work{
	{name: "tar-x", prepare: "rm -rf untarred; mkdir untarred", command: "tar xf tree.tar -C untarred"},
	{name: "find", looks: true, command: "find tree -type f -size +1"},
	{name: "ls-lR", looks: true, command: "ls -lR tree"},
	{name: "git-status", looks: true, command: "git -C tree status"},
	{name: "grep-warm", looks: true, prepare: "cat $(find tree -type f)", command: "grep -r no-such-word tree || true"},
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
// nodes, as times what it takes on the storage below (x-storage) and on go-fuse's
// loopback (x-loopback). The other node looks on; for x-storage-changed it makes files in
// the tree meanwhile. x-cached and x-cached-changed are with --cache-time. All take turns.
func BenchmarkEveryday(b *testing.B) {
	needEveryday(b)
	c := newCluster(b, 2)
	cached := newCluster(b, 2, "--cache-time=10s")
	makeDirs(b, c.dir, "bare", "below")
	bare := filepath.Join(c.dir, "bare")
	x := everydayPlaces{storage: bare, loopback: loopback(b, filepath.Join(c.dir, "below")), mounts: []everydayMount{
		{"x-storage", c.mounts[0], c.mounts[1], false}, {"x-cached", cached.mounts[0], cached.mounts[1], true},
	}}
	x.run(b)
}

// BenchmarkOverStorage is BenchmarkEveryday over clients of real storage: beside a client of
// the same kind (x-storage) without dmxfs.
func BenchmarkOverStorage(b *testing.B) {
	needEveryday(b)
	for _, kind := range realKinds {
		b.Run(strings.ReplaceAll(kind.name, " ", "-"), func(b *testing.B) {
			clients := newCluster(b, 0).clientsOf(kind, 3)
			makeDirs(b, clients[0], "bare", "shared", "cached")
			x := everydayPlaces{storage: filepath.Join(clients[0], "bare")}
			x.over(b, "x-storage", clients[1:], "shared", kind.args)
			if strings.HasPrefix(kind.name, "GlusterFS") { // elsewhere it has no effect
				x.over(b, "x-cached", clients[1:], "cached", append([]string{"--cache-time=10s"}, kind.args...))
			}
			x.run(b)
		})
	}
}

func needEveryday(b *testing.B) {
	b.Helper()
	if !*everyday {
		b.Skip("only with -everyday")
	}
	needTool(b, "git", "tar", "grep", "find", "fio")
}

// everydayPlaces are where works are done, in turns.
type everydayPlaces struct {
	storage, loopback string // loopback: or empty
	mounts            []everydayMount
}

// everydayMount is a mount of dmxfs, and what its figures are called.
type everydayMount struct {
	name   string
	m      *testMount
	other  *testMount // of another node
	cached bool       // with --cache-time
}

// over mounts a directory of each of two clients.
func (x *everydayPlaces) over(b *testing.B, name string, clients []string, dir string, args []string) {
	b.Helper()
	c := newCluster(b, 0)
	for _, client := range clients {
		m := c.add(args...)
		m.src = filepath.Join(client, dir)
		m.mount()
	}
	c.awaitMembers(len(clients))
	x.mounts = append(x.mounts, everydayMount{name, c.mounts[0], c.mounts[1], slices.Contains(args, "--cache-time=10s")})
}

// settle has a mount with --cache-time keep names: for some seconds after another node has
// changed some it does not try.
func (x *everydayMount) settle(b *testing.B) {
	b.Helper()
	if x.cached {
		await(b, "names are kept", func() bool {
			x.m.sh("find tree -size +1")
			return x.m.keepsNames() && x.m.knows("find tree -size +1")
		})
	}
}

func (x *everydayPlaces) run(b *testing.B) {
	dirs := []string{x.storage}
	if x.loopback != "" {
		dirs = append(dirs, x.loopback)
	}
	for _, m := range x.mounts {
		dirs = append(dirs, m.m.dir)
	}
	makeTree(b, dirs)
	for _, w := range works {
		b.Run(w.name, func(b *testing.B) {
			var storage, below []float64
			if w.looks {
				for _, m := range x.mounts {
					m.settle(b)
				}
			}
			mounts, changed := make([][]float64, len(x.mounts)), make([][]float64, len(x.mounts))
			for b.Loop() {
				storage = append(storage, w.time(b, x.storage))
				if x.loopback != "" {
					below = append(below, w.time(b, x.loopback))
				}
				for i, m := range x.mounts {
					mounts[i] = append(mounts[i], w.time(b, m.m.dir))
				}
			}
			if w.looks {
				for range b.N { // not before: who has lost the lease of names waits before it tries again
					for i, m := range x.mounts {
						changed[i] = append(changed[i], w.timeBeside(b, m))
					}
				}
			}
			b.ReportMetric(median(storage)*1e3, "ms-storage")
			if x.loopback != "" {
				b.ReportMetric(median(mounts[0])/median(below), "x-loopback")
			}
			for i, m := range x.mounts {
				b.ReportMetric(median(mounts[i])/median(storage), m.name)
				if w.looks {
					b.ReportMetric(median(changed[i])/median(storage), m.name+"-changed")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// timeBeside is time while the other node makes files in the tree.
func (w *work) timeBeside(b *testing.B, m everydayMount) float64 {
	b.Helper()
	defer makesFiles(b, filepath.Join(m.other.dir, "tree"))()
	return w.time(b, m.m.dir)
}

// makesFiles makes a file in dir, again and again, as somebody does who works there.
func makesFiles(b *testing.B, dir string) (stop func()) {
	done, ended := make(chan struct{}), make(chan error)
	go func() {
		var err error
		often := time.NewTicker(50 * time.Millisecond)
		defer often.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				ended <- err
				return
			case <-often.C:
				name := filepath.Join(dir, fmt.Sprintf("made-%d", i%10))
				err = cmp.Or(err, os.WriteFile(name, []byte("text"), 0o644))
			}
		}
	}()
	return func() {
		b.Helper()
		close(done)
		err := <-ended
		for i := range 10 {
			if e := os.Remove(filepath.Join(dir, fmt.Sprintf("made-%d", i))); !os.IsNotExist(e) {
				err = cmp.Or(err, e)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
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
			tar cf tree.tar tree || [ $? = 1 ] # over sshfs times of directories change for some seconds
			dd if=/dev/urandom of=big bs=1M count=128 status=none`, src))
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("in %s: %v: %s", dir, err, out)
		}
	}
}
