package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
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
	clientFor := askTimeoutFlag(c, admin.OrderTime)
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
		cl, r, err := clientFor(pointFor(views.explain, args))
		if err != nil {
			return err
		}
		if views.ofCluster() && !fl.Changed("timeout") {
			cl.Timeout = answerTime
		}
		if done, err := views.show(c.Context(), s, cl, r, f, *asJSON); done {
			return err
		}
		out := newJournalPrinter(s, *asJSON)
		finish, err := views.export(s, out)
		if err != nil {
			return err
		}
		return finish(showOwn(c.Context(), cl, r, f, out))
	}
	return c
}

// showOwn prints this node's journal, by its daemon if one runs.
func showOwn(ctx context.Context, cl *admin.Client, r statedir.Registration, f journal.Filter, out *journalPrinter) error {
	resp, err := cl.Do(ctx, http.MethodGet, "/journal?"+journalquery.Values(f).Encode())
	if errors.Is(err, admin.ErrNoDaemon) {
		if f.Follow {
			return exitcode.With(exitcode.NoMount, fmt.Errorf("no daemon runs for %s: there is nothing to follow", r.Mountpoint))
		}
		return readJournal(ctx, r, f, out)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return copyJournal(ctx, resp.Body, out, f.Follow)
}

// readJournal reads the journal of a mount that no daemon serves.
func readJournal(ctx context.Context, r statedir.Registration, f journal.Filter, out *journalPrinter) error {
	j, err := journal.OpenReadOnly(r.State+"/journal", journal.Options{})
	if err != nil {
		return err
	}
	rec := j.Recovery()
	if rec.Rebuilt != "" {
		fmt.Fprintf(out.err, "dmxfs: the journal was damaged, and was made anew of what is left; the damaged one is in %s\n", rec.Rebuilt)
	}
	for _, x := range rec.Damaged {
		fmt.Fprintf(out.err, "dmxfs: a part of the journal cannot be read: %v\n", x)
	}
	err = j.Query(ctx, f, func(rec journal.Record) error {
		b, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		return out.line(b)
	})
	if err == nil {
		err = out.end()
	}
	return errors.Join(err, j.Close())
}

// copyJournal prints what the daemon sends. With follow it prints each record
// when it is there, and otherwise many at once, which align better.
func copyJournal(ctx context.Context, r io.Reader, out *journalPrinter, follow bool) error {
	br := bufio.NewReaderSize(r, 1<<16)
	for {
		b, err := br.ReadBytes('\n')
		if b = bytes.TrimSuffix(b, []byte("\n")); len(b) > 0 && (err == nil || err == io.EOF) {
			if err := out.line(b); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return out.end()
		case err != nil && ctx.Err() == nil:
			return errors.Join(out.flush(), fmt.Errorf("the daemon has stopped in the middle of its answer: %w", err))
		case err != nil:
			return out.flush()
		case follow && br.Buffered() == 0:
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}

// journalPrinter prints records as a table or as they are.
type journalPrinter struct {
	w     io.Writer
	err   io.Writer          // for messages
	tw    *tabwriter.Writer  // nil for JSON
	sink  func([]byte) error // takes the records instead, if not nil
	began time.Time          // of the rows that wait to be aligned
	rows  int
}

func newJournalPrinter(s streams, asJSON bool) *journalPrinter {
	p := &journalPrinter{w: s.out, err: s.err, began: time.Now()}
	if !asJSON {
		p.tw = tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	}
	return p
}

// journalRow is what the table shows of a record.
type journalRow struct {
	Seq                                                              uint64
	Time                                                             time.Time
	Epoch                                                            uint64
	Event, Path, Class, Algorithm, Mode, Node, Command, Reason, Peer string
	Request                                                          uint64
	Start                                                            uint64
	End                                                              int64
	PID                                                              int
	WaitMS                                                           float64 `json:"wait_ms"`
}

// align is how many rows have their columns in common.
const align = 64

func (p *journalPrinter) line(b []byte) error {
	if p.sink != nil {
		return p.sink(b)
	}
	if p.tw == nil {
		b = printing.EscapeJSON(b)
		_, err := p.w.Write(append(b[:len(b):len(b)], '\n'))
		return err
	}
	var r journalRow
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if p.rows == 0 {
		fmt.Fprintln(p.tw, "TIME\tEPOCH\tEVENT\tREQUEST\tPATH\tCLASS\tALGORITHM\tMODE\tBYTES\tPID\tCOMMAND\tWAITED\tREASON")
	}
	req, bytes, pid, wait := "-", "-", "-", "-"
	if r.Request != 0 {
		req = fmt.Sprint(r.Request)
	}
	if r.Mode != "" {
		bytes = printing.Span(r.Start, r.End)
	}
	if r.PID != 0 {
		pid = fmt.Sprint(r.PID)
	}
	if r.WaitMS > 0 {
		wait = time.Duration(r.WaitMS * 1e6).Round(10 * time.Microsecond).String()
	}
	if r.Peer != "" {
		r.Reason += " [" + r.Peer + "]"
	}
	fmt.Fprintf(p.tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Time.Local().Format("2006-01-02 15:04:05.000"), r.Epoch,
		r.Event, req, printing.Text(r.Path), printing.Text(r.Class), printing.Text(r.Algorithm), printing.Text(r.Mode), bytes, pid, printing.Text(r.Command), wait, printing.Text(r.Reason))
	p.rows++
	if p.rows%align == 0 || time.Since(p.began) > time.Second {
		p.began = time.Now()
		return p.tw.Flush()
	}
	return nil
}

// end flushes what is printed, and says so if that is nothing: a path that is
// misspelt looks like one that nobody has locked.
func (p *journalPrinter) end() error {
	if p.tw != nil && p.rows == 0 {
		fmt.Fprintln(p.err, "dmxfs: the journal has no such record")
	}
	return p.flush()
}

func (p *journalPrinter) flush() error {
	if p.tw == nil {
		return nil
	}
	return p.tw.Flush()
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
