package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// streams are where a command writes. Results go to out, everything else to err.
type streams struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// run executes the command line args (without the name) and returns the exit
// number.
func run(ctx context.Context, args []string, s streams) int {
	root := newCommand(s)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
	})
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitcode.OK
	}
	fmt.Fprintf(s.err, "dmxfs-sim: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitcode.Usage
	}
	return exitcode.Failure
}

// usageError is an error of who wrote the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// noArgs refuses arguments as a usage error.
func noArgs(c *cobra.Command, args []string) error {
	if err := cobra.NoArgs(c, args); err != nil {
		return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
	}
	return nil
}
