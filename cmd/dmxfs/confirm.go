package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

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
