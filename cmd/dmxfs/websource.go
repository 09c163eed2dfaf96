package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// viewedMount is the daemon of a mount as the page and the terminal view see it: they
// ask what the commands ask, and give the orders that those give.
type viewedMount struct{ questions, orders, removals *admin.Client }

// viewTime is how long a question may take whose answer is to be seen at once.
const viewTime = 5 * time.Second

func newViewedMount(state string) viewedMount {
	with := func(timeout time.Duration) *admin.Client {
		c := admin.NewClient(state)
		c.Timeout, c.Messages = timeout, io.Discard
		return c
	}
	return viewedMount{with(viewTime), with(admin.OrderTime), with(admin.RemovalTime)}
}

var _ snapshot.Source = viewedMount{}

func (w viewedMount) Status(ctx context.Context) (v snapshot.Status, err error) {
	return v, w.questions.Get(ctx, "/status", &v)
}

func (w viewedMount) Peers(ctx context.Context) (v snapshot.Peers, err error) {
	return v, w.questions.Get(ctx, "/peers", &v)
}

func (w viewedMount) Policy(ctx context.Context) (v snapshot.Policy, err error) {
	return v, w.questions.Get(ctx, "/policy", &v)
}

func (w viewedMount) Locks(ctx context.Context, within time.Duration) (v snapshot.Locks, err error) {
	return v, w.questions.Get(ctx, "/locks?timeout="+within.String(), &v)
}

func (w viewedMount) Waits(ctx context.Context, within time.Duration) (*waitgraph.Graph, error) {
	g := &waitgraph.Graph{}
	return g, w.questions.Get(ctx, "/waits?timeout="+within.String(), g)
}

func (w viewedMount) Journal(ctx context.Context, filter url.Values, each func(snapshot.Record) error) error {
	resp, err := w.questions.Do(ctx, http.MethodGet, "/journal?"+filter.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(bufio.NewReaderSize(resp.Body, 1<<16)); ; {
		var r snapshot.Record
		if err := d.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("the daemon's answer cannot be read: %w", err)
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

func (w viewedMount) Break(ctx context.Context, locks []snapshot.Lock, reason string) (v snapshot.Broken, err error) {
	return w.orders.Break(ctx, admin.BreakOrder{Locks: locks, Reason: reason})
}

func (w viewedMount) Remove(ctx context.Context, id, reason string) error {
	resp, err := w.removals.Do(ctx, http.MethodPost, "/peers/remove?"+url.Values{"peer": {id}, "reason": {reason}}.Encode())
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
