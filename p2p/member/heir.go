package member

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// Heir is what a process knows that goes on in the place of one that was killed:
// what that held it has from a ledger, which outlived it.
type Heir struct {
	// Of is the node that the ledger names, and Epoch the epoch at which it does.
	Of    Node
	Epoch locks.Epoch
	// Claimed are those that have claimed the place of Of before this process, as
	// the last [LinkOp.Claim] for this ledger said. Each was killed before its
	// engine was at a view, or the ledger would name it; but the link of one of
	// them may have been carried out, or may be still, so that it is that one whose
	// place this node takes.
	Claimed []Node
}

// maxClaims is how many claims of one place are kept, the last ones. It takes as many
// kills between a link and the view that it made: then all is lost, and nothing is
// granted twice.
const maxClaims = 256

// has reports whether n is one of those whose place is taken.
func (h *Heir) has(n Node) bool {
	return n == h.Of || slices.Contains(h.Claimed, n)
}

// incs are their incarnations.
func (h *Heir) incs() []Inc {
	list := []Inc{h.Of.Inc}
	for _, n := range h.Claimed {
		list = append(list, n.Inc)
	}
	return list
}

func (h *Heir) validate(self *Member) error {
	if self.Boot == "" || self.Lock == (LockFile{}) {
		return errors.New("nothing proves that the process before this one has ended: there is no lock of the state directory")
	}
	for _, n := range append([]Node{h.Of}, h.Claimed...) {
		if err := n.validate(); err != nil {
			return fmt.Errorf("what this process goes on with: %w", err)
		}
		if n.Peer != self.Peer {
			return fmt.Errorf("what this process goes on with was held by another host (%s), not by this one (%s)", n.Peer, self.Peer)
		}
	}
	return nil
}
