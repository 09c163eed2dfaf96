package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// doctorHandsCommand is hidden: the process of a side.
const doctorHandsCommand = "doctor-hands"

// findingJSON is one row of the doctor's report.
type findingJSON struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, note, bad
	Text   string `json:"text"`
}

// doctorJSON is what dmxfs doctor finds.
type doctorJSON struct {
	Source   string        `json:"source"`
	Partner  string        `json:"partner"` // the other mount, or the other host
	Storage  string        `json:"storage"` // type of the file system
	Fit      bool          `json:"fit"`
	Verdict  string        `json:"verdict"`
	Options  []string      `json:"options"` // to use on every host
	Findings []findingJSON `json:"findings"`
}

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
	c.Flags().Var(&limit{&patience, ""}, "patience", "how long to wait for the other host, and then how long the examination may take")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *join != "" {
			if len(args) == 2 {
				return withCode(exitUsage, errors.New("--join takes one directory"))
			}
			return joinDoctor(c.Context(), *join, args[0], patience, s.err)
		}
		j, err := consult(c.Context(), s, args, *listen, patience)
		if err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(s.out, j)
		} else {
			err = printDoctor(s, j)
		}
		if err == nil && !j.Fit {
			err = withCode(exitFailure, errSilent)
		}
		return err
	}
	return c
}

func newDoctorHandsCommand(s streams) *cobra.Command {
	c := &cobra.Command{Use: doctorHandsCommand, Hidden: true, Args: usageArgs(cobra.ExactArgs(1))}
	private := c.Flags().Bool("private", false, "")
	c.RunE = func(_ *cobra.Command, args []string) error { return serveHands(args[0], *private, s.in, s.out) }
	return c
}

func newDoctorMountCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: doctorMountCommand, Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return serveDoctorMount(c.Context(), os.NewFile(3, doctorName), args[0], s.in, s.out)
		},
	}
}

// consult examines the storage.
func consult(ctx context.Context, s streams, sources []string, listen string, patience time.Duration) (j doctorJSON, err error) {
	j = doctorJSON{Source: sources[0], Options: []string{}, Findings: []findingJSON{}}
	if err := tryAll(ctx, sources, patience); err != nil {
		return j, err
	}
	d := &doctor{patience: patience}
	if d.here, err = startHands("here", sources[0]); err != nil {
		return j, err
	}
	defer d.here.end()
	opened, cancel := context.WithTimeoutCause(ctx, patience, errTooLong)
	defer cancel()
	if err := d.open(opened, d.here, sources[0]); err != nil {
		return j, err
	}
	if len(sources) == 2 {
		j.Partner = sources[1]
		if d.there, err = startHands("there", sources[1]); err != nil {
			return j, err
		}
	} else {
		conn, err := awaitPartner(opened, listen, sources[0], s.err)
		if err != nil {
			return j, err
		}
		d.there = newDoctorSide("there", conn, conn, func() { conn.Close() })
	}
	defer d.there.end()
	ctx, cancel = context.WithTimeoutCause(ctx, patience, errTooLong)
	defer cancel()
	d.ctx, d.began = ctx, time.Now()
	if err := d.open(ctx, d.there, cmp.Or(j.Partner, "the directory on the other host")); err != nil {
		return j, err
	}
	d.oneMount = len(sources) == 2 && d.here.dev == d.there.dev
	if err := d.examine(); err != nil {
		return j, err
	}
	if j.Partner == "" {
		j.Partner = "host " + d.host
	}
	j.Storage = d.storage.Type
	j.Findings, j.Options = append(j.Findings, d.findings...), append(j.Options, d.options...)
	j.Fit, j.Verdict = d.verdict()
	examined := []string{d.here.real}
	if len(sources) == 2 {
		examined = append(examined, d.there.real)
	}
	if err := keepVerdict(j, examined, time.Now()); err != nil {
		fmt.Fprintf(s.err, "dmxfs: %v\n", err)
	}
	return j, nil
}

// tryAll tries the storage as a first mount does: where that is refused nobody
// needs to wait for another host, or for its client's caches, to be told why.
func tryAll(ctx context.Context, sources []string, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errTooLong)
	defer cancel()
	// No daemon has had this state directory, so that nothing is left out.
	none, err := os.MkdirTemp("", "dmxfs-doctor-")
	if err != nil {
		return fmt.Errorf("make a directory for the examination: %w", err)
	}
	defer os.Remove(none)
	for _, source := range sources {
		path, err := filepath.Abs(source)
		if err == nil {
			err = tryStorage(ctx, Config{Source: path, Mountpoint: path, State: none})
		}
		switch {
		case err == nil:
		case exitCode(err) == exitRefused:
			return withCode(exitFailure, fmt.Errorf("not fit for dmxfs: %w", err))
		case errors.Is(err, errTooLong):
			return fmt.Errorf("%s does not answer: %w", source, err)
		case exitCode(err) == exitFailure || ctx.Err() != nil:
			return err
		} // what is wrong with the directory is told by who opens it
	}
	return nil
}

func printDoctor(s streams, j doctorJSON) error {
	fmt.Fprintf(s.out, "%s (%s), with %s\n\n", printable(j.Source), j.Storage, printable(j.Partner))
	var rows [][]string
	for _, f := range j.Findings {
		rows = append(rows, []string{f.Check, f.Result, f.Text})
	}
	if err := printTable(s.out, []string{"CHECK", "RESULT", "WHAT WAS FOUND"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "\n%s\n", j.Verdict)
	for _, o := range j.Options {
		fmt.Fprintf(s.out, "  use on every host: %s\n", o)
	}
	return err
}
