package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
)

// show makes a command that asks the daemon for path and prints the answer as
// JSON or by table.
func show[T any](s streams, use, short, long, path string, table func(T) ([]string, [][]string)) *cobra.Command {
	c := &cobra.Command{Use: use + " [MOUNTPOINT]", Short: short, Long: long, Args: usageArgs(cobra.MaximumNArgs(1))}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	clientFor := askTimeoutFlag(c, admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		var v T
		if err := cl.Get(c.Context(), path, &v); err != nil {
			x, ok := any(&v).(*admin.Status)
			if !ok || exitcode.Of(err) != exitcode.NoMount || waitingStatus(r.State, x) != nil {
				return noDaemon(err, r)
			}
		}
		if *asJSON {
			err = printing.JSON(s.out, v)
		} else {
			heads, rows := table(v)
			err = printing.Table(s.out, heads, rows)
		}
		if x, ok := any(v).(admin.Status); ok && !x.Healthy && err == nil {
			err = exitcode.With(exitcode.Sick, errSilent)
		}
		return err
	}
	return c
}

func mountArgs(r statedir.Registration) string {
	if r.Source == r.Mountpoint {
		return r.Mountpoint
	}
	return r.Source + " " + r.Mountpoint
}

func newStatusCommand(s streams) *cobra.Command {
	const long = `Show how a mount is doing. The exit number is 0 if locks can be had and nothing
is wrong, 6 if not, as the problems say, and 3 if no daemon serves the mount. In
the state "waiting" it has none for now, but is to get one.`
	return show(s, "status", "Show how a mount is doing", long, "/status", func(v admin.Status) ([]string, [][]string) {
		rows := [][]string{
			{"mount", v.Mount}, {"source", v.Source}, {"state", v.State}, {"epoch", fmt.Sprint(v.Epoch)},
			{"members", fmt.Sprint(v.Members)}, {"locks held", fmt.Sprint(v.Held)}, {"requests waiting", fmt.Sprint(v.Waiting)},
			{"up", (time.Duration(v.UptimeS) * time.Second).String()}, {"process", fmt.Sprint(v.PID)}, {"version", v.Version},
			{"node", v.Self}, {"file ids", v.FileID}, {"state directory", v.StateDir},
		}
		if !v.VersionSince.IsZero() {
			rows = append(rows, []string{"this version serves for", time.Since(v.VersionSince).Round(time.Second).String()})
		}
		switch {
		case v.Delegate:
			rows = append(rows, []string{"delegation", "all other members to this node: it opens many files"})
		case v.DelegatesTo != "":
			rows = append(rows, []string{"delegation", "to " + v.DelegatesTo + ", which opens many files"})
		}
		for _, p := range v.Problems {
			rows = append(rows, []string{"problem", p})
		}
		return []string{"WHAT", "VALUE"}, rows
	})
}

func newLocksCommand(s streams) *cobra.Command {
	var local bool
	c := &cobra.Command{
		Use: "locks [MOUNTPOINT]", Short: "Show who holds which lock, and who waits for whom",
		Long: `Show who holds which lock, and who waits for whom, in the whole cluster. What
members have that do not answer within 2 s is not shown; they are named on
standard error.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	c.Flags().BoolVar(&local, "local", false, "only this node, not the whole cluster")
	c.AddCommand(newLocksBreakCommand(s))
	all := c.Flags().Bool("all", false, "in the table, also what nodes keep without a program that holds it")
	clientFor := askTimeoutFlag(c, admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		var v admin.Locks
		path := "/locks?timeout=" + membersAnswerTime.String()
		if local {
			path = "/locks?local=1"
		}
		if err := cl.Get(c.Context(), path, &v); err != nil {
			return noDaemon(err, r)
		}
		for _, m := range v.Missing {
			fmt.Fprintf(s.err, "dmxfs: silent, so what its programs hold and wait for is not in this: %s\n", printing.Text(m))
		}
		if *asJSON {
			if v.Locks == nil {
				v.Locks = []admin.Lock{}
			}
			return printing.JSON(s.out, v.Locks)
		}
		return printing.Table(s.out, lockHeads, lockRows(v.Locks, *all, time.Now()))
	}
	return c
}

// useOf says how an open lock is used.
func useOf(l admin.Lock, now time.Time) string {
	if l.IdleSince == nil {
		return l.Use
	}
	return l.Use + ", idle " + printing.Ago(*l.IdleSince, now)
}

var lockHeads = []string{"PATH", "CLASS", "ALGORITHM", "MODE", "BYTES", "STATE", "HOST", "PID", "COMMAND", "SINCE", "USE", "WAITS FOR"}

func lockRows(all []admin.Lock, cached bool, now time.Time) [][]string {
	var rows [][]string
	for _, l := range all {
		if l.State == "cached" && !cached {
			continue
		}
		path, pid := l.Path, strconv.Itoa(l.PID)
		if path == "" {
			path = l.File
		}
		if l.PID == 0 {
			pid = "-"
		}
		var why []string
		for _, w := range l.WaitsFor {
			who := w.Host
			if w.PID != 0 {
				who += fmt.Sprintf(" %d (%s)", w.PID, w.Command)
			}
			why = append(why, who)
		}
		rows = append(rows, []string{path, l.Class, l.Algorithm, l.Mode, printing.Span(l.Start, l.End), l.State, l.Host, pid, l.Command,
			printing.Ago(l.Since, now), useOf(l, now), strings.Join(why, ", ")})
	}
	return rows
}

// clientFor is the client for the daemon of a mount point.
func clientFor(args []string) (*admin.Client, statedir.Registration, error) {
	point, err := mountpoint.Which(args)
	if err != nil {
		return nil, statedir.Registration{}, err
	}
	r, err := statedir.Registered(point)
	if err != nil {
		return nil, r, err
	}
	return admin.NewClient(r.State), r, nil
}

// askTimeoutFlag gives a command, a time after which each of
// its questions and orders is given up.
func askTimeoutFlag(c *cobra.Command, byDefault time.Duration) (clientWithin func(args []string) (*admin.Client, statedir.Registration, error)) {
	d := c.Flags().Duration("timeout", byDefault, "how long to wait for the daemon; what it has not begun with by then it does not do")
	return func(args []string) (*admin.Client, statedir.Registration, error) {
		cl, r, err := clientFor(args)
		if err == nil {
			cl.Timeout = *d
		}
		return cl, r, err
	}
}
