package rcv

import (
	"errors"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// Receive handles what another node says. What does not follow the protocol is
// an error, and is found before anything is changed. Of what is parked, only
// the form can be checked now; the rest is, and is left out if it is wrong,
// when it is handled.
func (c *core) Receive(from int, msg locks.Message) error {
	if err := c.form(msg); err != nil {
		return err
	}
	if m, ok := msg.(*closeMsg); c.sealed != nil && (!ok || m.verb == verbClose) {
		c.parked = append(c.parked, parked{from, msg})
		return nil
	}
	if err := c.check(from, msg); err != nil {
		return err
	}
	c.handle(from, msg)
	return nil
}

func (c *core) handle(from int, msg locks.Message) {
	switch msg := msg.(type) {
	case *roaming:
		c.info.merge(&msg.info)
		if !c.info.knows(c.self(), msg.Request) {
			c.info.vote(c.self(), msg.Request)
		}
		c.roam(msg)
	case *inform:
		c.info.merge(&msg.info)
		c.inform(msg.before, msg.next)
	case *enter:
		c.info.merge(&msg.info)
		c.entered(msg.Request)
	case *question:
		c.asked(msg.before, msg.inquiry)
	case *held:
		if msg.Request == c.my && !c.in {
			c.site.Deny(msg.ask)
		}
	case *probed:
		c.probed(msg.ask)
	case *closeMsg:
		c.onClose(from, msg)
	}
}

// form is an error if msg cannot be right, whatever this node knows.
func (c *core) form(msg locks.Message) error {
	self := c.self()
	to := self // whom it is for, by what it says
	switch msg := msg.(type) {
	case *roaming:
		if msg.Node == self {
			return fmt.Errorf("a request comes home")
		}
		for i, n := range msg.unvisited {
			if n >= c.site.N() || n == self || n == msg.Node || i > 0 && n <= msg.unvisited[i-1] {
				return fmt.Errorf("unvisited are %v", msg.unvisited)
			}
		}
		return errors.Join(c.requests(msg.Request), c.formInfo(&msg.info))
	case *inform:
		if to = msg.before.Node; to == self {
			return errors.Join(c.requests(msg.before, msg.next), c.formInfo(&msg.info))
		}
	case *enter:
		if to = msg.Node; to == self {
			return errors.Join(c.requests(msg.Request), c.formInfo(&msg.info))
		}
	case *question:
		if to = msg.before.Node; to == self {
			return c.requests(msg.before, msg.Request)
		}
	case *held:
		to = msg.Node
	case *probed:
		to = msg.Node
	case *closeMsg:
	default:
		return fmt.Errorf("a message of another algorithm")
	}
	if to != self {
		return fmt.Errorf("for another node")
	}
	return nil
}

func (c *core) requests(rs ...exclusive.Request) error {
	for _, r := range rs {
		if err := c.site.CheckRequest(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *core) formInfo(m *info) error {
	if len(m.rows) != c.site.N() {
		return fmt.Errorf("it tells of %d nodes of %d", len(m.rows), c.site.N())
	}
	err := c.requests(m.list...)
	for _, w := range m.rows {
		err = errors.Join(err, c.requests(w.log...))
		if w.ordered > c.site.Clock() {
			err = fmt.Errorf("%v has been ordered after the clock of who told of it", locks.Token(w.ordered))
		}
	}
	return err
}

// check is an error if msg contradicts what this node knows.
func (c *core) check(from int, msg locks.Message) error {
	switch msg := msg.(type) {
	case *roaming:
		return c.checkInfo(&msg.info)
	case *inform:
		return c.checkInfo(&msg.info)
	case *enter:
		if msg.Request == c.my && !c.in && msg.position(c.my) == 0 {
			return fmt.Errorf("it gives the lock to %v, which has no place", c.my)
		}
		return c.checkInfo(&msg.info)
	case *closeMsg:
		return c.checkClose(from, msg)
	}
	return nil
}

func (c *core) checkInfo(m *info) error {
	if got, gave := m.rows[c.self()].version, c.info.rows[c.self()].version; got > gave {
		return fmt.Errorf("it knows %d votes of this node, which gave %d", got, gave)
	}
	return c.info.agrees(m)
}
