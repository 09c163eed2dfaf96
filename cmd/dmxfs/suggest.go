package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// flagProblem is err, of the flags of c, with what may have been meant.
func flagProblem(c *cobra.Command, err error) error {
	hint := ""
	if x, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if n := config.Nearest(x.GetSpecifiedName(), names); n != "" {
			hint = "; is --" + n + " meant?"
		}
	}
	return exitcode.With(exitcode.Usage, fmt.Errorf("%w%s (see %s --help)", err, hint, c.CommandPath()))
}

// notHanging refuses a mount point of a daemon that does not answer within limit, since
// whoever looks at it waits as long. It is asked before a user's mount only: one that
// is made anew may find what passes. A daemon that was killed together with its
// watcher, and cannot end for its mount, is helped to.
func notHanging(cfg config.Config, limit time.Duration) error {
	if err := endDying(cfg.State, cfg.Mountpoint); err != nil {
		return err
	}
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	m, ok := mountinfo.At(all, cfg.Mountpoint)
	if !ok || m.Type != mountpoint.Type {
		return nil
	}
	answered := make(chan struct{})
	go func() { // until the mount answers, or this process ends
		mountpoint.IsDead(cfg.Mountpoint)
		close(answered)
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-answered:
		return nil
	case <-late.C:
	}
	return exitcode.With(exitcode.Busy, fmt.Errorf("%s is already mounted by dmxfs (its source is %s), and has not answered for %v: is its daemon stopped, or does the storage hang? To replace it, end the daemon, and unmount it by umount -l first",
		cfg.Mountpoint, m.Source, limit))
}

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
