package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/process"
)

// newMountCommand makes the command that mounts.
func newMountCommand(s streams) *cobra.Command {
	var cfg config.Config
	own := cfg.Flags()
	c := &cobra.Command{
		Args: usageArgs(cobra.MaximumNArgs(2)),
	}
	c.Flags().AddFlagSet(own)
	foreground := c.Flags().BoolP("foreground", "f", false, "stay in the foreground and log to standard error")
	file := c.Flags().String("config", "", "TOML file with settings; its keys are the names of these flags, and source, mountpoint and options")
	var options optionList
	c.Flags().VarP(&options, "options", "o", "mount options, with commas between them: those of FUSE file systems, and name=value of these flags")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && *file == "" && c.Parent() == nil {
			return c.Help()
		}
		if slices.Contains(args, "") {
			return exitcode.With(exitcode.Usage, errors.New("a directory has an empty name: is a variable of a script not set?"))
		}
		if len(args) > 0 && c.Parent() == nil {
			if n := commandMeant(args[0], c); n != "" {
				return exitcode.With(exitcode.Usage, fmt.Errorf("%s is neither a command nor a directory that is here: is %q meant?", args[0], "dmxfs "+n))
			}
		}
		switch len(args) {
		case 1:
			cfg.Mountpoint = args[0]
		case 2:
			cfg.Source, cfg.Mountpoint = args[0], args[1]
		}
		if err := cfg.Complete(own, options, *file); err != nil {
			return err
		}
		if *foreground {
			log, err := mountlog.New(cfg, s.err)
			if err != nil {
				return err
			}
			process.Outlive()
			// A panic ends this process with SIGABRT, and not with 2, upon which
			// systemd would not start it again: that is for wrong options.
			debug.SetTraceback("crash")
			return watch(c.Context(), cfg, log, s.err, func([]string) {})
		}
		if err := notHanging(cfg, answerTime); err != nil {
			return err
		}
		return background(c.Context(), cfg, s.err)
	}
	return c
}

// optionList collects the values of -o.
type optionList []string

func (o *optionList) Set(v string) error {
	*o = append(*o, config.SplitOptions(v)...)
	return nil
}
func (o *optionList) Type() string   { return "options" }
func (o *optionList) String() string { return "" }

// background starts the daemon in a session of its own and returns when the
// mount is usable, or with the reason why it is not.
func background(ctx context.Context, cfg config.Config, out io.Writer) error {
	in, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", watchCommand, cfg.Mountpoint)
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
	// endPatience is how long the daemon has to end when it is not waited for
	// any more. Then it hangs, as in storage that does not answer.
	endPatience = 3 * time.Second
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
			case <-time.After(endPatience):
				_ = unix.Kill(-daemon.Pid, unix.SIGKILL) // its session
			}
			return fmt.Errorf("%s is not mounted: %w", cfg.Mountpoint, context.Cause(ctx))
		}
	}
}
