package estate

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// claims are who has claimed the place of a node, as the process says that goes on with
// what that held: one record, which is replaced by one store.
type claims struct {
	*shm.Tables
	record uint32
}

// claimed is the text of the record.
type claimed struct {
	Of member.Node   `json:"of"`
	By []member.Node `json:"by"`
}

// claimsVersion is that of what the record means.
const claimsVersion = 1

func claimsForm() shm.Form {
	return shm.Form{Version: claimsVersion, Tables: []shm.Spec{{Words: 1, Texts: 1, Max: 1}}}
}

func newClaims(generation uint64) (*claims, error) {
	t, err := shm.Create("dmxfs-claims", generation, claimsForm())
	if err != nil {
		return nil, err
	}
	return &claims{Tables: t}, nil
}

// keep takes the place of what was kept.
func (c *claims) keep(of member.Node, by []member.Node) error {
	b, err := json.Marshal(claimed{of, by})
	if err != nil {
		return err
	}
	ref, err := c.Text(string(b))
	if err != nil {
		return err
	}
	if c.record == 0 {
		c.record, err = c.Put(0, []uint64{ref})
		return err
	}
	return c.Set(0, c.record, []uint64{ref})
}

// readClaims is what t has; of is zero if that is nothing.
func readClaims(t *shm.Tables) (x claimed, err error) {
	for _, w := range t.All(0) {
		if err := json.Unmarshal([]byte(t.String(w[0])), &x); err != nil {
			return x, fmt.Errorf("who has claimed the place of the daemon: %w", err)
		}
		if x.Of.IsZero() {
			return x, errors.New("somebody has claimed the place of no node")
		}
	}
	return x, nil
}
