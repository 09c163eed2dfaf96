package rotation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// Order is what one node asks of another during a change.
type Order struct {
	Step        string `json:"step"` // prepare, abort, look or finish
	Generation  uint64 `json:"generation,omitempty"`
	Secret      string `json:"secret,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// State is the answer.
type State struct {
	Generation  uint64 `json:"generation"`
	Fingerprint string `json:"fingerprint"`
	Pending     int    `json:"pending,omitempty"` // changes that were begun and not ended
}

// Rotator changes the secret of the cluster, and has this node's part in changes
// by others.
type Rotator struct {
	*chronicle.Chronicle
	// Ask has another member carry out a step, and decodes its answer.
	Ask      func(ctx context.Context, to string, limit time.Duration, o Order, s *State) error
	Node     *atomic.Pointer[cluster.Node]
	Register *register.Dir
	Secret   *Secret
	Self     string // peer ID

	rotating sync.Mutex // held by who changes the secret
}

// Step carries out a step for another member.
func (t *Rotator) Step(from peer.ID, o Order) (State, error) {
	name, ok := chronicle.MemberName(t.Node.Load().Status().View, from.String())
	if !ok {
		return State{}, errors.New("only members have a part in the secret")
	}
	var err error
	switch o.Step {
	case "prepare":
		if _, err = p2p.ParseSecret([]byte(o.Secret)); err == nil {
			err = t.Secret.prepare(o.Generation, o.Secret)
		}
		if err == nil {
			t.Log.Info("a change of the cluster's secret begins", "by", name, "fingerprint", register.Fingerprint([]byte(o.Secret)))
		}
	case "abort":
		err = t.Secret.abort(o.Fingerprint)
	case "look":
		err = t.look()
	case "finish":
		t.Secret.finish(o.Generation)
	default:
		err = fmt.Errorf("unknown step %q of a change of the secret", o.Step)
	}
	n, f, pending := t.Secret.state()
	return State{n, f, pending}, err
}

// look asks the storage which secret counts.
func (t *Rotator) look() error {
	g, err := t.Register.Generation()
	if err != nil {
		return err
	}
	changed, err := t.Secret.counts(g)
	if changed {
		t.Note(journal.Note, "", "the secret of the cluster was changed: the one with fingerprint %s counts", g.Fingerprint)
		number := g.Number
		time.AfterFunc(SettleTime, func() { t.Secret.finish(number) })
	}
	return err
}

// Follow looks at the storage while a change is under way, or while this
// node is no member, which may be because of one.
func (t *Rotator) Follow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, _, pending := t.Secret.state()
		node := t.Node.Load()
		if pending == 0 && (n%10 != 0 || node == nil || node.Status().State == member.StateMember) {
			continue
		}
		if err := t.look(); err != nil {
			t.Log.Debug("which secret counts cannot be seen", "err", err)
		}
	}
}
