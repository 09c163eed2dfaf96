package register

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"dmxfs/locks"
	"dmxfs/p2p/member"
)

const (
	askPrefix    = "ask-"
	answerPrefix = "answer-"
	newPrefix    = "new-"

	maxAsks = 4 * member.MaxMembers // of one look
)

// Look implements [Register].
func (d *Dir) Look(op member.LookOp) (member.Look, error) {
	var l member.Look
	dir, err := d.open(viewsDir)
	if errors.Is(err, unix.ENOENT) {
		return l, nil // somebody removed it: no view is there, nor is the own one
	}
	if err != nil {
		return l, err
	}
	defer dir.Close()
	var asks, answers []string
	err = d.names(dir, func(name string) {
		if e, ok := member.ParseViewName(name); ok {
			l.Newest = max(l.Newest, e)
			l.Known = l.Known || e == op.Known
			return
		}
		switch {
		case op.Asks && strings.HasPrefix(name, askPrefix) && len(asks) < maxAsks:
			asks = append(asks, name)
		case !op.For.IsZero() && strings.HasPrefix(name, answerPrefix+op.For.Peer+"-") && len(answers) < maxAsks:
			answers = append(answers, name)
		}
	})
	if err != nil {
		return member.Look{}, err
	}
	if l.Newest > op.Known {
		if err := d.readNewest(dir, op.Known, &l); err != nil {
			return member.Look{}, err
		}
	}
	slices.Sort(asks)
	for _, name := range asks {
		if b, err := d.read(dir, name, maxAskSize); err == nil {
			if c, err := parseAsk(b); err == nil && askPrefix+c.Node.Peer == name {
				l.Asks = append(l.Asks, c)
			}
		}
	}
	slices.Sort(answers)
	for _, name := range answers {
		if b, err := d.read(dir, name, maxAskSize); err == nil {
			if a, err := parseAnswer(b); err == nil && a.To == op.For {
				l.Answers = append(l.Answers, a)
			}
		}
	}
	d.forgetTemps(dir, l.Newest)
	return l, nil
}

// readNewest reads the newest view; if it is damaged, the one before it, which
// tells at least who may know more. No other: names further back may have been
// pruned and linked again.
func (d *Dir) readNewest(dir *os.File, known locks.Epoch, l *member.Look) error {
	v, err := d.readView(dir, l.Newest)
	if err == nil {
		l.View = v
		return nil
	}
	if !isBad(err) {
		return err
	}
	l.Bad = err
	if before := l.Newest - 1; before > known {
		if v, err := d.readView(dir, before); err == nil {
			l.View = v
		}
	}
	return nil
}

// isBad reports that a view's content is at fault, not the reading of it.
func isBad(err error) bool {
	return errors.Is(err, member.ErrUnreadable) || errors.Is(err, member.ErrNewer) || errors.Is(err, member.ErrForeign)
}

func (d *Dir) readView(dir *os.File, e locks.Epoch) (*member.View, error) {
	b, err := d.read(dir, member.ViewName(e), member.MaxViewSize)
	if errors.Is(err, errTooLong) {
		return nil, fmt.Errorf("%w: %v", member.ErrUnreadable, err)
	}
	if err != nil {
		return nil, err
	}
	v, err := member.ParseView(b, d.clusterID())
	if err == nil && v.Epoch != e {
		err = fmt.Errorf("%w: the file says it is view %d", member.ErrUnreadable, v.Epoch)
	}
	return v, err
}

// Ask implements [Register].
func (d *Dir) Ask(c member.Challenge) error {
	b, err := encodeAsk(c)
	if err != nil {
		return err
	}
	return d.replaceIn(viewsDir, askPrefix+c.Node.Peer, b)
}

// Answer implements [Register].
func (d *Dir) Answer(a member.Answer) error {
	b, err := encodeAnswer(a)
	if err != nil {
		return err
	}
	return d.replaceIn(viewsDir, answerPrefix+a.To.Peer+"-"+a.Node.Peer, b)
}

func (d *Dir) replaceIn(path, name string, b []byte) error {
	dir, err := d.open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return d.replace(dir, name, b)
}

// Unask implements [Register].
func (d *Dir) Unask(peer string) error {
	dir, err := d.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	remove := []string{}
	err = d.names(dir, func(name string) {
		if name == askPrefix+peer || strings.HasPrefix(name, answerPrefix+peer+"-") {
			remove = append(remove, name)
		}
	})
	for _, name := range remove {
		err = errors.Join(err, d.remove(dir, name))
	}
	return err
}
