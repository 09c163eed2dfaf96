package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// clientKind is a kind of storage whose clients cache, of which every host
// has a client of its own.
type clientKind struct {
	name  string
	start func(t testing.TB, source, mountpoint string)
	// serve, in place of start, starts a server of storage below dir; client
	// mounts it.
	serve func(t testing.TB, dir string) (client func(mountpoint string))
	// losesNames: see runLockFiles.
	losesNames bool
	// namesAnew: which names there are, and what files they lead to, is seen soon
	// without a lock, too.
	namesAnew bool
	// git is how often things are done with git on it; see runGit.
	git int
	// variant: much like another kind (a server with clients that cache), which is enough for
	// a short run.
	variant bool
	// args are the options of dmxfs that the storage needs.
	args []string
}

var clientKinds = []clientKind{
	{name: "cachefs", start: startCache, args: []string{"--file-id=inode", "--listing-age=0s"}},
	{name: "cachefs by path", variant: true, start: startCache, args: []string{"--file-id=path", "--listing-age=0s"}},
	{name: "sshfs", start: startSSHFS, args: []string{"--listing-age=0s"}},
}

// runs reports whether tests over k run.
func (k *clientKind) runs() bool { return !k.variant || *storageFull || long.Tests() }

// kindsOfClients are the clientKinds over which tests run.
func kindsOfClients() []clientKind {
	return slices.DeleteFunc(slices.Clone(clientKinds), func(k clientKind) bool { return !k.runs() })
}

// startCache makes mountpoint a client of source that caches, see cacheFS.
func startCache(t testing.TB, source, mountpoint string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", source, mountpoint)
	cmd.Env = append(os.Environ(), helperEnv+"=cachefs")
	startClient(t, cmd, mountpoint)
}

// startSSHFS makes mountpoint an sshfs mount of source, as it comes from the
// distribution, with its caches on. It speaks to a server of its own through a
// pair of sockets instead of ssh.
func startSSHFS(t testing.TB, source, mountpoint string) {
	t.Helper()
	startSSHFSWith(t, source, mountpoint, "")
}

// startSSHFSWith has more options for sshfs, with a comma before each.
func startSSHFSWith(t testing.TB, source, mountpoint, options string) {
	t.Helper()
	const sftp = "/usr/lib/openssh/sftp-server"
	needTool(t, "sshfs", sftp)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "client"), os.NewFile(uintptr(fds[1]), "server")
	defer ours.Close()
	defer theirs.Close()
	server := exec.Command(sftp, "-e")
	server.Stdin, server.Stdout, server.Stderr = theirs, theirs, nil
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Wait() }) // it ends with its client
	client := exec.Command("sshfs", "-f", "-o", "passive,allow_other"+options, ":"+source, mountpoint)
	client.Stdin, client.Stdout = ours, ours
	startClient(t, client, mountpoint)
}

// startClient runs a file system in the foreground until the end of the test.
func startClient(t testing.TB, cmd *exec.Cmd, mountpoint string) {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the end of which is what Pdeathsig means
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// What served the mount above it may still be ending.
		err := unix.Unmount(mountpoint, 0)
		for n := 0; err == unix.EBUSY && n < 1000; n++ {
			waitALittle()
			err = unix.Unmount(mountpoint, 0)
		}
		if err != nil {
			t.Errorf("unmount the storage: %v", err)
			_ = unix.Unmount(mountpoint, unix.MNT_DETACH)
		}
		// That of MooseFS was seen to stay, with a thread that waits for the answer to
		// what it has sent to itself.
		for range 1000 {
			select {
			case <-ended:
				return
			default:
				waitALittle()
			}
		}
		t.Logf("%v does not end by itself: it is killed", cmd.Args)
		_ = cmd.Process.Kill()
		<-ended
	})
	await(t, cmd.Path+" mounts", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%v has ended: %v", cmd.Args, err)
		default:
		}
		all, err := mountinfo.Read()
		if err != nil {
			t.Fatal(err)
		}
		_, ok := mountinfo.At(all, mountpoint)
		return ok
	})
}

// clientsOf starts n clients of one storage, which is c.src.
func (c *testCluster) clientsOf(kind clientKind, n int) (dirs []string) {
	c.t.Helper()
	start := func(mountpoint string) { kind.start(c.t, c.src, mountpoint) }
	if kind.serve != nil {
		start = kind.serve(c.t, c.dir)
	}
	for i := range n {
		client := filepath.Join(c.dir, "client-"+strconv.Itoa(i))
		if err := os.Mkdir(client, 0o755); err != nil {
			c.t.Fatal(err)
		}
		start(client)
		dirs = append(dirs, client)
	}
	return dirs
}

// newClientCluster mounts dmxfs n times, each over a client of its own of one
// storage, which is c.src.
func newClientCluster(t testing.TB, kind clientKind, n int, args ...string) *testCluster {
	t.Helper()
	c := newCluster(t, 0)
	for _, client := range c.clientsOf(kind, n) {
		m := c.add(append(kind.args, args...)...)
		m.src = client
		m.mount()
	}
	c.awaitMembers(n)
	return c
}

// clientCounter is a counter of the cachefs below a mount.
func (m *testMount) clientCounter(name string) int {
	m.c.t.Helper()
	b := make([]byte, 32)
	n, err := unix.Getxattr(m.src, name, b)
	if err != nil {
		m.c.t.Fatal(err)
	}
	v, err := strconv.Atoi(string(b[:n]))
	if err != nil {
		m.c.t.Fatal(err)
	}
	return v
}
