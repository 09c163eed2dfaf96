package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/supervise"
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
			return supervise.Watch(c.Context(), cfg, log, s.err, func([]string) {})
		}
		if err := supervise.NotHanging(c.Context(), cfg, ask.AnswerTime); err != nil {
			return err
		}
		return supervise.Background(c.Context(), cfg, s.err)
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

// commandMeant is the command that is most like the name of a directory that is not
// there, or empty: "dmxfs stauts /mnt" mounts a directory.
func commandMeant(name string, root *cobra.Command) string {
	if strings.Contains(name, "/") || len(name) < 4 { // mnt is not init
		return ""
	}
	if _, err := os.Lstat(name); err == nil {
		return ""
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return config.Nearest(name, names)
}
