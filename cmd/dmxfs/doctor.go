package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/doctor"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/trial"
	"github.com/dmxfs/dmxfs/internal/version"
)

func newDoctorCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [flags] SOURCE [SOURCE2]",
		Short: "Test what a shared directory keeps between two hosts, and which options it needs",
		Long: `Test a shared directory from two sides: what one writes, makes or renames there,
and what the other sees of it, and when. It says in words what can be relied
on, and which options dmxfs needs for it. As root it also hands locks to and
fro through the mount that dmxfs would use. Nothing is changed but files in
.dmxfs/doctor, which are removed. The last verdict is kept, on the host that gives
it, for "dmxfs support".

  dmxfs doctor /mnt/shared          on one host, and on the other
  dmxfs doctor --join ADDRESS/CODE /mnt/shared   as the first one prints it; or
  dmxfs doctor /mnt/a /mnt/b        with two mounts of the storage on one host

SOURCE is the directory itself, not a dmxfs mount over it. The two hosts speak
over a connection of their own, to which the code admits one other side. The
exit number is 0 if the storage is fit for dmxfs, 1 if it is not.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	join := c.Flags().String("join", "", "be the other side of a doctor that runs on another host: `ADDRESS/CODE`, as it prints them")
	listen := c.Flags().String("listen", ":0", "wait for the other host at this `ADDRESS:PORT` (default a free port of all addresses)")
	patience := 2 * time.Minute
	c.Flags().Var(config.Limit(&patience, ""), "patience", "how long to wait for the other host, and then how long the examination may take")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *join != "" {
			if len(args) == 2 {
				return exitcode.With(exitcode.Usage, errors.New("--join takes one directory"))
			}
			return doctor.Join(c.Context(), *join, args[0], patience, s.err)
		}
		x, err := consult(c.Context(), s, args, *listen, patience)
		if err != nil {
			return err
		}
		if *asJSON {
			err = printing.JSON(s.out, x)
		} else {
			err = printDoctor(s, x)
		}
		if err == nil && !x.Fit {
			err = exitcode.With(exitcode.Failure, errSilent)
		}
		return err
	}
	return c
}

func newDoctorHandsCommand(s streams) *cobra.Command {
	c := &cobra.Command{Use: doctor.HandsCommand, Hidden: true, Args: usageArgs(cobra.ExactArgs(1))}
	private := c.Flags().Bool("private", false, "")
	c.RunE = func(_ *cobra.Command, args []string) error { return doctor.ServeHands(args[0], *private, s.in, s.out) }
	return c
}

func newDoctorMountCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: doctor.MountCommand, Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return doctor.ServeMount(c.Context(), os.NewFile(3, "doctor"), args[0], s.in, s.out)
		},
	}
}

// consult has the doctor examine the storage, and keeps the verdict.
func consult(ctx context.Context, s streams, sources []string, listen string, patience time.Duration) (doctor.Examination, error) {
	x, err := doctor.Examine(ctx, doctor.Options{Sources: sources, Listen: listen, Patience: patience, Try: tryFirst, Log: s.err})
	if err != nil {
		return x, err
	}
	if err := keepVerdict(x, time.Now()); err != nil {
		fmt.Fprintf(s.err, "dmxfs: %v\n", err)
	}
	return x, nil
}

// tryFirst is trial.Try of a source that no daemon here has had, so that
// nothing is left out.
func tryFirst(ctx context.Context, source string) error {
	path, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	none, err := os.MkdirTemp("", "dmxfs-doctor-")
	if err != nil {
		return fmt.Errorf("make a directory for the examination: %w", err)
	}
	defer os.Remove(none)
	return trial.Try(ctx, config.Config{Source: path, Mountpoint: path, State: none})
}

func printDoctor(s streams, x doctor.Examination) error {
	fmt.Fprintf(s.out, "%s (%s), with %s\n\n", printing.Text(x.Source), x.Storage, printing.Text(x.Partner))
	var rows [][]string
	for _, f := range x.Findings {
		rows = append(rows, []string{f.Check, f.Result, f.Text})
	}
	if err := printing.Table(s.out, []string{"CHECK", "RESULT", "WHAT WAS FOUND"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "\n%s\n", x.Verdict)
	for _, o := range x.Options {
		fmt.Fprintf(s.out, "  use on every host: %s\n", o)
	}
	return err
}

// keptVerdict is what the doctor last found of a directory, for `dmxfs support`: who is
// asked for help wants to know, and an examination takes too long to be made anew.
type keptVerdict struct {
	Time    time.Time `json:"time"`
	Version string    `json:"dmxfs"` // which examined it
	doctor.Examination
}

// verdictFile is where it is kept. A directory may be examined before there is a mount
// of it, so that it is not in the state directory of one.
func verdictFile(real string) string {
	return filepath.Join(config.StateHome(), "doctor", config.MountName(real)+".json")
}

// keepVerdict keeps what was found of all the directories that are of this host.
func keepVerdict(x doctor.Examination, now time.Time) error {
	b, err := json.MarshalIndent(keptVerdict{now.UTC(), version.String(), x}, "", "  ")
	for _, source := range x.Real {
		file := verdictFile(source)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
		if err == nil {
			err = os.WriteFile(tmp, b, 0o600)
		}
		if err == nil {
			err = os.Rename(tmp, file)
		}
	}
	if err != nil {
		return fmt.Errorf("keep the verdict for dmxfs support: %w", err)
	}
	return nil
}

// supportVerdict is the last verdict on the directory below a mount. It waits for
// storage that hangs.
func supportVerdict(source string) ([]byte, error) {
	real, err := doctor.RealPath(source)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(verdictFile(real))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this user has not run dmxfs doctor %s on this host", source)
	}
	return b, err
}
