package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// confirm asks a question on standard error, and reads the answer from
// standard input. An error says that it was not yes.
func confirm(s streams, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil {
		fmt.Fprintln(s.err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done: answer with y, or give --yes")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
