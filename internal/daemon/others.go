package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// others asks all other hosts what they have changed, see [fusefs.Options.Others].
type others struct {
	// view is the one of which this node, self, is a live member.
	view func() (v *member.View, self member.Node, err error)
	// recorded are the peers that have a record on the shared directory.
	recorded func() ([]string, error)
	askOf    func(ctx context.Context, peer string, q *recent.Question) (changesAnswer, error)
	memory   *recent.Memory // of this host
	strays   *strays
	drift    int64 // of clocks, in millionths
}

func newOthers(d *daemon, by asker) *others {
	return &others{
		view:     func() (*member.View, member.Node, error) { return liveView(d.node.Load()) },
		recorded: d.register.Recorded,
		askOf: func(ctx context.Context, peer string, q *recent.Question) (a changesAnswer, err error) {
			err = by.ask(ctx, peer, otherTimeout, question{What: "changes", Changes: q}, &a)
			return a, err
		},
		memory: d.recent, strays: d.strays, drift: d.params.Drift,
	}
}

// otherTimeout is how long one host may take to answer. It waits itself for what is under way.
const (
	otherTimeout = time.Second
	underTimeout = 300 * time.Millisecond
)

// ask is an error if anybody may have changed something who is not among hosts, or was not for
// all of the time that the question is about.
func (o *others) ask(ctx context.Context, q *recent.Question, here bool) ([]recent.Host, error) {
	v, self, err := o.view()
	if err != nil {
		return nil, err
	}
	if here && len(v.Members) > 1 {
		return nil, fmt.Errorf("%w: files have no numbers here that all hosts see, or the client of the storage keeps names that other hosts have changed", recent.ErrNever)
	}
	records, err := o.records(v)
	if err != nil {
		return nil, err
	}
	if err := o.knowsAll(v, q.Since, records); err != nil {
		return nil, err
	}
	hosts, err := o.askAll(ctx, q, v, self, records)
	if err != nil {
		return nil, err
	}
	// Until now nobody was a member, and served, who is none of v.
	if w, _, err := o.view(); err != nil || w.Epoch != v.Epoch {
		return nil, errors.Join(err, errors.New("members have come or gone"))
	}
	return hosts, nil
}

// liveView is the view of which a node is a live member. The node was one before its view is
// looked at, so that it is the one in which it was.
func liveView(n *cluster.Node) (v *member.View, self member.Node, err error) {
	if n == nil || !n.Live(0) {
		return nil, self, errors.New("this host is not sure of being a member")
	}
	s := n.Status()
	if s.View == nil || !s.View.Has(s.Self) {
		return nil, self, errors.New("this host is no member yet")
	}
	return s.View, s.Self, nil
}

// records are the peers that have one; an error if one of them is no member.
func (o *others) records(v *member.View) (map[string]bool, error) {
	known, err := o.recorded()
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, peer := range known {
		if all[peer] = true; !v.HasPeer(peer) {
			return nil, fmt.Errorf("the host %s was a member, and has not left in good order: it may be cut off, and its programs go on without locks", peer)
		}
	}
	return all, nil
}

// knowsAll is the check of what this host knows of others.
func (o *others) knowsAll(v *member.View, since int64, records map[string]bool) error {
	k := o.strays.now()
	own := recent.Own(&recent.Answer{})
	return k.check(v, &own, since, records)
}

func (o *others) askAll(ctx context.Context, q *recent.Question, v *member.View, self member.Node, records map[string]bool) ([]recent.Host, error) {
	var wg sync.WaitGroup
	hosts, errs := make([]recent.Host, len(v.Members)), make([]error, len(v.Members))
	for i := range v.Members {
		m := &v.Members[i]
		if m.Node == self {
			continue
		}
		wg.Go(func() {
			if hosts[i], errs[i] = o.askOne(ctx, q, v, m.Peer, records); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", m.Name(), errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var list []recent.Host
	for i, h := range hosts {
		if v.Members[i].Node != self {
			list = append(list, h)
		}
	}
	return list, nil
}

// askOne asks one member.
func (o *others) askOne(ctx context.Context, q *recent.Question, v *member.View, peer string, records map[string]bool) (h recent.Host, err error) {
	sent := recent.Now()
	a, err := o.askOf(ctx, peer, q)
	received := recent.Now()
	if e, ok := errors.AsType[*p2p.AskError](err); ok && strings.HasPrefix(e.Text, "unknown question") {
		return h, fmt.Errorf("%w: it runs a version of dmxfs that does not say", recent.ErrNever)
	}
	if err != nil {
		return h, err
	}
	if a.Changes == nil {
		return h, recent.ErrAnswer
	}
	if err := a.Changes.Check(); err != nil {
		return h, err
	}
	if h, err = recent.Of(a.Changes, sent, received, o.drift); err != nil {
		return h, err
	}
	return h, a.Strays.check(v, &h, q.Since, records)
}

// answer answers another daemon that asks what this host has changed.
func (o *others) answer(ctx context.Context, q *recent.Question) ([]byte, error) {
	if q == nil {
		return nil, errors.New("no name of which to tell what has become")
	}
	ctx, cancel := context.WithTimeout(ctx, underTimeout)
	defer cancel()
	// First, so that it is not younger than what it is told with.
	k := o.strays.now()
	a, err := o.memory.Answer(ctx, q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(changesAnswer{a, k})
}
