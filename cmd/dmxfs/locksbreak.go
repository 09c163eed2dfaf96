package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
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
	var w breakWish
	c.Flags().StringVar(&w.reason, "reason", "", "why, for the journals (needed)")
	yes := c.Flags().Bool("yes", false, "do not ask")
	c.Flags().StringVar(&w.class, "class", "", "only locks of this class: open, flock or posix")
	c.Flags().StringVar(&w.host, "host", "", "only locks that programs on this host hold")
	c.Flags().IntVar(&w.pid, "pid", 0, "only locks of this process")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := w.check(); err != nil {
			return err
		}
		cl, r, err := clientFor(args[1:])
		if err != nil {
			return err
		}
		var v admin.Locks
		if err := cl.Get(c.Context(), "/locks", &v); err != nil {
			return ask.NoDaemon(err, r)
		}
		admin.AllReceived(v.Locks)
		w.path = args[0]
		if rel, err := filepath.Rel(r.Mountpoint, w.path); err == nil && filepath.IsAbs(w.path) && filepath.IsLocal(rel) {
			w.path = rel
		}
		for _, m := range v.Missing {
			fmt.Fprintf(s.err, "dmxfs: no answer from %s: what it holds is not known; `dmxfs peers remove` frees all of it\n", printing.Text(m))
		}
		held := w.heldIn(v.Locks)
		if len(held) == 0 {
			return fmt.Errorf("no program holds a lock of %q that was meant: see dmxfs locks", w.path)
		}
		fmt.Fprintln(s.err, "These are taken away:")
		if err := printing.Table(s.err, lockHeads, lockRows(held, false, time.Now())); err != nil {
			return err
		}
		if err := confirm(c.Context(), s, *yes, "Break them?"); err != nil {
			return err
		}
		a, err := cl.Break(c.Context(), admin.BreakOrder{Locks: held, Reason: w.reason})
		if err != nil {
			return err
		}
		for _, l := range a.Broken {
			fmt.Fprintf(s.out, "broken: %s, class %s, %s, process %d (%s) on %s\n", printing.Text(l.Path), l.Class, l.Mode, l.PID, printing.Text(l.Command), printing.Text(l.Host))
		}
		if len(a.Errors) > 0 {
			return errors.New(strings.Join(a.Errors, "; "))
		}
		if len(a.Broken) == 0 {
			return errors.New("nothing was broken: the programs gave the locks up meanwhile")
		}
		return nil
	}
	return c
}

// breakWish says which locks are to be broken: those of path, and of them, where
// the other fields are set, only what agrees with them.
type breakWish struct {
	path, class, host string
	pid               int
	reason            string
}

func (w *breakWish) check() error {
	switch w.class {
	case "", "open", "flock", "posix":
	default:
		return exitcode.With(exitcode.Usage, fmt.Errorf("--class %q: must be open, flock or posix", w.class))
	}
	if strings.TrimSpace(w.reason) == "" {
		return exitcode.With(exitcode.Usage, errors.New("give the --reason: it goes to the journals"))
	}
	return nil
}

// heldIn returns those of locks that are held and meant.
func (w *breakWish) heldIn(locks []admin.Lock) []admin.Lock {
	var held []admin.Lock
	for _, l := range locks {
		if (l.Path == w.path || l.File == w.path) && l.State == "held" && (w.class == "" || l.Class == w.class) &&
			(w.host == "" || l.Host == w.host) && (w.pid == 0 || l.PID == w.pid) {
			held = append(held, l)
		}
	}
	return held
}
