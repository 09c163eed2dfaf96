package ask

import (
	"context"
	"net/url"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

const (
	// AnswerTime is how long a command that shows the cluster takes at most, by default,
	// whoever is silent.
	AnswerTime = 3 * time.Second
	// MembersTime is what the members have of it.
	MembersTime = 2 * time.Second
)

// share is what the members have of the time of a client, so that the answer comes in time.
func share(cl *admin.Client) time.Duration { return max(cl.Timeout*2/3, 100*time.Millisecond) }

// Graph asks who waits for whom. The members have what the time of the client
// leaves, so that the answer comes in time whoever is silent.
func Graph(ctx context.Context, cl *admin.Client) (*waitgraph.Graph, error) {
	g := &waitgraph.Graph{}
	return g, cl.Get(ctx, "/waits?"+url.Values{"timeout": {share(cl).String()}}.Encode(), g)
}

// Journals asks for the journals of all members, who have as much time. It adds that to q.
func Journals(ctx context.Context, cl *admin.Client, r statedir.Registration, q url.Values) (*journalquery.Cluster, error) {
	q.Set("timeout", share(cl).String())
	a := &journalquery.Cluster{}
	err := cl.Get(ctx, "/journal/cluster?"+q.Encode(), a)
	return a, NoDaemon(err, r)
}
