package locks

import (
	"fmt"
	"strconv"
	"strings"
)

// What a machine was told and what it did, as text: the same in the golden
// files of the algorithms and in the engine's debug log, so that a line of one
// can be pasted into the other.

// String is as in "7 W [0,8) o2 try stamp=3.n1.4"; what is zero is left out.
func (t Ticket) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %v %v", t.ID, t.Mode, t.Range)
	if t.Owner != 0 {
		fmt.Fprintf(&b, " o%d", t.Owner)
	}
	if t.Try {
		b.WriteString(" try")
	}
	if !t.Stamp.IsZero() {
		fmt.Fprintf(&b, " stamp=%v", t.Stamp)
	}
	return b.String()
}

// String is as in "7 W [0,8)".
func (p Part) String() string { return fmt.Sprintf("%d %v %v", p.ID, p.Mode, p.Range) }

// String is the epoch of the grant and its number there, as in "2.17".
func (t Token) String() string {
	b := append(strconv.AppendUint(make([]byte, 0, 40), uint64(t>>tokenCount), 10), '.')
	return string(strconv.AppendUint(b, uint64(t&(1<<tokenCount-1)), 10))
}

// String is as in "7 granted token=2.17" or "7 denied".
func (o Outcome) String() string {
	if !o.Granted {
		return fmt.Sprintf("%d denied", o.Ticket)
	}
	return fmt.Sprintf("%d granted token=%v", o.Ticket, o.Token)
}

// String is as in "to n2: REQUEST ...".
func (e Envelope) String() string { return fmt.Sprintf("to %s: %v", e.To, e.Msg) }

// Lines is what the turn did, a thing a line, in the order in which it takes
// effect. It is empty for a turn in which nothing happened.
func (t *Turn) Lines() []string {
	var s []string
	if t.Handover {
		s = append(s, "handover")
	}
	for _, e := range t.Send {
		s = append(s, e.String())
	}
	if t.Stale {
		s = append(s, "stale")
	}
	for _, o := range t.Done {
		s = append(s, o.String())
	}
	return s
}
