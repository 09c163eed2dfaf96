package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/process"
)

// Background starts the daemon in a session of its own and returns when the
// mount is usable, or with the reason why it is not.
func Background(ctx context.Context, cfg config.Config, out io.Writer) error {
	in, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", WatchCommand, cfg.Mountpoint)
	cmd.Args[0] = process.Name
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(in)
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	var m readyMessage
	told := make(chan error, 1)
	go func() { told <- json.NewDecoder(r).Decode(&m) }()
	if err := awaitReady(ctx, cfg, told, cmd.Process, out); err != nil {
		return err
	}
	if err := <-told; err != nil {
		return fmt.Errorf("the daemon has ended without a word (%v), see %s", cmd.Wait(), mountlog.Path(cfg.State))
	}
	if m.Error != "" {
		_ = cmd.Wait()
		return exitcode.With(m.Code, errors.New(m.Error))
	}
	for _, w := range m.Warnings {
		fmt.Fprintf(out, "dmxfs: %s\n", printing.Lines(w))
	}
	return cmd.Process.Release()
}

const (
	// silentFor is how long a mount takes before a person is told that it is
	// waited for.
	silentFor = 3 * time.Second
	// startedPatience is how long the daemon has to end when it is not waited for
	// any more. Then it hangs, as in storage that does not answer.
	startedPatience = 3 * time.Second
)

// awaitReady returns when told has something, or when ctx has ended, and with
// it the daemon. What it takes out of told it puts back.
func awaitReady(ctx context.Context, cfg config.Config, told chan error, daemon *os.Process, out io.Writer) error {
	silent := time.After(silentFor)
	for {
		select {
		case err := <-told:
			told <- err
			return nil
		case <-silent:
			fmt.Fprintf(out, "waiting until %s is mounted; why is in %s\n", cfg.Mountpoint, mountlog.Path(cfg.State))
		case <-ctx.Done():
			_ = daemon.Signal(unix.SIGTERM)
			select {
			case <-told:
			case <-time.After(startedPatience):
				_ = unix.Kill(-daemon.Pid, unix.SIGKILL) // its session
			}
			return fmt.Errorf("%s is not mounted: %w", cfg.Mountpoint, context.Cause(ctx))
		}
	}
}
