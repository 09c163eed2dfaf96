package member

import (
	"fmt"
	"slices"
	"strings"
)

// answering answers newcomers that ask on the storage whether anybody is there.
type answering struct {
	*position
	mail    *mail
	leaving *leaving

	due  []Challenge
	last map[Node]Inc // the ask of each node that was answered last
}

// saw takes the asks that a look saw. Newcomers reach the storage but no member.
// Whether this node is live does not matter: it is there.
func (a *answering) saw(asks []Challenge) {
	if a.state == StateOut {
		return
	}
	last := make(map[Node]Inc, len(asks))
	for _, c := range asks {
		twin := a.isTwin(c.Node)
		switch {
		case twin && (slices.Contains(a.lives, c.Node.Inc) || a.leaving.then != nil): // its own of before, or it goes
			continue
		case !twin && a.view.Has(c.Node):
			continue
		}
		if a.last[c.Node] != c.Nonce {
			a.due = append(a.due, c)
			switch {
			case twin:
				a.note(Refusing, c.Node, c.Host, "%s was started with the identity of this node (%s), and is refused: its state directory is a copy, or its machine a clone", c.Host, c.Node.Peer)
			case !c.Own:
				a.mail.meet(c.Node.Peer, c.Addrs)
			}
		}
		last[c.Node] = c.Nonce
	}
	a.last = last
}

// next is the operation that answers the first of those that are due.
func (a *answering) next() AnswerOp {
	c := a.due[0]
	a.due = a.due[1:]
	return AnswerOp{Answer{To: c.Node, Nonce: c.Nonce, Node: a.me, Host: a.cfg.Self.Host, Addrs: a.addrs, Epoch: a.view.Epoch, Own: c.Own}}
}

// answersText says who answered and what it tried.
func answersText(answers []Answer) string {
	var parts []string
	for _, a := range answers {
		s := fmt.Sprintf("%s (%s) at %s", a.Host, a.Node.Peer, strings.Join(a.Addrs, " "))
		for _, t := range a.Tried {
			s += fmt.Sprintf("; it tried %s: %s", t.Addr, t.Error)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}
