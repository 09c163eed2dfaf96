package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/version"
)

func newVersionCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version",
		Long: `Print the version of this program. A mount may be served by another one, which
was installed then: "dmxfs peers" shows those of all members.`,
		Args: usageArgs(cobra.NoArgs),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	c.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			return printing.JSON(s.out, version.This())
		}
		_, err := fmt.Fprintf(s.out, "dmxfs %s\n", version.String())
		return err
	}
	return c
}
