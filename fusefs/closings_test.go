package fusefs

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func TestClosingsCloseAll(t *testing.T) {
	var c closings
	if c.pending() != nil {
		t.Fatal("something is pending")
	}
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
	defer unix.Close(p[0])
	for range 3 * maxClosings {
		fd, err := unix.FcntlInt(uintptr(p[1]), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		c.add(fd)
		c.relieve()
	}
	unix.Close(p[1])
	if n, err := unix.Read(p[0], make([]byte, 1)); n != 0 || err != nil { // when no writer is left
		t.Errorf("read %d, %v", n, err)
	}
	if d := c.pending(); d != nil {
		<-d
	}
	if c.pending() != nil || len(c.fds) > 0 {
		t.Errorf("left: %v", c.fds)
	}
}

// All requests, and the engine, wait for the mutex of the tree: nothing is closed
// under it. The last descriptor of a pipe tells when it is closed.
func TestNothingIsClosedUnderTheMutexOfTheTree(t *testing.T) {
	tr := newTestTree(t, false)
	c := &tr.closings
	c.done = make(chan struct{}) // nobody closes in the background
	var pipes [][2]int
	isOpen := func(p [2]int) bool { return unix.Fstat(p[1], new(unix.Stat_t)) == nil }
	tr.mu.Lock()
	for range maxClosings + 10 {
		var p [2]int
		must(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
		pipes = append(pipes, p)
		c.add(p[1])
	}
	tr.anchors.most = 1
	var nodes []*node
	for i, p := range pipes {
		n := &node{names: []dirName{{}}, fd: p[0]}
		n.slot = i
		nodes = append(nodes, n)
	}
	tr.anchors.nodes = slices.Clone(nodes)
	if done := tr.weigh(3); done != 3 {
		t.Errorf("%d were weighed", done)
	}
	for i, p := range pipes {
		if !isOpen(p) || unix.Fstat(p[0], new(unix.Stat_t)) != nil {
			t.Fatalf("%d is closed", i)
		}
	}
	tr.unlock()
	c.relieve()
	if len(c.fds) != maxClosings || len(tr.anchors.weighed) > 0 {
		t.Errorf("%d wait, and %d that were weighed", len(c.fds), len(tr.anchors.weighed))
	}
	for i, p := range pipes {
		if nodes[i].fd < 0 && unix.Fstat(p[0], new(unix.Stat_t)) == nil {
			t.Errorf("%d is open, but nobody knows it", i)
		}
	}
	done := c.pending()
	go c.run()
	<-done
}

// What needs space waits for a file that was removed and is being freed.
func TestSpaceThatIsBeingFreed(t *testing.T) {
	needRoot(t)
	dir := tempDir(t)
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	f := handlersOnly(t, func(o *Options) {
		root, err := os.Open(dir)
		must(t, err)
		t.Cleanup(func() { root.Close() })
		o.Root = root
	})
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	h := f.openForTest(t, "f", unix.O_RDWR)
	cancel := make(chan struct{})
	closing := func(done chan struct{}) {
		f.tree.closings.mu.Lock()
		defer f.tree.closings.mu.Unlock()
		f.tree.closings.done = done
	}
	calls := map[string]func() fuse.Status{
		"write": func() fuse.Status {
			_, st := f.Write(cancel, &fuse.WriteIn{InHeader: header(h.n.id), Fh: h.id, Size: 1 << 17}, make([]byte, 1<<17))
			return st
		},
		"fallocate": func() fuse.Status {
			return f.Fallocate(cancel, &fuse.FallocateIn{InHeader: header(h.n.id), Fh: h.id, Length: 1 << 17})
		},
		"symlink": func() fuse.Status {
			in, out := header(rootID), fuse.EntryOut{}
			return f.Symlink(cancel, &in, strings.Repeat("x", 3000), "s", &out)
		},
	}
	for name, call := range calls {
		fd := full(t, dir)
		if st := call(); st != fuse.Status(unix.ENOSPC) {
			t.Errorf("%s while nothing is being freed: %v", name, st)
		}
		// The goroutine that closes is this one: it waits for the call to wait.
		done := make(chan struct{})
		closing(done)
		result := make(chan fuse.Status, 1)
		go func() { result <- call() }()
		awaitStack(t, "(*closings).wait(")
		unix.Close(fd)
		closing(nil)
		close(done)
		if st := <-result; !st.Ok() {
			t.Errorf("%s after space was freed: %v", name, st)
		}
	}
	// statfs(2) tells of the space that will be free.
	fd := full(t, dir)
	done := make(chan struct{})
	closing(done)
	free := make(chan uint64, 1)
	go func() {
		in, out := header(rootID), fuse.StatfsOut{}
		f.StatFs(cancel, &in, &out)
		free <- out.Bfree * uint64(out.Bsize)
	}()
	awaitStack(t, "(*closings).wait(")
	unix.Close(fd)
	closing(nil)
	close(done)
	if n := <-free; n < 1<<19 {
		t.Errorf("%d bytes are free after a file of nearly 1 MiB was removed", n)
	}
	closing(make(chan struct{}))
	close(cancel)
	if f.fence.spaceFreed(cancel, unix.ENOSPC) || f.fence.spaceFreed(nil, unix.EIO) || f.fence.spaceFreed(nil, nil) {
		t.Error("space was freed that was not")
	}
	closing(nil)
}

// full is a descriptor of a file that holds all the space of a small file
// system, and has no name any more.
func full(t *testing.T, dir string) int {
	t.Helper()
	os.Remove(filepath.Join(dir, "s"))
	must(t, os.Truncate(filepath.Join(dir, "f"), 0))
	big := filepath.Join(dir, "big")
	w, err := os.Create(big)
	must(t, err)
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	fd, err := unix.Dup(int(w.Fd()))
	must(t, err)
	w.Close()
	must(t, os.Remove(big))
	return fd
}

// awaitStack waits until a goroutine is in a function.
func awaitStack(t *testing.T, function string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	await(t, "a goroutine is in "+function, func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function)
	})
}
