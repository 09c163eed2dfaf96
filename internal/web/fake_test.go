package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// fake is a source whose answers a test sets.
type fake struct {
	mu      sync.Mutex
	rows    []waitgraph.Answer
	peers   []snapshot.Peer
	records []snapshot.Record
	err     error // of all questions

	filters []url.Values // of the questions for the journal
	broken  []snapshot.Lock
	removed []string
	reasons []string
}

func (f *fake) set(change func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) Status(context.Context) (snapshot.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return snapshot.Status{Mount: "/mnt/shared", State: "live", Epoch: 7, Members: len(f.peers), Self: "A"}, f.err
}

func (f *fake) Peers(context.Context) (snapshot.Peers, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return snapshot.Peers{Epoch: 7, Self: "A", Members: f.peers}, f.err
}

func (f *fake) Locks(context.Context, time.Duration) (snapshot.Locks, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var v snapshot.Locks
	for _, a := range f.rows {
		if !a.Member.Answered {
			v.Missing = append(v.Missing, fmt.Sprintf("%s (%s): no answer", a.Member.Host, a.Member.ID))
		}
		for _, r := range a.Rows {
			l := snapshot.Lock{
				Path: r.Path, Class: r.Class, Mode: r.Mode, Start: r.Start, End: r.End, State: r.State, Node: a.Member.ID, Host: a.Member.Host,
				PID: r.PID, Command: r.Command, Since: r.Since, Algorithm: "rw", File: r.File, Request: r.Request,
			}
			for _, w := range r.WaitsFor {
				l.WaitsFor = append(l.WaitsFor, snapshot.Blocker{Node: a.Member.ID, Host: a.Member.Host, PID: w.PID, Command: w.Command})
			}
			v.Locks = append(v.Locks, l)
		}
	}
	return v, f.err
}

func (f *fake) Waits(context.Context, time.Duration) (*waitgraph.Graph, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return waitgraph.Build(time.Now(), "A", f.rows), f.err
}

func (f *fake) Policy(context.Context) (snapshot.Policy, error) {
	return snapshot.Policy{Rules: []snapshot.Rule{{Rule: 1, Path: "spool/**", Algorithm: "rcv", Open: "lock"}}, TOML: "[[rule]]\n"}, f.err
}

func (f *fake) Journal(_ context.Context, filter url.Values, each func(snapshot.Record) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filters = append(f.filters, filter)
	for _, r := range f.records {
		if err := each(r); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fake) Break(_ context.Context, locks []snapshot.Lock, reason string) (snapshot.Broken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken, f.reasons = append(f.broken, locks...), append(f.reasons, reason)
	return snapshot.Broken{Broken: locks}, nil
}

func (f *fake) Remove(_ context.Context, id, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == "" {
		return errors.New("nobody")
	}
	f.removed, f.reasons = append(f.removed, id), append(f.reasons, reason)
	return nil
}

// held and waiting are rows of a node.
func held(path string, pid int, command string, request uint64) waitgraph.Row {
	return row("held", path, pid, command, request)
}

func row(state, path string, pid int, command string, request uint64) waitgraph.Row {
	return waitgraph.Row{
		Path: path, Class: "flock", Mode: "W", End: -1, State: state, PID: pid, Command: command, Since: time.Now().Add(-3 * time.Second),
		Algorithm: "rw", File: "i" + path, Request: request, Owner: request, Shared: true,
	}
}

func waiting(path string, pid int, command string, request uint64, on ...string) waitgraph.Row {
	r := row("waiting", path, pid, command, request)
	r.Remote = on
	return r
}

func member(id, host string) waitgraph.Member {
	return waitgraph.Member{ID: id, Host: host, State: "live", Answered: true}
}

// twoHosts have a holder and one that waits, and with cycle each waits for the
// other.
func twoHosts(cycle bool) *fake {
	f := &fake{peers: []snapshot.Peer{{ID: "A", Host: "one", State: "live", Connected: true}, {ID: "B", Host: "two", State: "live", Connected: true}}}
	one := []waitgraph.Row{held("db", 11, "writer", 1)}
	two := []waitgraph.Row{waiting("db", 22, "reader", 1, "A"), held("log", 22, "reader", 2)}
	if cycle {
		one = append(one, waiting("log", 11, "writer", 3, "B"))
	}
	f.rows = []waitgraph.Answer{{Member: member("A", "one"), Rows: one}, {Member: member("B", "two"), Rows: two}}
	return f
}
