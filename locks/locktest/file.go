package locktest

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/dmxfs/dmxfs/locks"
)

// RunFiles runs the interaction files in dir. Each begins with
//
//	nodes 3
//
// and goes on with ops, as [Op] writes them, and with
//
//	deliver n0->n1 n=2     several messages of one channel
//	stabilize              all messages, the oldest first
//	epoch n0,n2,n3         view, freeze and restore of all at once
//	rest                   release all, expire, stabilize: all can be dropped
//	check                  nobody waits without cause
//	messages               how many were sent
//	state [n0]             the machines
//	waits n0/1             what the ticket waits for
//	suspects n0 W A        who may hold what conflicts
//	permitted n0           what the node may grant without asking
//
// What is below the line is what the machines did; -rewrite writes it anew.
func RunFiles(t *testing.T, alg locks.Algorithm, opt Options, dir string) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no interaction files in %s: %v", dir, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { RunFile(t, alg, opt, path) })
	}
}

// RunFile runs one interaction file; see [RunFiles].
func RunFile(t *testing.T, alg locks.Algorithm, opt Options, path string) {
	var f file
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		f.out.Reset()
		if err := f.directive(alg, opt, d); err != nil {
			fmt.Fprintf(&f.out, "error: %v\n", err)
		}
		return f.out.String()
	})
}

func (f *file) directive(alg locks.Algorithm, opt Options, d *datadriven.TestData) error {
	if d.Cmd != "nodes" {
		if f.w == nil {
			return fmt.Errorf("a file begins with nodes")
		}
		return f.do(line(d))
	}
	if len(d.CmdArgs) == 1 {
		if n, err := strconv.ParseUint(d.CmdArgs[0].Key, 10, 8); err == nil && n > 0 {
			f.w = newWorld(alg, opt, int(n))
			f.w.tells = true
			return nil
		}
	}
	return fmt.Errorf("nodes wants a number")
}

// line is the directive as it was written.
func line(d *datadriven.TestData) string {
	s := d.Cmd
	for _, a := range d.CmdArgs {
		s += " " + a.Key
		if len(a.Vals) > 0 {
			s += "=" + strings.Join(a.Vals, ",")
		}
	}
	return s
}

// A file is an interaction file while it runs.
type file struct {
	w   *world
	out strings.Builder
}

func (f *file) do(line string) error {
	args := strings.Fields(line)
	switch cmd, args := args[0], args[1:]; cmd {
	case "stabilize":
		return settle(f.w, f.each)
	case "epoch":
		return f.change(strings.Join(args, " "))
	case "rest":
		return finish(f.w, func(o Op) error {
			if err := f.each(o); err != errSkip {
				return err
			}
			return nil
		})
	case "check":
		if !f.w.quiet() {
			return fmt.Errorf("messages are under way")
		}
		if err := f.w.oracle.idle(f.w); err != nil {
			return err
		}
		f.out.WriteString("ok\n")
		return nil
	case "messages":
		f.messages()
		return nil
	case "state":
		return f.state(args)
	case "waits", "suspects", "permitted":
		return f.query(cmd, args)
	}
	times := 1
	if strings.HasPrefix(line, opDeliver) {
		if head, n, ok := strings.Cut(line, " n="); ok {
			line = head
			if _, err := fmt.Sscan(n, &times); err != nil {
				return err
			}
		}
	}
	o, err := parseOp(line)
	if err != nil {
		return err
	}
	for range times {
		if err := f.step(o, ""); err != nil {
			return err
		}
	}
	return nil
}

// step does one op and prints what it did: below the message that it handled,
// or below the title if there is one.
func (f *file) step(o Op, title string) error {
	err := f.w.apply(o)
	did := f.w.log
	if o.Kind == opDeliver && len(did) > 0 {
		title, did = strings.TrimPrefix(did[0], opDeliver+" "), did[1:]
		fmt.Fprintln(&f.out, title)
	} else if title != "" && len(did) > 0 {
		fmt.Fprintln(&f.out, title)
	}
	for _, l := range did {
		if title != "" {
			l = "  " + l
		}
		fmt.Fprintln(&f.out, l)
	}
	return err
}

// each does ops of several nodes, with a title for each that does something.
func (f *file) each(o Op) error { return f.step(o, string(nodeID(o.Node))+":") }

func (f *file) change(members string) error {
	o, err := parseOp(opView + " " + members)
	if err != nil {
		return err
	}
	if err := f.each(o); err != nil {
		return err
	}
	for _, kind := range []string{opFreeze, opRestore} {
		for _, i := range o.View {
			if err := f.each(Op{Kind: kind, Node: i}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *file) messages() {
	total := 0
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(f.w.sent)) {
		total += f.w.sent[k]
		kinds = append(kinds, fmt.Sprintf("%d %s", f.w.sent[k], k))
	}
	fmt.Fprintf(&f.out, "%d: %s\n", total, strings.Join(kinds, ", "))
}

func (f *file) state(args []string) error {
	for _, n := range f.w.nodes {
		switch {
		case n.dead || len(args) > 0 && args[0] != string(n.id):
		case n.machine == nil:
			fmt.Fprintf(&f.out, "%s has no machine\n", n.id)
		default:
			for i, l := range strings.Split(n.machine.String(), "; ") {
				fmt.Fprintf(&f.out, "%*s%s\n", min(i, 1)*2, "", l)
			}
		}
	}
	return nil
}

func (f *file) query(cmd string, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s of which node", cmd)
	}
	name, id, _ := strings.Cut(args[0], "/")
	i, ok := parseNode(name)
	if !ok || i >= len(f.w.nodes) || f.w.nodes[i].machine == nil {
		return fmt.Errorf("%s has no machine", name)
	}
	n := f.w.nodes[i]
	switch cmd {
	case "waits":
		num, _ := strconv.ParseUint(id, 10, 64)
		t := f.w.oracle.ticket(n, locks.TicketID(num))
		if t == nil || t.status != waiting {
			return fmt.Errorf("%s does not wait", args[0])
		}
		local, remote := n.machine.Blockers(t.ID, math.MaxInt)
		fmt.Fprintf(&f.out, "tickets %v, members %v\n", local, remote)
	case "suspects":
		if len(args) != 3 {
			return fmt.Errorf("suspects wants a mode and a range")
		}
		r, ok := parseRange(args[2])
		if !ok || parseMode(args[1]) == 0 {
			return fmt.Errorf("suspects wants a mode and a range")
		}
		fmt.Fprintf(&f.out, "%v\n", n.machine.Suspects(parseMode(args[1]), r))
	case "permitted":
		ranges, _ := n.machine.Permitted(0, math.MaxInt)
		fmt.Fprintf(&f.out, "%v\n", ranges)
	}
	return nil
}
