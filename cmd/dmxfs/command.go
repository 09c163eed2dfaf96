package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
)

// streams are what a command reads and writes. Results go to out, everything
// else to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func stdStreams() streams { return streams{os.Stdin, os.Stdout, os.Stderr} }

// errSilent: the exit number says it all, or it has been said.
var errSilent = errors.New("")

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return exitcode.With(exitcode.Usage, fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
		}
		return nil
	}
}

// show makes a command that asks the daemon for path and prints the answer as
// JSON or by table.
func show[T any](s streams, use, short, long, path string, table func(T) ([]string, [][]string)) *cobra.Command {
	c := &cobra.Command{Use: use + " [MOUNTPOINT]", Short: short, Long: long, Args: usageArgs(cobra.MaximumNArgs(1))}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		var v T
		if err := cl.Get(c.Context(), path, &v); err != nil {
			x, ok := any(&v).(*admin.Status)
			if !ok || exitcode.Of(err) != exitcode.NoMount || ask.Waiting(r.State, x) != nil {
				return ask.NoDaemon(err, r)
			}
		}
		if *asJSON {
			err = printing.JSON(s.out, v)
		} else {
			heads, rows := table(v)
			err = printing.Table(s.out, heads, rows)
		}
		if x, ok := any(v).(admin.Status); ok && !x.Healthy && err == nil {
			err = exitcode.With(exitcode.Sick, errSilent)
		}
		return err
	}
	return c
}

// confirm asks a question on standard error, and reads the answer from
// standard input. An error says that it was not yes.
func confirm(ctx context.Context, s streams, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	said := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(s.in).ReadString('\n')
		if err != nil {
			fmt.Fprintln(s.err)
		}
		said <- line
	}()
	var line string
	select {
	case line = <-said:
	case <-ctx.Done():
		fmt.Fprintln(s.err)
		return fmt.Errorf("nothing was done: %w", context.Cause(ctx))
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done: answer with y, or give --yes")
}
