package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// Source is what the view is made of.
type Source interface {
	snapshot.Source
	// Counters are those of the node that is asked.
	Counters(ctx context.Context) (Counters, error)
}

// within is how long a member has to answer.
const within = 700 * time.Millisecond

// look takes a snapshot, and the rates since the counters before, which may be
// empty.
func look(ctx context.Context, from Source, last *snapshot.Snapshot, before Counters) (taken, Counters) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := snapshot.Take(limited, from, last, within)
	now, err := from.Counters(limited)
	if err != nil {
		return taken{snap: s}, before
	}
	return taken{s, RatesOf(before, now)}, now
}

// Run shows the view on a terminal until somebody quits or ctx ends. A snapshot
// is taken every interval; locks are broken in the name of who.
func Run(ctx context.Context, from Source, in io.Reader, out io.Writer, interval, long time.Duration, who string) error {
	ctx, cancel := context.WithCancel(ctx)
	p := tea.NewProgram(NewModel(long, breaker(ctx, from, who)), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var last *snapshot.Snapshot
		var counters Counters
		for {
			var t taken
			t, counters = look(ctx, from, last, counters)
			if ctx.Err() != nil {
				return
			}
			last = t.snap
			p.Send(t)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	_, err := p.Run()
	byWish := ctx.Err() != nil
	cancel()
	<-looked
	if err != nil && !byWish {
		return fmt.Errorf("the terminal: %w", err)
	}
	return nil
}

// Once is what the view shows at one moment.
type Once struct {
	At     time.Time          `json:"at"`
	Status snapshot.Status    `json:"status"`
	Rates  Rates              `json:"rates"` // per second, of this node
	Hosts  []snapshot.HostSum `json:"hosts"`
	Waits  []waitgraph.Wait   `json:"waits"` // the longest first
	Files  []waitgraph.File   `json:"files"` // waited for, the most first
	Silent []waitgraph.Member `json:"silent"`
	Cycles [][]string         `json:"cycles"` // of processes, as in waits
	Error  string             `json:"error"`  // what could not be asked
}

// TakeOnce takes two snapshots, with that time between them, for the rates.
func TakeOnce(ctx context.Context, from Source, between time.Duration) (Once, error) {
	before, err := from.Counters(ctx)
	if err != nil {
		return Once{}, err
	}
	timer := time.NewTimer(between)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return Once{}, context.Cause(ctx)
	case <-timer.C:
	}
	t, _ := look(ctx, from, nil, before)
	o := Once{
		At: t.snap.At.UTC(), Status: t.snap.Status, Rates: t.rates, Hosts: t.snap.Hosts(), Waits: t.snap.Graph.Waits, Files: t.snap.Graph.Files,
		Silent: append([]waitgraph.Member{}, t.snap.Silent()...), Cycles: t.snap.Graph.Cycles,
	}
	if t.snap.Err != nil {
		o.Error = t.snap.Err.Error()
	}
	return o, nil
}

// WriteTable writes a snapshot for people: everything, in lines as long as they
// are.
func (o Once) WriteTable(w io.Writer) error {
	m := NewModel(time.Hour, nil)
	m.width, m.height = 1000, 1000
	s := &snapshot.Snapshot{At: o.At, Status: o.Status, Graph: &waitgraph.Graph{Waits: o.Waits, Cycles: o.Cycles, Members: o.Silent}}
	for _, h := range o.Hosts {
		s.Graph.Held += h.Held
		s.Peers.Members = append(s.Peers.Members, snapshot.Peer{ID: h.Node, Host: h.Host})
	}
	if o.Error != "" {
		s.Err = fmt.Errorf("%s", o.Error)
	}
	m.snap, m.rates = s, o.Rates
	for _, l := range m.header() {
		if _, err := fmt.Fprintln(w, ansi.Strip(l)); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n%-24s %14s %8s %13s %8s\n", "HOST", "WAITED FOR BY", "WAITING", "LONGEST WAIT", "HELD")
	for _, h := range o.Hosts {
		longest := "-"
		if h.Waiting > 0 {
			longest = snapshot.Ago(h.Longest)
		}
		fmt.Fprintf(w, "%s %14d %8d %13s %8d\n", cell(s.HostName(h.Node, h.Host), 24), h.Blocks, h.Waiting, longest, h.Held)
	}
	fmt.Fprintf(w, "\n%-12s %-14s %-8s %-14s %-6s %-4s %s\n", "WAITS FOR", "HOST", "PID", "COMMAND", "CLASS", "MODE", "FILE ← IN ITS WAY")
	for i := range o.Waits {
		x := &o.Waits[i]
		line := fmt.Sprintf("%-12s %s %-8d %s %-6s %-4s %s", snapshot.Ago(o.At.Sub(x.Since)), cell(x.Host, 14), x.PID, cell(x.Command, 14), x.Class, x.Mode,
			snapshot.Printable(x.Path))
		for j, b := range x.For {
			line += map[bool]string{true: " ← ", false: ", "}[j == 0] + snapshotText(b.Name())
		}
		if x.InCycle {
			line += " (in a cycle)"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes a snapshot for programs.
func (o Once) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(o)
}
