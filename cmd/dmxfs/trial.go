package main

import (
	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/trial"
)

// newTrialCommand is the process that tries the storage before a first mount.
func newTrialCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: trial.Command + " SOURCE", Hidden: true, Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(*cobra.Command, []string) error {
			return trial.Serve(s.in)
		},
	}
}
