package register

import (
	"cmp"
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
	var top highest
	err = d.names(dir, func(name string) {
		if e, ok := member.ParseViewName(name); ok {
			top.add(e)
			l.Known = l.Known || e == op.Known
			return
		}
		switch {
		case op.Asks && strings.HasPrefix(name, askPrefix) && len(asks) < maxAsks:
			asks = append(asks, name)
		case !op.For.IsZero() && isAnswer(name, op.For) && len(answers) < maxAsks:
			answers = append(answers, name)
		}
	})
	if err != nil {
		return member.Look{}, err
	}
	if err := d.readNewest(dir, op.Known, top, &l); err != nil {
		return member.Look{}, err
	}
	slices.Sort(asks)
	for _, name := range asks {
		if b, err := d.read(dir, name, maxAskSize); err == nil {
			if c, err := parseAsk(b); err == nil && askName(c.Node, c.Own) == name {
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

// highest are the greatest epochs of a listing, the greatest first.
type highest []locks.Epoch

// maxStray is how many names of no views are passed over in one look.
const maxStray = 8

func (h *highest) add(e locks.Epoch) {
	i, _ := slices.BinarySearchFunc(*h, e, func(a, b locks.Epoch) int { return cmp.Compare(b, a) })
	if i <= maxStray {
		*h = slices.Insert((*h)[:min(len(*h), maxStray)], i, e)
	}
}

// reach is how far above the newest view the name of another can be, at most,
// to be taken for a view that was damaged. Views are made one above the other,
// and of a jump (member.ReasonRestored) the file can be read.
const reach = 1000

// readNewest reads the newest view; if it is damaged, the one before it, which
// tells at least who may know more. No other: names further back may have been
// pruned and linked again. A name that is out of reach of all views, with a
// file that is none, is nobody's view and is passed over.
func (d *Dir) readNewest(dir *os.File, known locks.Epoch, top highest, l *member.Look) error {
	if len(top) == 0 {
		return nil
	}
	if l.Newest = top[0]; l.Newest <= known {
		return nil
	}
	v, err := d.readView(dir, l.Newest)
	if err == nil {
		l.View = v
		return nil
	}
	if !isNone(err) && !isBad(err) {
		return err
	}
	if !errors.Is(err, member.ErrNewer) {
		for _, e := range top[1:] {
			below, berr := (*member.View)(nil), error(nil)
			if e > known {
				if below, berr = d.readView(dir, e); berr != nil {
					continue
				}
			}
			if top[0] > e+reach {
				l.Newest, l.View, l.Stray = e, below, top[0]
				return nil
			}
			break
		}
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

// isNone reports that a name is not that of a file.
func isNone(err error) bool { return errors.Is(err, errNotRegular) || errors.Is(err, unix.ELOOP) }

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
	if err == nil {
		d.sawView(len(b))
	}
	if err == nil && v.Epoch != e {
		err = fmt.Errorf("%w: the file says it is view %d", member.ErrUnreadable, v.Epoch)
	}
	return v, err
}

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

// Ask implements [Register].
func (d *Dir) Ask(c member.Challenge) error {
	b, err := encodeAsk(c)
	if err != nil {
		return err
	}
	return d.replaceIn(viewsDir, askName(c.Node, c.Own), b)
}

// Answer implements [Register].
func (d *Dir) Answer(a member.Answer) error {
	b, err := encodeAnswer(a)
	if err != nil {
		return err
	}
	return d.replaceIn(viewsDir, answersTo(a.To, a.Own)+a.Node.Peer, b)
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
func (d *Dir) Unask(op member.UnaskOp) error {
	dir, err := d.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	remove := []string{}
	err = d.names(dir, func(name string) {
		if name == askName(op.Node, op.Own) || strings.HasPrefix(name, answersTo(op.Node, op.Own)) {
			remove = append(remove, name)
		}
	})
	for _, name := range remove {
		err = errors.Join(err, d.remove(dir, name))
	}
	return err
}
