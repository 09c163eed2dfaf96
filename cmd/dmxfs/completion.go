package main

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

// completionTime is how long a shell waits for what it is to offer. Who presses a key
// gets what is known by then.
const completionTime = 700 * time.Millisecond

// words are what can stand at a place of the command line.
type words func(ctx context.Context) []string

// completions are the words for a place, by what the usage of commands calls it.
var completions = map[string]words{
	"MOUNTPOINT": func(context.Context) []string { return pointsHere() },
	"ID|HOST":    peerNames,
	"PATH":       lockedPaths,
	"PID|PATH":   waitersAndPaths,
}

// flagCompletions are those for the values of flags.
var flagCompletions = map[string]words{
	"event":   func(context.Context) []string { return eventNames() },
	"class":   func(context.Context) []string { return classNames() },
	"node":    peerIDs,
	"host":    peerNames,
	"path":    lockedPaths,
	"explain": lockedPaths,
}

// addCompletions lets shells complete what commands below root take.
func addCompletions(root *cobra.Command) {
	for _, c := range root.Commands() {
		addCompletions(c)
		places := strings.Fields(c.Use)[1:]
		if slices.ContainsFunc(places, func(p string) bool { return completions[strings.Trim(p, "[]")] != nil }) && c.ValidArgsFunction == nil && c.Name() != "mount" {
			c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				if len(args) >= len(places) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				w := completions[strings.Trim(places[len(args)], "[]")]
				if w == nil {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return offer(c.Context(), w, begun), cobra.ShellCompDirectiveNoFileComp
			}
		}
		for name, w := range flagCompletions {
			if c.LocalFlags().Lookup(name) == nil {
				continue
			}
			// It fails only for what is completed already.
			_ = c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				return offerList(c.Context(), w, begun), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
}

// offer are the words that go on as begun.
func offer(ctx context.Context, w words, begun string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	out := w(ctx)
	// A shell takes a line each, with a description behind a tab. A name that is not
	// UTF-8 is another one by now, see [admin.AsReceived].
	out = slices.DeleteFunc(out, func(s string) bool {
		return s == "" || !strings.HasPrefix(s, begun) || strings.ContainsFunc(s, printing.Unprintable) || strings.ContainsRune(s, utf8.RuneError)
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// offerList is offer for the last one of words with commas between them.
func offerList(ctx context.Context, w words, begun string) []string {
	i := strings.LastIndexByte(begun, ',') + 1
	out := offer(ctx, w, begun[i:])
	for j := range out {
		out[j] = begun[:i] + out[j]
	}
	return out
}

// pointsHere are the mount points of this host; none if they cannot be read.
func pointsHere() []string {
	points, _ := mountpoint.All()
	return points
}

// askAll asks the daemons of this user's mounts, beside each other: one that is
// stopped keeps none of the others' answers back.
func askAll[T any](ctx context.Context, path string, then func(T)) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, point := range pointsHere() {
		r, err := statedir.Registered(point)
		if err != nil {
			continue
		}
		wg.Go(func() {
			cl := admin.NewClient(r.State)
			cl.Messages = io.Discard
			var v T
			if cl.Get(ctx, path, &v) == nil {
				mu.Lock()
				defer mu.Unlock()
				then(v)
			}
		})
	}
	wg.Wait()
}

func peerIDs(ctx context.Context) (out []string) {
	askAll(ctx, "/peers", func(p admin.Peers) {
		for _, m := range p.Members {
			out = append(out, m.ID)
		}
	})
	return out
}

// peerNames are IDs and names of hosts.
func peerNames(ctx context.Context) (out []string) {
	askAll(ctx, "/peers", func(p admin.Peers) {
		for _, m := range p.Members {
			out = append(out, m.ID, m.Host)
		}
	})
	return out
}

// lockedPaths are the files of this host that locks are on.
func lockedPaths(ctx context.Context) (out []string) {
	askAll(ctx, "/locks?local=1", func(a admin.Locks) {
		for _, l := range a.Locks {
			if l.State != "cached" {
				out = append(out, l.Path)
			}
		}
	})
	return out
}

// waitersAndPaths are these, and the processes of this host that wait.
func waitersAndPaths(ctx context.Context) (out []string) {
	askAll(ctx, "/locks?local=1", func(a admin.Locks) {
		for _, l := range a.Locks {
			if l.State != "cached" {
				out = append(out, l.Path)
			}
			if l.State == "waiting" && l.PID != 0 {
				out = append(out, strconv.Itoa(l.PID))
			}
		}
	})
	return out
}

func eventNames() (out []string) {
	for _, e := range journal.Events() {
		out = append(out, e.String())
	}
	return out
}

func classNames() (out []string) {
	for _, c := range locks.Classes {
		out = append(out, c.String())
	}
	return out
}
