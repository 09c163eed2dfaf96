package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/rotation"
	"github.com/dmxfs/dmxfs/p2p"
)

// askTimeout is how long other members have to answer an admin's question.
const askTimeout = 3 * time.Second

// question is what one daemon asks another on behalf of an admin.
type question struct {
	What  string            `json:"what"`
	Break *admin.BreakOrder `json:"break,omitempty"`

	Secret *rotation.Order `json:"secret,omitempty"`
	// Changes is what is asked about names that were changed.
	Changes *recent.Question `json:"changes,omitempty"`
	// Peer is a host that is to be forgotten, and Why is what the admin says.
	Peer string `json:"peer,omitempty"`
	Why  string `json:"why,omitempty"`
	// Query is that of a URL, of a journal.
	Query string `json:"query,omitempty"`
}

// memberState is what a member says of itself.
type memberState struct {
	State string `json:"state"`
}

// asker asks other daemons.
type asker struct{ transport *p2p.Transport }

// ask asks another daemon and decodes its answer into v.
func (a asker) ask(ctx context.Context, to string, limit time.Duration, q question, v any) error {
	id, err := peer.Decode(to)
	if err != nil {
		return err
	}
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := a.transport.Ask(ctx, id, b)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
