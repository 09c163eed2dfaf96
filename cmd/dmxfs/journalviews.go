package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/story"
)

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

// ask asks for the journals of all members.
func (v *journalViews) ask(ctx context.Context, cl *admin.Client, r statedir.Registration, q url.Values) (*journalquery.Cluster, error) {
	q.Set("timeout", membersTime(cl).String())
	a := &journalquery.Cluster{}
	err := cl.Get(ctx, "/journal/cluster?"+q.Encode(), a)
	return a, noDaemon(err, r)
}

// membersTime is how long members have, so that the answer comes in time.
func membersTime(cl *admin.Client) time.Duration { return max(cl.Timeout*2/3, 100*time.Millisecond) }

// warnSilent names on standard error whose records are not among those shown.
func warnSilent(a *journalquery.Cluster, s streams) {
	for _, m := range a.Silent {
		if m.State == "expelled" {
			fmt.Fprintf(s.err, "dmxfs: host %s (%s) was expelled, so its journal is not here: %s\n", printing.Text(m.Host), m.ID, printing.Text(m.Error))
		} else {
			fmt.Fprintf(s.err, "dmxfs: host %s (%s) is silent, so its journal is not here: %s\n", printing.Text(m.Host), m.ID, printing.Text(m.Error))
		}
	}
	for _, h := range a.Cut {
		fmt.Fprintf(s.err, "dmxfs: host %s has more such records than are told at once (%d, or %d MiB): the earlier ones are not here (--since, --until and --path choose)\n", printing.Text(h), journalquery.MostRecords, journalquery.MostBytes>>20)
	}
}

func (v *journalViews) showCluster(ctx context.Context, s streams, cl *admin.Client, r statedir.Registration, f journal.Filter, asJSON bool) error {
	a, err := v.ask(ctx, cl, r, journalquery.Values(f))
	if err != nil {
		return err
	}
	warnSilent(a, s)
	if f.Last > 0 { // each member has told as many
		a.Entries = a.Entries[max(len(a.Entries)-f.Last, 0):]
	}
	if v.file == "" && !asJSON {
		return printEntries(s, a.Entries)
	}
	out := newJournalPrinter(s, true)
	finish, err := v.export(s, out)
	if err != nil {
		return err
	}
	for i := range a.Entries {
		b, err := json.Marshal(a.Entries[i])
		if err == nil {
			err = out.line(b)
		}
		if err != nil {
			return finish(err)
		}
	}
	return finish(nil)
}

// printEntries prints the journals of several hosts as a table.
func printEntries(s streams, all []story.Entry) error {
	if len(all) == 0 {
		fmt.Fprintln(s.err, "dmxfs: the journals have no such record")
		return nil
	}
	var rows [][]string
	for i := range all {
		e := &all[i]
		var x journalRow
		b, err := json.Marshal(e.Record)
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
		if err != nil {
			return err
		}
		bytes, pid, wait := "-", "-", "-"
		if x.Mode != "" {
			bytes = printing.Span(x.Start, x.End)
		}
		if x.PID != 0 {
			pid = fmt.Sprint(x.PID)
		}
		if x.WaitMS > 0 {
			wait = time.Duration(x.WaitMS * 1e6).Round(10 * time.Microsecond).String()
		}
		rows = append(rows, []string{
			x.Time.Local().Format("2006-01-02 15:04:05.000"), fmt.Sprint(x.Epoch), e.Host, x.Event, fmt.Sprint(x.Request), x.Path, x.Class, x.Mode, bytes,
			pid, x.Command, wait, x.Reason,
		})
	}
	return printing.Table(s.out, []string{"TIME", "EPOCH", "HOST", "EVENT", "REQUEST", "PATH", "CLASS", "MODE", "BYTES", "PID", "COMMAND", "WAITED", "REASON"}, rows)
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
		g, err := askGraph(ctx, cl)
		now <- graph{g, err}
	}()
	a, err := v.ask(ctx, cl, r, q)
	w := <-now
	if err != nil && w.err != nil && err.Error() == w.err.Error() {
		err = nil // both were told the same, most likely nothing
	}
	if err = errors.Join(err, w.err); err != nil {
		if exitcode.Of(w.err) == exitcode.NoMount {
			return noDaemon(w.err, r)
		}
		return err
	}
	x := fileStory{path, story.Tell(a.Entries, a.Hosts), w.g.Why(waitgraph.Target{Path: admin.AsReceived(path)}), a.Silent, a.Cut}
	if asJSON {
		return printing.JSON(s.out, x)
	}
	warnSilent(a, s)
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

// export makes out write to the file of --export, if there is one. finish ends that,
// whatever err is; the file is there only if nothing went wrong.
func (v *journalViews) export(s streams, out *journalPrinter) (finish func(err error) error, err error) {
	switch v.file {
	case "":
		return func(err error) error { return err }, nil
	case "-":
		out.tw, out.sink = nil, func(b []byte) error {
			b = printing.EscapeJSON(b)
			_, err := s.out.Write(append(b[:len(b):len(b)], '\n'))
			return err
		}
		return func(err error) error { return err }, nil
	}
	f, err := os.CreateTemp(filepath.Dir(v.file), ".dmxfs-export-*")
	if err != nil {
		return nil, fmt.Errorf("--export: %w", err)
	}
	flush := func() error { return nil }
	out.tw, out.sink = nil, func(b []byte) error { _, err := f.Write(append(b[:len(b):len(b)], '\n')); return err }
	if strings.HasSuffix(v.file, ".csv") {
		if out.sink, flush, err = csvSink(f); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	return func(err error) error {
		if err == nil {
			err = flush()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), v.file)
		}
		if err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		return nil
	}, nil
}

// csvSink writes records, which come as JSON, as CSV.
func csvSink(w io.Writer) (sink func([]byte) error, flush func() error, err error) {
	c, err := story.NewCSV(w)
	if err != nil {
		return nil, nil, err
	}
	return func(b []byte) error {
		var e story.Entry
		if err := json.Unmarshal(b, &e); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		if e.Member == "" { // this node's own
			e.Member = string(e.Node)
		}
		return c.Write(&e)
	}, c.Flush, nil
}

// showRequests lists the requests that are open, also where no daemon runs.
func showRequests(ctx context.Context, s streams, cl *admin.Client, r statedir.Registration, asJSON bool) error {
	all := []story.Request{}
	err := cl.Get(ctx, "/journal/requests", &all)
	if errors.Is(err, admin.ErrNoDaemon) {
		var q story.Requests
		out := newJournalPrinter(s, true)
		out.sink = func(b []byte) error {
			var x journal.Record
			if err := json.Unmarshal(b, &x); err != nil {
				return err
			}
			q.Add(&x)
			return nil
		}
		err = readJournal(ctx, r, journal.Filter{}, out)
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
