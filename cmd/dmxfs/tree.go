package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/printing"
)

// treeCommand is hidden: what man pages are made from, by a program of its own
// (cmd/dmxfs-man), so that none of that is linked into this one.
const treeCommand = "command-tree"

// commandJSON is a command with those below it. Hidden ones are left out.
type commandJSON struct {
	Use      string        `json:"use"`
	Short    string        `json:"short"`
	Long     string        `json:"long"`
	Flags    []flagJSON    `json:"flags"`
	Commands []commandJSON `json:"commands"`
}

type flagJSON struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand"`
	Value     string `json:"value"` // what to give; empty: the flag takes none
	Default   string `json:"default"`
	Usage     string `json:"usage"`
}

func newTreeCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: treeCommand, Hidden: true, Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			c.Root().InitDefaultHelpCmd()
			c.Root().InitDefaultCompletionCmd()
			return printing.JSON(s.out, tree(c.Root()))
		},
	}
}

func tree(c *cobra.Command) commandJSON {
	j := commandJSON{Use: c.Use, Short: c.Short, Long: c.Long, Flags: []flagJSON{}, Commands: []commandJSON{}}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" && f.Name != "version" {
			value, usage := pflag.UnquoteUsage(f)
			j.Flags = append(j.Flags, flagJSON{f.Name, f.Shorthand, value, f.DefValue, usage})
		}
	})
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			j.Commands = append(j.Commands, tree(below))
		}
	}
	return j
}
