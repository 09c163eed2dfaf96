package member

import (
	"errors"
	"fmt"
	"slices"
)

// changes are those that admins want.
type changes struct {
	*position
	waiting []wish
}

// A wish is an admin's that waits for its view, or for its deadline.
type wish struct {
	Wish
	what   string
	done   func(v *View) bool
	change func(w *View) // nil: nothing to propose
	reason string
}

// remove takes the wish in that a member is removed, and reports whether it did.
func (c *changes) remove(in Remove) bool {
	w := wish{Wish: in.Wish, what: "the removal of " + in.Node.Peer, done: func(v *View) bool { return !v.Has(in.Node) }}
	switch {
	case in.Node == c.me:
		c.answer(w, errors.New("a node cannot remove itself: unmount it"))
	case !c.view.Has(in.Node):
		c.answer(w, fmt.Errorf("%s is not a member", in.Node.Peer))
	default:
		return c.add(w)
	}
	return false
}

func (c *changes) revoke(in Revoke) {
	w := wish{Wish: in.Wish, what: "the revocation of " + in.Peer, reason: ReasonAdmin}
	w.done = func(v *View) bool { return v.IsRevoked(in.Peer) != in.Undo }
	w.change = func(v *View) {
		list := slices.DeleteFunc(slices.Clone(v.Revoked), func(p string) bool { return p == in.Peer })
		if !in.Undo {
			list = append(list, in.Peer)
			slices.Sort(list)
		}
		v.Revoked = list
	}
	switch {
	case !ValidPeer(in.Peer):
		c.answer(w, fmt.Errorf("%q is not a peer ID", in.Peer))
	case !in.Undo && len(c.view.Revoked) >= MaxRevoked && !c.view.IsRevoked(in.Peer):
		c.answer(w, fmt.Errorf("%d peers are revoked, and no more can be: change the secret (dmxfs secret rotate), which keeps them out as well, and let them in again (dmxfs peers revoke --undo)", MaxRevoked))
	default:
		c.add(w)
	}
}

func (c *changes) setPolicy(in SetPolicy) {
	w := wish{Wish: in.Wish, what: "the change of the policy", reason: ReasonPolicy}
	w.done = func(v *View) bool { return v.Policy.Hash == in.Policy.Hash }
	w.change = func(v *View) { v.Policy = v.Policy.change(in.Policy) }
	if err := in.Policy.validate(); err != nil {
		c.answer(w, err)
		return
	}
	c.add(w)
}

// add takes a wish in and reports whether it did.
func (c *changes) add(w wish) bool {
	switch {
	case c.state != StateMember:
		c.answer(w, errors.New("this node is not a member"))
	case w.done(c.view):
		c.answer(w, nil)
	case len(c.waiting) >= 64:
		c.answer(w, errors.New("too many changes are waiting: try again later"))
	default:
		c.waiting = append(c.waiting, w)
		return true
	}
	return false
}

func (c *changes) answer(w wish, err error) {
	c.out.Answers = append(c.out.Answers, Answered{w.ID, err})
}

// next is the view that an admin wants; nil if there is nothing to propose.
func (c *changes) next() *View {
	for _, x := range c.waiting {
		if x.change != nil { // one after another: two may contradict each other
			w := c.view.next(c.me, x.reason)
			x.change(w)
			return w
		}
	}
	return nil
}

// installed answers the wishes that the present view fulfils.
func (c *changes) installed() {
	c.answerIf(func(w wish) bool { return w.done(c.view) }, func(wish) error { return nil })
}

func (c *changes) expire() {
	c.answerIf(func(w wish) bool { return c.now >= w.Deadline }, func(w wish) error {
		return fmt.Errorf("%s has not come about in time; it may still: look at the peers", w.what)
	})
}

// giveUp answers all with an error.
func (c *changes) giveUp(err error) {
	c.answerIf(func(wish) bool { return true }, func(wish) error { return err })
}

func (c *changes) answerIf(is func(wish) bool, err func(wish) error) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w wish) bool {
		if is(w) {
			c.answer(w, err(w))
			return true
		}
		return false
	})
}
