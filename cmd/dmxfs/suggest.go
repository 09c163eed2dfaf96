package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// flagProblem is err, of the flags of c, with what may have been meant.
func flagProblem(c *cobra.Command, err error) error {
	hint := ""
	if x, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if n := config.Nearest(x.GetSpecifiedName(), names); n != "" {
			hint = "; is --" + n + " meant?"
		}
	}
	return exitcode.With(exitcode.Usage, fmt.Errorf("%w%s (see %s --help)", err, hint, c.CommandPath()))
}

// commandMeant is the command that is most like the name of a directory that is not
// there, or empty: "dmxfs stauts /mnt" mounts a directory.
func commandMeant(name string, root *cobra.Command) string {
	if strings.Contains(name, "/") || len(name) < 4 { // mnt is not init
		return ""
	}
	if _, err := os.Lstat(name); err == nil {
		return ""
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return config.Nearest(name, names)
}
