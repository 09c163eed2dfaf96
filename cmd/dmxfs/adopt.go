package main

import (
	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/supervise"
)

// newAdoptCommand is a watcher that a daemon has started, whose own has ended.
func newAdoptCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: supervise.AdoptCommand + " MOUNTPOINT", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, _ []string) error { return supervise.Adopt(c.Context(), s.in, s.err) },
	}
}
