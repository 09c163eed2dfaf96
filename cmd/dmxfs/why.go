package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

func newWhyCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "why PID|PATH [MOUNTPOINT]", Short: "Tell what a process waits for, or who waits for a file, up to the end of the chain",
		Long: `Tell what a process of this host waits for right now (with --host, of another
one), or who waits for a file: who is in the way, what those wait for themselves,
up to the process at the end of the chain, and what would free it. A cycle of
processes that wait for one another is told of as such.

Members that do not answer in time are named, and those that were expelled in the
last hour. Times are those of the host that a process runs on.

PATH is relative to the mount, or below it, or the file's identity as
"dmxfs locks --json" has it. A file whose name is a number is written ./123.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	host := c.Flags().String("host", "", "the host that the process runs on, by its name or peer ID")
	clientFor := ask.TimeoutFlag(c.Flags(), ask.AnswerTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := whyTarget(args[0], *host)
		if err != nil {
			return err
		}
		cl, r, err := clientFor(ask.PointFor(args[0], args[1:]))
		if err != nil {
			return err
		}
		if t.PID == 0 {
			t.Path = admin.AsReceived(mountpoint.Relative(r.Mountpoint, t.Path))
		}
		g, err := ask.Graph(c.Context(), cl)
		if err != nil {
			return ask.NoDaemon(err, r)
		}
		story := g.Why(t)
		if *asJSON {
			return printing.JSON(s.out, story)
		}
		if len(story.Steps) == 0 {
			fmt.Fprintln(s.out, noWait(t, story.Silent, r.Mountpoint))
		}
		for _, l := range story.Lines() {
			fmt.Fprintln(s.out, printing.Text(l))
		}
		return nil
	}
	return c
}

// noWait says that nothing was found. That nobody waits is only known when all members
// have answered: who waits on a silent one is in its memory alone.
func noWait(t waitgraph.Target, silent []waitgraph.Member, mount string) string {
	unknown := slices.ContainsFunc(silent, func(m waitgraph.Member) bool { return m.State != "expelled" })
	switch {
	case t.PID != 0 && unknown:
		return fmt.Sprintf("process %d waits for no lock of %s that is known here", t.PID, printing.Text(mount))
	case t.PID != 0:
		return fmt.Sprintf("process %d waits for no lock of %s", t.PID, printing.Text(mount))
	case unknown:
		return fmt.Sprintf("whether somebody waits for a lock of %s is not known: on the hosts that answer nobody does", printing.Text(t.Path))
	}
	return fmt.Sprintf("nobody waits for a lock of %s", printing.Text(t.Path))
}

// whyTarget is what a word of the command line stands for; a path as it was given.
func whyTarget(word, host string) (waitgraph.Target, error) {
	pid, err := strconv.Atoi(word)
	switch {
	case err == nil && pid <= 0:
		return waitgraph.Target{}, exitcode.With(exitcode.Usage, fmt.Errorf("%s is no process ID; a file of that name is ./%s", word, word))
	case err == nil:
		return waitgraph.Target{PID: pid, Host: host}, nil
	case host != "":
		return waitgraph.Target{}, exitcode.With(exitcode.Usage, errors.New("--host goes with a process ID"))
	}
	return waitgraph.Target{Path: word}, nil
}
