package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMountCommand makes the command that mounts.
func newMountCommand(s streams) *cobra.Command {
	var cfg Config
	own := cfg.flags()
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
		switch len(args) {
		case 1:
			cfg.Mountpoint = args[0]
		case 2:
			cfg.Source, cfg.Mountpoint = args[0], args[1]
		}
		if err := cfg.complete(own, options, *file); err != nil {
			return err
		}
		if *foreground {
			log, err := newLogger(cfg, s.err)
			if err != nil {
				return err
			}
			return watch(c.Context(), cfg, log, s.err, func() {})
		}
		return background(cfg)
	}
	return c
}

// optionList collects the values of -o.
type optionList []string

func (o *optionList) Set(v string) error {
	*o = append(*o, splitOptions(v)...)
	return nil
}
func (o *optionList) Type() string   { return "options" }
func (o *optionList) String() string { return "" }

// complete makes c whole: options, file, defaults, absolute paths.
func (c *Config) complete(flags *pflag.FlagSet, options []string, file string) error {
	if err := c.setOptions(options, flags); err != nil {
		return err
	}
	if file != "" {
		if err := c.readFile(file, flags); err != nil {
			return err
		}
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.absolute(); err != nil {
		return err
	}
	if c.State == "" {
		c.State = defaultState(c.Mountpoint)
	}
	return c.readPolicy()
}

// background starts the daemon in a session of its own and returns when the
// mount is usable, or with the reason why it is not.
func background(cfg Config) error {
	in, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", watchCommand)
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
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return fmt.Errorf("the daemon has ended without a word (%v), see %s", cmd.Wait(), logPath(cfg.State))
	}
	if m.Error != "" {
		_ = cmd.Wait()
		return withCode(m.Code, errors.New(m.Error))
	}
	return cmd.Process.Release()
}
