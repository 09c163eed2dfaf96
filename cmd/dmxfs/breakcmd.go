package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newLocksBreakCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "break PATH [MOUNTPOINT]", Short: "Take locks away from the programs that hold them",
		Long: `Take away what programs hold of a file, on any host: first their reads and writes
under the lock are kept from going on, for good (EIO until they close the file,
or give up the lock), then the lock is freed. Both nodes' journals have it. Better
end the program, if you can: a lock that is broken may leave a file half written.

PATH is relative to the mount, or below it, or the file's identity as
"dmxfs locks --json" has it.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	reason := c.Flags().String("reason", "", "why, for the journals (needed)")
	yes := c.Flags().Bool("yes", false, "do not ask")
	class := c.Flags().String("class", "", "only locks of this class: open, flock or posix")
	host := c.Flags().String("host", "", "only locks that programs on this host hold")
	pid := c.Flags().Int("pid", 0, "only locks of this process")
	clientFor := askTimeoutFlag(c, orderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch *class {
		case "", "open", "flock", "posix":
		default:
			return withCode(exitUsage, fmt.Errorf("--class %q: must be open, flock or posix", *class))
		}
		if strings.TrimSpace(*reason) == "" {
			return withCode(exitUsage, errors.New("give the --reason: it goes to the journals"))
		}
		cl, r, err := clientFor(args[1:])
		if err != nil {
			return err
		}
		var v locksAnswer
		if err := cl.get(c.Context(), "/locks", &v); err != nil {
			return noDaemon(err, r)
		}
		path := args[0]
		if rel, err := filepath.Rel(r.Mountpoint, path); err == nil && filepath.IsAbs(path) && filepath.IsLocal(rel) {
			path = rel
		}
		var held []lockJSON
		for _, l := range v.Locks {
			if (l.Path == path || l.File == path) && l.State == "held" && (*class == "" || l.Class == *class) &&
				(*host == "" || l.Host == *host) && (*pid == 0 || l.PID == *pid) {
				held = append(held, l)
			}
		}
		for _, m := range v.Missing {
			fmt.Fprintf(s.err, "dmxfs: no answer from %s: what it holds is not known; `dmxfs peers remove` frees all of it\n", printable(m))
		}
		if len(held) == 0 {
			return fmt.Errorf("no program holds a lock of %q that was meant: see dmxfs locks", path)
		}
		fmt.Fprintln(s.err, "These are taken away:")
		if err := printTable(s.err, lockHeads, lockRows(held, false, time.Now())); err != nil {
			return err
		}
		if err := confirm(c.Context(), s, *yes, "Break them?"); err != nil {
			return err
		}
		body, err := json.Marshal(breakRequest{held, *reason})
		if err != nil {
			return err
		}
		resp, err := cl.send(c.Context(), http.MethodPost, "/locks/break", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var a breakAnswer
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			return fmt.Errorf("the daemon's answer cannot be read: %w", err)
		}
		for _, l := range a.Broken {
			fmt.Fprintf(s.out, "broken: %s, class %s, %s, process %d (%s) on %s\n", printable(l.Path), l.Class, l.Mode, l.PID, printable(l.Command), printable(l.Host))
		}
		if len(a.Errors) > 0 {
			return errors.New(strings.Join(a.Errors, "; "))
		}
		return nil
	}
	return c
}
