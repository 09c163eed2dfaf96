package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/top"
)

// countedMount is a mount as the terminal view sees it, which wants counters as well.
type countedMount struct{ ask.View }

// Counters are what the daemon serves to Prometheus.
func (m countedMount) Counters(ctx context.Context) (top.Counters, error) {
	text, err := m.Metrics(ctx)
	if err != nil {
		return top.Counters{}, err
	}
	defer text.Close()
	return top.ReadCounters(time.Now(), text)
}

func newTopCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "top [MOUNTPOINT]", Short: "Watch rates, hosts and waits in the terminal",
		Long: `Watch the cluster in the terminal: what this node does per second, the hosts that
others wait for most, and who holds and waits for which locks in the cluster, waits
first. Members that do not answer are named.

  up, down   choose a lock           Enter   its story: what it waits for, up to the end
  s, r       sort by, reverse        b       break it; asks for a reason, for the journals
  h          which: held, waiting …  /       search, as one types; Esc: all again
  q          quit

Without a terminal, or with --once, it prints one table, with the rates of one
second.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	once := c.Flags().Bool("once", false, "print one table, and end")
	asJSON := c.Flags().Bool("json", false, "print JSON for programs, once")
	interval := c.Flags().Duration("interval", time.Second, "time between two looks")
	long := c.Flags().Duration("long", 10*time.Second, "how long a wait is that stands out")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *interval < 100*time.Millisecond || *long <= 0 {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--interval %v, --long %v: must be 100ms at least, and more than 0", *interval, *long))
		}
		cl, r, err := ask.Client(args)
		if err != nil {
			return err
		}
		cl.Timeout = ask.AnswerTime
		var v admin.Status
		if err := cl.Get(c.Context(), "/status", &v); err != nil {
			return ask.NoDaemon(err, r)
		}
		from := countedMount{ask.NewView(r.State)}
		in, isIn := s.in.(*os.File)
		out, isOut := s.out.(*os.File)
		if !*once && !*asJSON && isIn && isOut && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) {
			return top.Run(c.Context(), from, in, out, *interval, *long, ask.Who())
		}
		o, err := top.TakeOnce(c.Context(), from, *interval)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return o.WriteJSON(printing.EscapedJSON(s.out))
		}
		return o.WriteTable(s.out)
	}
	return c
}
