package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/internal/printing"
)

func newMetricsCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "metrics [MOUNTPOINT]", Short: "Print this node's metrics as Prometheus reads them",
		Long: `Print the metrics of this node in Prometheus's text format: locks, waits, requests
of the kernel, views, members, the storage and the journal. They are counted since
the daemon began. "dmxfs --metrics ADDR" shows them to a Prometheus over HTTP, with
native histograms.

No label of them grows with files or processes. --paths N adds the files for which
the most requests of this host wait, by name.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	paths := c.Flags().Int("paths", 0, fmt.Sprintf("also so many of the files that are most waited for (up to %d)", metrics.MaxPaths))
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	clientFor := ask.TimeoutFlag(c.Flags(), ask.AnswerTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		if *paths < 0 || *paths > metrics.MaxPaths {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--paths %d: must be 0 to %d", *paths, metrics.MaxPaths))
		}
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		resp, err := cl.Do(c.Context(), http.MethodGet, "/metrics?"+url.Values{"paths": {strconv.Itoa(*paths)}}.Encode())
		if err != nil {
			return ask.NoDaemon(err, r)
		}
		defer resp.Body.Close()
		if *asJSON {
			v, err := metrics.Decode(resp.Body)
			if err != nil {
				return fmt.Errorf("the daemon's answer cannot be read: %w", err)
			}
			return printing.JSON(s.out, v)
		}
		_, err = io.Copy(s.out, resp.Body)
		return err
	}
	return c
}
