package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/version"
)

// run is the program: it executes the command line args (without the name)
// and returns the exit number.
func run(ctx context.Context, name string, args []string, s streams) int {
	root := newRoot(s)
	if strings.HasPrefix(filepath.Base(name), "mount.") {
		// As a helper of mount(8): /sbin/mount.fuse.dmxfs SOURCE DIR -o …
		var err error
		if args, err = mountHelperArgs(args); err != nil {
			fmt.Fprintf(s.err, "dmxfs: %v\n", err)
			return exitcode.Usage
		}
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintf(s.err, "dmxfs: %s\n", printing.Lines(err.Error()))
	}
	return exitcode.Of(err)
}

func newRoot(s streams) *cobra.Command {
	root := newMountCommand(s)
	root.Use = "dmxfs [flags] [SOURCE] MOUNTPOINT"
	root.Short = "Locks between hosts for a directory that they share"
	root.Long = `dmxfs mounts a directory that several hosts share (NFS, sshfs, an S3 mount,
Gluster, a SAN …) and keeps programs on all of them apart: open, flock and
fcntl lock between hosts, without a lock server.

  dmxfs /mnt/shared            mount over the shared directory itself
  dmxfs /mnt/raw /mnt/shared   show the shared directory at another place

It goes to the background when the mount is usable. A mount point whose name
is also a command is written with a slash: dmxfs ./status`
	root.Version = version.String()
	root.SetVersionTemplate("dmxfs {{.Version}}\n")
	mount := newMountCommand(s)
	mount.Use = "mount [flags] [SOURCE] MOUNTPOINT"
	mount.Short = "Mount, the same as without a command"
	root.AddCommand(mount, newUnmountCommand(s), newStatusCommand(s), newPeersCommand(s), newLocksCommand(s), newWhyCommand(s), newMetricsCommand(s), newSupportCommand(s),
		newJournalCommand(s), newServeCommand(s), newWatchCommand(s), newAdoptCommand(s), newTrialCommand(s), newPolicyCommand(s), newSimCommand(), newRunCommand(s),
		newSecretCommand(s), newClusterCommand(s), newDoctorCommand(s), newDoctorHandsCommand(s), newDoctorMountCommand(s), newVersionCommand(s), newTreeCommand(s))
	root.AddCommand(newInitCommand(s), newUpgradeCommand(s), newCheckCommand(s))
	root.AddCommand(newWebCommand(s), newTopCommand(s))
	addCompletions(root)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(flagProblem)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	return root
}

// mountHelperArgs turns what mount(8) gives its helpers into our own command
// line: SOURCE DIR [-sfnv] [-N namespace] [-o options] [-t type].
func mountHelperArgs(args []string) ([]string, error) {
	var out, pos []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		value := func() (string, error) {
			if len(a) > 2 {
				return a[2:], nil
			}
			if i++; i >= len(args) {
				return "", fmt.Errorf("option %s needs a value", a)
			}
			return args[i], nil
		}
		switch {
		case !strings.HasPrefix(a, "-") || a == "-":
			pos = append(pos, a)
		case strings.HasPrefix(a, "-o"):
			v, err := value()
			if err != nil {
				return nil, err
			}
			out = append(out, "-o", v)
		case strings.HasPrefix(a, "-t"), strings.HasPrefix(a, "-N"):
			if _, err := value(); err != nil {
				return nil, err
			}
		case strings.Trim(a, "-snvw") == "": // sloppy, no mtab, verbose: nothing to do
		case a == "-r":
			out = append(out, "-o", "ro")
		case a == "-f": // fake: mount(8) wants no mount
			return []string{"version"}, nil
		default:
			return nil, fmt.Errorf("unknown option %s from mount", a)
		}
	}
	if len(pos) != 2 {
		return nil, fmt.Errorf("mount gives %d arguments, want SOURCE and DIR", len(pos))
	}
	return append(append([]string{"mount"}, out...), append([]string{"--"}, pos...)...), nil
}

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
