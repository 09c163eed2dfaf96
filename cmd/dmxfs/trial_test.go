package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// lameNode is a pass-through of storage that cannot do one thing: it says EIO, or
// nothing at all.
type lameNode struct {
	*fs.LoopbackNode
	cannot string
}

func (n *lameNode) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &lameNode{child.(*fs.LoopbackNode), n.cannot}
}

func (n *lameNode) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if n.cannot == "link" {
		return nil, syscall.EIO
	}
	return n.LoopbackNode.Link(ctx, target, name, out)
}

func (n *lameNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	switch n.cannot {
	case "mkdir":
		return nil, syscall.EIO
	case "answer":
		select {} // nor does it heed an interrupt, as clients of object stores
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

// serveLame mounts storage that is lame: lame SOURCE MOUNTPOINT link|mkdir|answer.
func serveLame(args []string) error {
	root, err := fs.NewLoopbackRoot(args[0])
	if err != nil {
		return err
	}
	server, err := fs.Mount(args[1], &lameNode{root.(*fs.LoopbackNode), args[2]}, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, FsName: args[0], Name: "lame"},
	})
	if err != nil {
		return err
	}
	server.Wait()
	return nil
}

// lame makes a client of the shared directory that cannot do one thing.
func (c *testCluster) lame(cannot string) string {
	c.t.Helper()
	dir := filepath.Join(c.dir, "lame")
	if err := os.Mkdir(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", c.src, dir, cannot)
	cmd.Env = append(os.Environ(), helperEnv+"=lame")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = cmd.Process.Kill() // with what it does not answer
		_ = cmd.Wait()
	})
	await(c.t, "the storage is mounted", func() bool {
		all, err := mountinfo.Read()
		if err != nil {
			c.t.Fatal(err)
		}
		_, ok := mountinfo.At(all, dir)
		return ok
	})
	return dir
}

// Storage that cannot be used is refused with the reason, whatever its client
// says, or if it does not answer at all. Nothing runs on or is left behind.
func TestStorageThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for _, x := range []struct {
		cannot string
		code   int
		want   string
	}{
		{"link", exitcode.Refused, "this storage (fuse.lame) makes no hard links (link: input/output error)"},
		{"mkdir", exitcode.Refused, "this storage (fuse.lame) does not let dmxfs make a directory"},
		{"answer", exitcode.Failure, "the storage does not answer: making .dmxfs takes more than 10s"},
	} {
		side.run(t, x.cannot, func(t *testing.T) {
			c := newCluster(t, 0)
			dir := c.lame(x.cannot)
			m := c.add()
			m.src = dir
			err := m.tryMount()
			if code(err) != x.code || err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v\nwant code %d, and %q", err, x.code, x.want)
			}
			if names, err := os.ReadDir(c.src); err != nil || len(names) != 0 {
				t.Errorf("left on the storage: %v %v", names, err)
			}
			// The state directory and the mount point are free.
			m.src = c.src
			m.mount()
			c.run("unmount", m.dir)
		})
	}
}
