package locktest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// Op is one step of a world. Kind is its name in an interaction file.
type Op struct {
	Kind   string
	Node   int            // who acts; the sender for deliver
	To     int            // the receiver, of deliver
	At     int            // which of the messages under way; 0 is the oldest
	Dup    bool           // it stays under way, to come again
	Ticket locks.Ticket   // of acquire; else only the ID
	As     locks.TicketID // of acquire: the cancelled ticket whose stamp it brings
	Old    []locks.TicketID
	Parts  []locks.Part
	View   []int // the members of a new epoch
}

// The kinds of op.
const (
	opAcquire  = "acquire"  // acquire n0/1 W A [o2] [try] [as=3]
	opCancel   = "cancel"   // cancel n0/1
	opReplace  = "replace"  // replace n0/1,2 3=R:A 4=W:B
	opOvertake = "overtake" // overtake n0/1
	opExpire   = "expire"   // expire n0
	opDrop     = "drop"     // drop n0: the engine drops its idle machine
	opSuspend  = "suspend"  // suspend n0: it may not enter
	opResume   = "resume"   // resume n0
	opDeliver  = "deliver"  // deliver n0->n1 [at=1] [dup]
	opView     = "view"     // view n0,n2,n3: the next epoch; who is left out is dead
	opFreeze   = "freeze"   // freeze n0: it learns of the epoch and says its state
	opRestore  = "restore"  // restore n0: it has all states
)

// nodeID is n0 to n9, then na to nz: their order is that of the numbers.
func nodeID(i int) locks.NodeID {
	if i >= 36 {
		panic("locktest: more than 36 nodes")
	}
	return locks.NodeID("n" + strconv.FormatInt(int64(i), 36))
}

func (o Op) String() string {
	n := nodeID(o.Node)
	switch o.Kind {
	case opAcquire:
		s := fmt.Sprintf("%s %s/%d %v %s", o.Kind, n, o.Ticket.ID, o.Ticket.Mode, rangeText(o.Ticket.Range))
		if o.Ticket.Owner != 0 {
			s += fmt.Sprintf(" o%d", o.Ticket.Owner)
		}
		if o.Ticket.Try {
			s += " try"
		}
		if o.As != 0 {
			s += fmt.Sprintf(" as=%d", o.As)
		}
		return s
	case opCancel, opOvertake:
		return fmt.Sprintf("%s %s/%d", o.Kind, n, o.Ticket.ID)
	case opReplace:
		ids := make([]string, len(o.Old))
		for i, id := range o.Old {
			ids[i] = strconv.FormatUint(uint64(id), 10)
		}
		s := fmt.Sprintf("%s %s/%s", o.Kind, n, strings.Join(ids, ","))
		for _, p := range o.Parts {
			s += fmt.Sprintf(" %d=%v:%s", p.ID, p.Mode, rangeText(p.Range))
		}
		return s
	case opDeliver:
		s := fmt.Sprintf("%s %s->%s", o.Kind, n, nodeID(o.To))
		if o.At != 0 {
			s += fmt.Sprintf(" at=%d", o.At)
		}
		if o.Dup {
			s += " dup"
		}
		return s
	case opView:
		names := make([]string, len(o.View))
		for i, m := range o.View {
			names[i] = string(nodeID(m))
		}
		return o.Kind + " " + strings.Join(names, ",")
	}
	return fmt.Sprintf("%s %s", o.Kind, n)
}

