package main

import (
	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/daemon"
	"github.com/dmxfs/dmxfs/internal/succession"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// newServeCommand is the process that serves a mount.
func newServeCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: supervise.ServeCommand + " MOUNTPOINT", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, _ []string) error {
			if succession.Left() {
				return daemon.Resume(c.Context(), s.err)
			}
			return supervise.Serve(c.Context(), s.in, s.err, daemon.Serve)
		},
	}
}
