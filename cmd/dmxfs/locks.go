package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/printing"
)

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
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		var v admin.Locks
		path := "/locks?timeout=" + ask.MembersTime.String()
		if local {
			path = "/locks?local=1"
		}
		if err := cl.Get(c.Context(), path, &v); err != nil {
			return ask.NoDaemon(err, r)
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