// parseOp is the inverse of String.
func parseOp(line string) (o Op, err error) {
	f := strings.Fields(line)
	if len(f) < 2 {
		return o, fmt.Errorf("%q: an op has a name and a node", line)
	}
	o.Kind = f[0]
	bad := func(s string) (Op, error) { return Op{}, fmt.Errorf("%q: %q means nothing", line, s) }
	switch o.Kind {
	case opView:
		for _, s := range strings.Split(f[1], ",") {
			i, ok := parseNode(s)
			if !ok {
				return bad(s)
			}
			o.View = append(o.View, i)
		}
		slices.Sort(o.View)
	case opDeliver:
		from, to, _ := strings.Cut(f[1], "->")
		var ok1, ok2 bool
		o.Node, ok1 = parseNode(from)
		if o.To, ok2 = parseNode(to); !ok1 || !ok2 {
			return bad(f[1])
		}
	case opAcquire, opCancel, opReplace, opOvertake:
		name, ids, _ := strings.Cut(f[1], "/")
		var ok bool
		if o.Node, ok = parseNode(name); !ok {
			return bad(f[1])
		}
		for _, s := range strings.Split(ids, ",") {
			id, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				return bad(f[1])
			}
			o.Old = append(o.Old, locks.TicketID(id))
		}
		if o.Kind != opReplace {
			if len(o.Old) != 1 {
				return bad(f[1])
			}
			o.Ticket.ID, o.Old = o.Old[0], nil
		}
	case opExpire, opDrop, opSuspend, opResume, opFreeze, opRestore:
		var ok bool
		if o.Node, ok = parseNode(f[1]); !ok || len(f) > 2 {
			return bad(f[1])
		}
	default:
		return bad(o.Kind)
	}
	for i, s := range f[2:] {
		if !o.parseArg(i, s) {
			return bad(s)
		}
	}
	if o.Kind == opAcquire && (o.Ticket.Mode == 0 || o.Ticket.Range.Empty()) {
		return Op{}, fmt.Errorf("%q: a ticket needs a mode and a range", line)
	}
	return o, nil
}

// parseArg reads the i-th argument after the node.
func (o *Op) parseArg(i int, s string) bool {
	key, val, _ := strings.Cut(s, "=")
	num, numErr := strconv.ParseUint(val, 10, 32)
	switch o.Kind {
	case opAcquire:
		switch {
		case i == 0:
			o.Ticket.Mode = parseMode(s)
			return o.Ticket.Mode != 0
		case i == 1:
			var ok bool
			o.Ticket.Range, ok = parseRange(s)
			return ok
		case s == "try":
			o.Ticket.Try = true
			return true
		case key == "as":
			o.As = locks.TicketID(num)
			return numErr == nil
		case s[0] == 'o':
			owner, err := strconv.ParseUint(s[1:], 10, 32)
			o.Ticket.Owner = locks.OwnerID(owner)
			return err == nil
		}
	case opReplace:
		mode, r, _ := strings.Cut(val, ":")
		id, err := strconv.ParseUint(key, 10, 64)
		rng, ok := parseRange(r)
		p := locks.Part{ID: locks.TicketID(id), Mode: parseMode(mode), Range: rng}
		o.Parts = append(o.Parts, p)
		return err == nil && ok && p.Mode != 0
	case opDeliver:
		switch {
		case s == "dup":
			o.Dup = true
			return true
		case key == "at":
			o.At = int(num)
			return numErr == nil
		}
	}
	return false
}

func parseNode(s string) (int, bool) {
	if len(s) != 2 || s[0] != 'n' {
		return 0, false
	}
	i, err := strconv.ParseUint(s[1:], 36, 8)
	return int(i), err == nil
}

func parseMode(s string) locks.Mode {
	for _, m := range []locks.Mode{locks.Read, locks.Write} {
		if s == m.String() {
			return m
		}
	}
	return 0
}

// A range is written as its bytes, which are A to Z, or as "all".
func rangeText(r locks.Range) string {
	if r == locks.Whole {
		return "all"
	}
	if r.End > 26 {
		return r.String()
	}
	return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[r.Start:r.End]
}

func parseRange(s string) (locks.Range, bool) {
	if s == "all" {
		return locks.Whole, true
	}
	for i := range s {
		if s[i] < 'A' || s[i] > 'Z' || s[i] != s[0]+byte(i) {
			return locks.Range{}, false
		}
	}
	if s == "" {
		return locks.Range{}, false
	}
	start := uint64(s[0] - 'A')
	return locks.Range{Start: start, End: start + uint64(len(s))}, true
}
