package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/succession"
)

// newCheckCommand is what a daemon asks another program before it stops anything.
func newCheckCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: succession.CheckCommand, Hidden: true, Short: "not for people: what a daemon that is being upgraded executes", Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(s.in)
			if err != nil {
				return err
			}
			a, err := succession.Agree(text)
			if err != nil {
				return exitcode.With(exitcode.Usage, fmt.Errorf("terms on standard input: %w", err))
			}
			return printing.JSON(s.out, a)
		},
	}
}
