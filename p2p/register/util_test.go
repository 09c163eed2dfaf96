package register

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

const testCluster = "00112233445566778899aabbccddeeff"

// The first thread of the process is the one that /proc/self shows. Tests that
// change the namespace of a thread, and leave it to die, must not get that one.
func init() { runtime.LockOSThread() }

// newDir is a register for peer in dir.
func newDir(t *testing.T, dir, peer string) *Dir {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return NewDir(root, "/mnt/shared", peer)
}

// founded is one with a cluster.
func founded(t *testing.T, dir, peer string) *Dir {
	t.Helper()
	d := newDir(t, dir, peer)
	if _, err := d.Init(Expect{}); err != nil {
		t.Fatal(err)
	}
	return d
}

func testView(d *Dir, e locks.Epoch, by string) (*member.View, []byte) {
	v := &member.View{
		Cluster: d.clusterID(), Epoch: e, Nonce: 0x1234, By: member.Node{Peer: by, Inc: 7}, Reason: member.ReasonJoin,
		Members: []member.Member{{Node: member.Node{Peer: by, Inc: 7}, Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}},
		Timing:  member.Default().Timing,
	}
	file, err := member.EncodeView(v)
	if err != nil {
		panic(err)
	}
	return v, file
}

func mustLink(t *testing.T, d *Dir, e locks.Epoch) *member.View {
	t.Helper()
	v, file := testView(d, e, d.peer)
	if err := d.Link(v, file); err != nil {
		t.Fatal(err)
	}
	return v
}

func mustLook(t *testing.T, d *Dir, op member.LookOp) member.Look {
	t.Helper()
	l, err := d.Look(op)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// list is what is in a directory.
func list(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// leftovers are temporary files below dir.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	filepath.WalkDir(filepath.Join(dir, Name), func(path string, e os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), newPrefix) {
			left = append(left, path)
		}
		return nil
	})
	return left
}

// inNamespace runs f on a thread with mounts of its own, which end with it.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its mounts
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Errorf("make mounts private: %v", err)
			return
		}
		f()
	}()
	<-done
}

// asUser runs f on a thread whose file accesses are those of a user.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("changing the user needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		syscall.RawSyscall(syscall.SYS_SETFSGID, uintptr(uid), 0, 0)
		syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(uid), 0, 0)
		f()
	}()
	<-done
}
