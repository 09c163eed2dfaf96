package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/journalview"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/story"
)

func newJournalCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "journal [MOUNTPOINT]", Short: "Show what happened to locks, also when no daemon runs",
		Long: `Show the journal of this node: every step in the life of every lock request,
and what happened to the cluster. It is read through the daemon while one runs,
and directly otherwise.

With --cluster the journals of all members are merged in causal order: by epochs,
then fencing tokens, then time; of each member the last 20,000 records. --explain
tells the story of a file in sentences, of all journals, and who waits for it now.
Members that do not answer in time (--timeout, then 3 s) are named. --requests
lists what is open now, or was when the daemon last ended without order.

Times are given as 2026-11-21T03:00:00Z, "2026-11-21 03:00", 03:00 (today), or
as a duration that has passed since, like 2h30m.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	fl := c.Flags()
	path := fl.String("path", "", "only this path, relative to the shared directory; may have *, ** and ?")
	since := fl.String("since", "", "only from this time on")
	until := fl.String("until", "", "only before this time")
	names := fl.StringSlice("event", nil, "only these events, like granted,lost")
	pid := fl.Int("pid", 0, "only requests of this process")
	node := fl.String("node", "", "only records about this node, by its peer ID")
	last := fl.Int("last", 0, "only the last ones, this many")
	follow := fl.BoolP("follow", "f", false, "go on with new records as they come")
	asJSON := fl.Bool("json", false, "print JSON for programs, one object a line")
	views := journalViewFlags(fl)
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		f := journal.Filter{Path: strings.TrimPrefix(*path, "/"), PID: *pid, Node: locks.NodeID(*node), Last: *last, Follow: *follow}
		var err error
		now := time.Now()
		if f.Since, err = parseTime(*since, now); err != nil {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--since: %w", err))
		}
		if f.Until, err = parseTime(*until, now); err != nil {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--until: %w", err))
		}
		for _, n := range *names {
			ev, err := journal.ParseEvent(strings.TrimSpace(n))
			if err != nil {
				return exitcode.With(exitcode.Usage, fmt.Errorf("--event: %w", err))
			}
			f.Events = append(f.Events, ev)
		}
		if err := views.check(&f); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		cl, r, err := clientFor(ask.PointFor(views.explain, args))
		if err != nil {
			return err
		}
		if views.ofCluster() && !fl.Changed("timeout") {
			cl.Timeout = ask.AnswerTime
		}
		if done, err := views.show(c.Context(), s, cl, r, f, *asJSON); done {
			return err
		}
		out := journalview.NewPrinter(s.out, s.err, *asJSON)
		finish, err := out.Export(views.file)
		if err != nil {
			return err
		}
		return finish(journalview.ShowOwn(c.Context(), cl, r, f, out))
	}
	return c
}

// journalViews are the ways to look at journals other than record by record.
type journalViews struct {
	cluster, requests bool
	explain, file     string
}

func journalViewFlags(fl *pflag.FlagSet) *journalViews {
	v := &journalViews{}
	fl.BoolVar(&v.cluster, "cluster", false, "the journals of all members, merged in causal order")
	fl.StringVar(&v.explain, "explain", "", "tell the story of this `PATH` in sentences, of the journals of all members")
	fl.BoolVar(&v.requests, "requests", false, "only the requests that are open now, or were when the daemon last ended without order")
	fl.StringVar(&v.file, "export", "", "write to this `FILE`, by its ending .csv or .jsonl; one that is there is replaced; - is JSON lines to standard output")
	return v
}

// ofCluster reports whether other members are asked.
func (v *journalViews) ofCluster() bool { return v.cluster || v.explain != "" }

// check says what does not go together.
func (v *journalViews) check(f *journal.Filter) error {
	switch {
	case f.Follow && (v.ofCluster() || v.requests || v.file != ""):
		return errors.New("--follow goes with none of --cluster, --explain, --requests and --export")
	case v.requests && (v.ofCluster() || v.file != ""):
		return errors.New("--requests goes with none of --cluster, --explain and --export")
	case v.explain != "" && v.file != "":
		return errors.New("--explain tells sentences: --export the records with --cluster --path PATH")
	case v.explain != "" && (f.Path != "" || f.PID != 0 || f.Node != "" || len(f.Events) > 0):
		return errors.New("--explain goes with --since, --until and --last only")
	case v.file != "" && v.file != "-" && !strings.HasSuffix(v.file, ".csv") && !strings.HasSuffix(v.file, ".jsonl"):
		return fmt.Errorf("--export %q: must end with .csv or .jsonl, or be -", v.file)
	}
	return nil
}

// show does what is not the journal of this node record by record, if it is asked for.
func (v *journalViews) show(ctx context.Context, s streams, cl *admin.Client, r statedir.Registration, f journal.Filter, asJSON bool) (done bool, err error) {
	switch {
	case v.requests:
		return true, showRequests(ctx, s, cl, r, asJSON)
	case v.explain != "":
		return true, v.tell(ctx, s, cl, r, f, asJSON)
	case v.cluster:
		return true, v.showCluster(ctx, s, cl, r, f, asJSON)
	}
	return false, nil
}

func (v *journalViews) showCluster(ctx context.Context, s streams, cl *admin.Client, r statedir.Registration, f journal.Filter, asJSON bool) error {
	a, err := ask.Journals(ctx, cl, r, journalquery.Values(f))
	if err != nil {
		return err
	}
	journalview.Warn(s.err, a)
	if f.Last > 0 { // each member has told as many
		a.Entries = a.Entries[max(len(a.Entries)-f.Last, 0):]
	}
	if v.file == "" && !asJSON {
		return journalview.Entries(s.out, s.err, a.Entries)
	}
	out := journalview.NewPrinter(s.out, s.err, true)
	finish, err := out.Export(v.file)
	if err != nil {
		return err
	}
	for i := range a.Entries {
		b, err := json.Marshal(a.Entries[i])
		if err == nil {
			err = out.Line(b)
		}
		if err != nil {
			return finish(err)
		}
	}
	return finish(nil)
}

// fileStory is what --explain --json prints.
type fileStory struct {
	Path      string             `json:"path"`
	Sentences []story.Sentence   `json:"sentences"`
	Now       *waitgraph.Story   `json:"now"`
	Silent    []waitgraph.Member `json:"silent"`
	Cut       []string           `json:"cut"`
}

// tell tells the story of a file, up to who waits for it now.
func (v *journalViews) tell(ctx context.Context, s streams, cl *admin.Client, r statedir.Registration, f journal.Filter, asJSON bool) error {
	path := mountpoint.Relative(r.Mountpoint, v.explain)
	f.Path = escapePattern(path)
	q := journalquery.Values(f)
	q.Set("around", "1")
	type graph struct {
		g   *waitgraph.Graph
		err error
	}
	now := make(chan graph, 1)
	go func() {
		g, err := ask.Graph(ctx, cl)
		now <- graph{g, err}
	}()
	a, err := ask.Journals(ctx, cl, r, q)
	w := <-now
	if err != nil && w.err != nil && err.Error() == w.err.Error() {
		err = nil // both were told the same, most likely nothing
	}
	if err = errors.Join(err, w.err); err != nil {
		if exitcode.Of(w.err) == exitcode.NoMount {
			return ask.NoDaemon(w.err, r)
		}
		return err
	}
	x := fileStory{path, story.Tell(a.Entries, a.Hosts), w.g.Why(waitgraph.Target{Path: admin.AsReceived(path)}), a.Silent, a.Cut}
	if asJSON {
		return printing.JSON(s.out, x)
	}
	journalview.Warn(s.err, a)
	if len(x.Sentences) == 0 && len(x.Now.Steps) == 0 {
		fmt.Fprintln(s.err, "dmxfs: the journals have nothing of "+printing.Text(path))
	}
	for _, y := range x.Sentences {
		fmt.Fprintf(s.out, "%s  %s\n", y.Time.UTC().Format("2006-01-02 15:04:05.000Z"), printing.Text(y.Text))
	}
	if len(x.Now.Steps) > 0 {
		fmt.Fprintln(s.out, "now:")
	}
	for _, l := range x.Now.Lines() {
		fmt.Fprintln(s.out, "  "+printing.Text(l))
	}
	return nil
}

// escapePattern is the pattern for exactly this path, which need not be UTF-8.
func escapePattern(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(`*?[]{}\`, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// showRequests lists the requests that are open, also where no daemon runs.
func showRequests(ctx context.Context, s streams, cl *admin.Client, r statedir.Registration, asJSON bool) error {
	all := []story.Request{}
	err := cl.Get(ctx, "/journal/requests", &all)
	if errors.Is(err, admin.ErrNoDaemon) {
		var q story.Requests
		out := journalview.NewSink(s.err, func(b []byte) error {
			var x journal.Record
			if err := json.Unmarshal(b, &x); err != nil {
				return err
			}
			q.Add(&x)
			return nil
		})
		err = journalview.Read(ctx, r, journal.Filter{}, out)
		all = q.Open()
	}
	if err != nil {
		return err
	}
	if asJSON {
		return printing.JSON(s.out, all)
	}
	var rows [][]string
	now := time.Now()
	for _, x := range all {
		rows = append(rows, []string{
			fmt.Sprint(x.Request), x.State, printing.Ago(x.Since, now), printing.Ago(x.Asked, now), x.Path, x.Class, x.Mode, fmt.Sprint(x.PID), x.Command, x.Reason,
		})
	}
	return printing.Table(s.out, []string{"REQUEST", "STATE", "SINCE", "ASKED", "PATH", "CLASS", "MODE", "PID", "COMMAND", "REASON"}, rows)
}

// parseTime reads a time as people write it; an empty one is the zero time.
func parseTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, time.RFC3339} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: give 2026-11-21T03:00:00Z, \"2026-11-21 03:00\", 03:00, or a duration like 2h30m", s)
}
