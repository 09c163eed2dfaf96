package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"dmxfs/fusefs"
	"dmxfs/p2p/register"
)

// doctorHandsCommand is hidden: the partner on the same host.
const doctorHandsCommand = "doctor-partner"

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
on, and which options dmxfs needs for it. Nothing is changed but files in
.dmxfs/doctor, which are removed.

  dmxfs doctor /mnt/shared          on one host, and
  dmxfs doctor --join /mnt/shared   on the other; or
  dmxfs doctor /mnt/a /mnt/b        with two mounts of the storage on one host

SOURCE is the directory itself, not a dmxfs mount over it. The exit number is 0
if the storage is fit for dmxfs, 1 if it is not.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	join := c.Flags().Bool("join", false, "be the other side of a doctor that runs on another host")
	patience := 2 * time.Minute
	c.Flags().Var(&limit{&patience, ""}, "patience", "how long to wait for the other side, and for what is seen late")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *join && len(args) == 2 {
			return withCode(exitUsage, errors.New("--join takes one directory"))
		}
		for _, a := range args {
			if err := examinable(a); err != nil {
				return err
			}
		}
		if *join {
			return joinDoctor(c.Context(), doctorDir(args[0]), patience, s.err)
		}
		j, err := consult(c.Context(), s, args, patience)
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

func newDoctorPartnerCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: doctorHandsCommand, Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return serveHands(args[0], s.in, s.out) },
	}
}

func doctorDir(source string) string { return filepath.Join(source, register.Name, "doctor") }

// examinable says what is wrong with a directory that is to be examined.
func examinable(source string) error {
	st, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("cannot use the directory: %w", err)
	}
	if !st.IsDir() {
		return withCode(exitUsage, fmt.Errorf("%s is not a directory", source))
	}
	real, err := filepath.EvalSymlinks(source)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return err
	}
	all, err := mounts()
	if err != nil {
		return err
	}
	if insideDmxfs(all, real) {
		return withCode(exitUsage, fmt.Errorf("%s is a dmxfs mount: name the shared directory that it is over, or unmount it first", source))
	}
	return nil
}

// consult examines the storage.
func consult(ctx context.Context, s streams, sources []string, patience time.Duration) (j doctorJSON, err error) {
	dir := doctorDir(sources[0])
	made := os.Mkdir(filepath.Dir(dir), 0o700) == nil
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = withCode(exitBusy, fmt.Errorf("%s is there: another doctor examines this directory; if none does, remove it", dir))
		}
		return j, err
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil && err == nil {
			err = fmt.Errorf("remove what the doctor has made: %w", e)
		}
		if made {
			_ = os.Remove(filepath.Dir(dir))
		}
	}()
	d := &doctor{ctx: ctx, here: newHands(dir), patience: patience}
	defer d.here.close()
	f, err := os.Open(sources[0])
	if err != nil {
		return j, err
	}
	d.storage, err = fusefs.StorageOf(int(f.Fd()))
	f.Close()
	if err != nil {
		return j, err
	}
	j = doctorJSON{Source: sources[0], Storage: d.storage.Type, Options: []string{}, Findings: []findingJSON{}}
	if len(sources) == 2 {
		j.Partner = sources[1]
		if err := d.sameStorage(sources[1]); err != nil {
			return j, err
		}
		if d.partner, err = startPartner(ctx, doctorDir(sources[1])); err != nil {
			return j, err
		}
	} else {
		fmt.Fprintf(s.err, "dmxfs: waiting for the other host: run there  dmxfs doctor --join SOURCE\n")
		d.partner = &mailPartner{ctx: ctx, dir: dir, session: rand.Text(), patience: patience}
	}
	defer d.partner.close()
	if err := d.examine(); err != nil {
		return j, err
	}
	if j.Partner == "" {
		j.Partner = "host " + d.host
	}
	j.Findings, j.Options = d.findings, append(j.Options, d.options...)
	j.Fit, j.Verdict = d.verdict()
	return j, nil
}

func printDoctor(s streams, j doctorJSON) error {
	fmt.Fprintf(s.out, "%s (%s), with %s\n\n", j.Source, j.Storage, j.Partner)
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
