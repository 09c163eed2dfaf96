package ask

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// Who is the user of this process and its host, for journals.
func Who() string {
	host, _ := os.Hostname()
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("user %s on %s", name, host)
}

// View is the daemon of a mount as the page and the terminal view see it: they
// ask what the commands ask, and give the orders that those give.
type View struct{ questions, orders, removals *admin.Client }

// viewTime is how long a question may take whose answer is to be seen at once.
const viewTime = 5 * time.Second

// NewView is of the mount whose state directory state is.
func NewView(state string) View {
	with := func(timeout time.Duration) *admin.Client {
		c := NewClient(state)
		c.Timeout, c.Messages = timeout, io.Discard
		return c
	}
	return View{with(viewTime), with(admin.OrderTime), with(admin.RemovalTime)}
}

var _ snapshot.Source = View{}

// Status is how the mount is doing.
func (w View) Status(ctx context.Context) (v snapshot.Status, err error) {
	return v, w.questions.Get(ctx, "/status", &v)
}

// Peers are the members, and who went.
func (w View) Peers(ctx context.Context) (v snapshot.Peers, err error) {
	return v, w.questions.Get(ctx, "/peers", &v)
}

// Policy is the rules of the cluster.
func (w View) Policy(ctx context.Context) (v snapshot.Policy, err error) {
	return v, w.questions.Get(ctx, "/policy", &v)
}

// Locks are those of the members that answer within a time.
func (w View) Locks(ctx context.Context, within time.Duration) (v snapshot.Locks, err error) {
	return v, w.questions.Get(ctx, "/locks?timeout="+within.String(), &v)
}

// Waits is who waits for whom, by the members that answer within a time.
func (w View) Waits(ctx context.Context, within time.Duration) (*waitgraph.Graph, error) {
	g := &waitgraph.Graph{}
	return g, w.questions.Get(ctx, "/waits?timeout="+within.String(), g)
}

// Metrics are what the daemon serves to Prometheus, as text.
func (w View) Metrics(ctx context.Context) (io.ReadCloser, error) {
	resp, err := w.questions.Do(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Journal has each take the records of this node that pass a filter, see package
// journalquery, until there is no more or it returns an error.
func (w View) Journal(ctx context.Context, filter url.Values, each func(snapshot.Record) error) error {
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

// Break takes locks away from the programs that hold them.
func (w View) Break(ctx context.Context, locks []snapshot.Lock, reason string) (v snapshot.Broken, err error) {
	return w.orders.Break(ctx, admin.BreakOrder{Locks: locks, Reason: reason})
}

// Remove drops a member, by its ID.
func (w View) Remove(ctx context.Context, id, reason string) error {
	resp, err := w.removals.Do(ctx, http.MethodPost, "/peers/remove?"+url.Values{"peer": {id}, "reason": {reason}}.Encode())
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
