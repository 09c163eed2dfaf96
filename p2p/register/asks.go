package register

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
)

const (
	askPrefix    = "ask-"
	answerPrefix = "answer-"

	maxAsks = 4 * member.MaxMembers // of one look
)

// asker is what an ask and its answers have their names from. Two processes of
// one peer can ask at the same time whether the other one is there.
func asker(n member.Node, own bool) string {
	if own {
		return n.String()
	}
	return n.Peer
}

func askName(n member.Node, own bool) string   { return askPrefix + asker(n, own) }
func answersTo(n member.Node, own bool) string { return answerPrefix + asker(n, own) + "-" }

func isAnswer(name string, to member.Node) bool {
	return strings.HasPrefix(name, answersTo(to, false)) || strings.HasPrefix(name, answersTo(to, true))
}

// asks are how newcomers reach members by way of the storage, and how it is found
// out whether a member has a double.
type asks struct{ *storage }

// Ask implements [Register].
func (a *asks) Ask(c member.Challenge) error {
	b, err := encodeAsk(c)
	if err != nil {
		return err
	}
	return a.replaceIn(viewsDir, askName(c.Node, c.Own), b)
}

// Answer implements [Register]. An answer to a question that was taken back
// meanwhile is not left behind.
func (a *asks) Answer(x member.Answer) error {
	b, err := encodeAnswer(x)
	if err != nil {
		return err
	}
	dir, err := a.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := answersTo(x.To, x.Own) + x.Node.Peer
	if err := dir.replace(name, b); err != nil {
		return err
	}
	if _, err := dir.stat(askName(x.To, x.Own)); errors.Is(err, unix.ENOENT) {
		return dir.remove(name)
	}
	return nil
}

// Unask implements [Register]. The question goes first: who answers it later sees
// that it is gone.
func (a *asks) Unask(op member.UnaskOp) error {
	dir, err := a.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	gone := dir.remove(askName(op.Node, op.Own))
	var answers []string
	err = dir.names(func(name string) {
		if strings.HasPrefix(name, answersTo(op.Node, op.Own)) {
			answers = append(answers, name)
		}
	})
	err = errors.Join(gone, err)
	for _, name := range answers {
		err = errors.Join(err, dir.remove(name))
	}
	return err
}

// mail is the asks and answers in a listing that a look is for, by name.
type mail struct {
	op            member.LookOp
	asks, answers []string
}

func (m *mail) add(name string) {
	switch {
	case m.op.Asks && strings.HasPrefix(name, askPrefix) && len(m.asks) < maxAsks:
		m.asks = append(m.asks, name)
	case !m.op.For.IsZero() && isAnswer(name, m.op.For) && len(m.answers) < maxAsks:
		m.answers = append(m.answers, name)
	}
}

// read reads what is sound of it.
func (m *mail) read(dir directory) (asks []member.Challenge, answers []member.Answer) {
	slices.Sort(m.asks)
	for _, name := range m.asks {
		if b, err := dir.read(name, maxAskSize); err == nil {
			if c, err := parseAsk(b); err == nil && askName(c.Node, c.Own) == name {
				asks = append(asks, c)
			}
		}
	}
	slices.Sort(m.answers)
	for _, name := range m.answers {
		if b, err := dir.read(name, maxAskSize); err == nil {
			if a, err := parseAnswer(b); err == nil && a.To == m.op.For {
				answers = append(answers, a)
			}
		}
	}
	return asks, answers
}
