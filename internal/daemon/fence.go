package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// fencer keeps nodes that are dropped from writing.
type fencer struct {
	cfg  config.Config
	root *os.File
	log  *slog.Logger
}

// fence makes sure that a node that is dropped can write no more. What a dead
// process of this host has left in the kernel is written out; another node is
// fenced by the admin's command, if there is one.
func (x *fencer) fence(ctx context.Context, f member.Fence) error {
	if f.Dead {
		return syncfs(x.root)
	}
	if x.cfg.FenceCommand == "" {
		return nil
	}
	x.log.Warn("fencing a member that does not answer", "node", f.Node.Peer, "host", f.Member.Host) // not the command: it may have a password
	began := time.Now()
	err := runFence(ctx, x.cfg, f.Member)
	if err == nil {
		x.log.Warn("fenced", "node", f.Node.Peer, "host", f.Member.Host, "took", time.Since(began))
	}
	return err
}

// syncfs writes out what the kernel holds back for the file system of dir.
func syncfs(dir *os.File) error {
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("syncfs: %w", err)
	}
	return nil
}

// runFence runs the fence command for a member by the shell. The environment
// says whom it is about; the names are documented at the flag.
func runFence(ctx context.Context, cfg config.Config, m member.Member) error {
	ctx, cancel := context.WithTimeoutCause(ctx, admin.FenceTime, fmt.Errorf("it took longer than %v", admin.FenceTime))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", cfg.FenceCommand)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(),
		"DMXFS_PEER="+m.Peer,
		"DMXFS_HOST="+m.Host,
		"DMXFS_ADDRS="+strings.Join(m.Addrs, " "),
		"DMXFS_BOOT_ID="+m.Boot,
		"DMXFS_MOUNT="+cfg.Mountpoint,
		"DMXFS_SOURCE="+cfg.Source,
	)
	// All that it has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // it has succeeded; what it has left in the background has its output open
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("the fence command failed: %w%s", err, keepFenceOutput(cfg.State, out.Bytes()))
}

// fenceFile, in the state directory, is what the fence command has said when it
// failed last.
const fenceFile = "fence.out"

// maxFenceOutput bounds it.
const maxFenceOutput = 64 << 10

// keepFenceOutput keeps what a fence command has said where root alone can read
// it, and says where that is. It may have passwords in it, so it is neither in the
// log nor in the journal, which go to others.
func keepFenceOutput(state string, out []byte) string {
	if len(out) == 0 {
		return ", and said nothing"
	}
	path := filepath.Join(state, fenceFile)
	f, err := os.CreateTemp(state, "."+fenceFile+"-*") // 0600
	if err == nil {
		_, err = f.Write(out[:min(len(out), maxFenceOutput)])
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}
	if err != nil {
		return fmt.Sprintf("; what it said cannot be kept: %v", err)
	}
	return "; what it said is in " + path
}
