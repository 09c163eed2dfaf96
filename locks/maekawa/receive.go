package maekawa

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// Receive handles what another node says. What does not follow the protocol is
// an error, and is found before anything is changed.
func (c *core) Receive(from int, msg locks.Message) error {
	if err := c.check(from, msg); err != nil {
		return err
	}
	c.handle(from, msg)
	c.settle()
	return nil
}

func (c *core) check(from int, msg locks.Message) error {
	m, ok := msg.(interface{ about() exclusive.Request })
	if !ok {
		return fmt.Errorf("a message of another algorithm")
	}
	r := m.about()
	if err := c.site.CheckRequest(r); err != nil {
		return err
	}
	switch msg.(type) {
	case *request, *release, *relinquish, *using:
		if r.Node != from {
			return fmt.Errorf("of another node's request")
		}
		if !c.arbitrates(from) {
			return fmt.Errorf("this node is not in its quorum")
		}
	default:
		if r.Node != c.site.Self() {
			return fmt.Errorf("about another node's request")
		}
		if r == c.my && c.member(from) == nil {
			return fmt.Errorf("it is not in the quorum of this node")
		}
	}
	return nil
}
