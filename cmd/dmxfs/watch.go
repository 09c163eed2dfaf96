package main

import (
	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/supervise"
)

// newWatchCommand is what a mount in the background runs as.
func newWatchCommand(s streams) *cobra.Command {
	return &cobra.Command{
		// The mount point is for people who look at the processes.
		Use: supervise.WatchCommand + " MOUNTPOINT", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, _ []string) error { return supervise.RunWatch(c.Context(), s.in, s.err) },
	}
}
