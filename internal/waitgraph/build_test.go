package waitgraph

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var begin = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

// answers reads members and rows from lines:
//
//	HOST                           a member that answers, in state live
//	HOST STATE                     in another one; silent and expelled have not answered
//	HOST PID held|waiting FILE CLASS MODE START-END SECOND [for PID,HOST...] [rcv]
//
// A blocker that is a number is a process of the same host.
func answers(t *testing.T, text string) (all []Answer) {
	t.Helper()
	at := map[string]int{}
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 {
			m := Member{ID: "id-" + f[0], Host: f[0], State: "live", Answered: true}
			if len(f) == 2 {
				m.State = f[1]
			}
			if m.State == "silent" || m.State == "expelled" {
				m.Answered, m.Error = false, "no answer within 2s"
			}
			if m.State == "expelled" {
				m.Expelled = &begin
			}
			at[f[0]] = len(all)
			all = append(all, Answer{Member: m})
			continue
		}
		r := Row{State: f[2], File: "i" + f[3], Path: f[3], Class: f[4], Mode: f[5], Shared: true, Request: uint64(n + 1), Algorithm: "rw"}
		var second int
		if _, err := fmt.Sscanf(f[1]+" "+f[6]+" "+f[7], "%d %d-%d %d", &r.PID, &r.Start, &r.End, &second); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.End == 0 {
			r.End = -1
		}
		r.Command, r.Owner, r.Since = fmt.Sprint("prog", r.PID), uint64(n+1), begin.Add(time.Duration(second)*time.Second)
		for i := 8; i < len(f); i++ {
			switch f[i] {
			case "rcv":
				r.Shared, r.Algorithm = false, "rcv"
			case "for":
				i++
				for _, b := range strings.Split(f[i], ",") {
					var pid int
					if _, err := fmt.Sscan(b, &pid); err == nil {
						r.WaitsFor = append(r.WaitsFor, Program{PID: pid, Command: fmt.Sprint("prog", pid)})
					} else {
						r.Remote = append(r.Remote, "id-"+b)
					}
				}
			}
		}
		a := &all[at[f[0]]]
		a.Rows = append(a.Rows, r)
	}
	return all
}

// edges are the waits of a graph, a line each.
func edges(g *Graph) string {
	var out []string
	for _, w := range g.Waits {
		var bs []string
		for _, b := range w.For {
			who := b.Host
			if b.Process != "" {
				who = fmt.Sprintf("%s/%d", b.Host, b.PID)
			}
			bs = append(bs, string(b.Kind)+" "+who)
		}
		mark := ""
		if w.InCycle {
			mark = " CYCLE"
		}
		if w.More > 0 {
			mark += fmt.Sprintf(" +%d", w.More)
		}
		out = append(out, fmt.Sprintf("%s/%d %s: %s%s", w.Host, w.PID, w.Path, strings.Join(bs, ", "), mark))
	}
	return strings.Join(out, "\n")
}

func TestEdges(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, in, want string }{
		{"nobody", "a", ""},
		{"over two hosts", "a\nb\na 1 held x flock W 0-0 1\nb 2 waiting x flock W 0-0 2 for a", "b/2 x: holds a/1"},
		{"on one host", "a\na 1 held x flock W 0-0 1\na 2 waiting x flock W 0-0 2 for 1", "a/2 x: holds a/1"},
		{"the holder went between two looks", "a\na 2 waiting x flock W 0-0 2 for 1", "a/2 x: holds a/1"},
		{"other bytes, other class, other file are not in the way",
			"a\nb\na 1 held x posix W 0-10 1\na 2 held x posix W 10-20 1\na 3 held x flock W 0-0 1\na 4 held y posix W 0-0 1\nb 5 waiting x posix W 10-12 2 for a", "b/5 x: holds a/2"},
		{"readers do not exclude each other", "a\nb\na 1 held x posix R 0-0 1\na 2 waiting x posix R 0-0 2\nb 5 waiting x posix W 0-0 3 for a", "a/2 x: \nb/5 x: holds a/1"},
		{"all who hold are named", "a\nb\nc\na 1 held x flock R 0-0 1\nb 2 held x flock R 0-0 1\nc 3 waiting x flock W 0-0 3 for a,b", "c/3 x: holds a/1, holds b/2"},
		{"who is in front", "a\nb\nc\na 1 held x flock W 0-0 1\nb 2 waiting x flock W 0-0 2 for a\nc 3 waiting x flock W 0-0 3 for a,b",
			"b/2 x: holds a/1\nc/3 x: holds a/1, ahead b/2"},
		{"two that ask each other: the elder one is in front", "a\nb\na 1 waiting x flock W 0-0 1 for b\nb 2 waiting x flock W 0-0 2 for a", "a/1 x: keeps b\nb/2 x: ahead a/1"},
		{"in front on the same host", "a\na 1 waiting x flock W 0-0 1\na 2 waiting x flock W 0-0 2\na 3 waiting x flock W 0-0 3", "a/1 x: \na/2 x: ahead a/1\na/3 x: ahead a/2"},
		{"a member that keeps the permission", "a\nb\nb 2 waiting x flock W 0-0 2 for a", "b/2 x: keeps a"},
		{"a member that is silent", "a silent\nb\nb 2 waiting x flock W 0-0 2 for a", "b/2 x: silent a"},
		{"a member that nobody knows", "b\nb 2 waiting x flock W 0-0 2 for z", "b/2 x: silent id-z"},
		{"exclusive: only the holder counts", "a\nb\nc silent\nb 1 held x open W 0-0 1 rcv\na 2 waiting x open R 0-0 2 for b,c rcv", "a/2 x: holds b/1"},
		{"exclusive: not known who has it", "a\nb\nc silent\na 2 waiting x open R 0-0 2 for b,c rcv", "a/2 x: keeps b, silent c"},
		{"a cycle over two hosts", "a\nb\na 1 held x flock W 0-0 1\nb 2 held y flock W 0-0 1\na 1 waiting y flock W 0-0 2 for b\nb 2 waiting x flock W 0-0 3 for a\nb 9 waiting x flock W 0-0 4 for a",
			"a/1 y: holds b/2 CYCLE\nb/2 x: holds a/1 CYCLE\nb/9 x: holds a/1"},
		{"one process in its own way", "a\na 1 held x flock W 0-0 1\na 1 waiting x flock W 0-0 2 for 1", "a/1 x: holds a/1 CYCLE"},
		{"a process of a cycle that waits beside it", "a\na 1 held x flock W 0-0 1\na 2 held y flock W 0-0 1\na 3 held z flock W 0-0 1\n" +
			"a 1 waiting y flock W 0-0 2 for 2\na 2 waiting x flock W 0-0 3 for 1\na 1 waiting z flock W 0-0 4 for 3",
			"a/1 y: holds a/2 CYCLE\na/2 x: holds a/1 CYCLE\na/1 z: holds a/3"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if got := edges(Build(begin, "id-a", answers(t, x.in))); got != x.want {
				t.Errorf("got\n%s\nwant\n%s", got, x.want)
			}
		})
	}
}

func TestManyBlockers(t *testing.T) {
	t.Parallel()
	in := "a\nb\n"
	for i := range maxBlockers + 5 {
		in += fmt.Sprintf("a %d held x flock R 0-0 1\n", i+1)
	}
	g := Build(begin, "id-b", answers(t, in+"b 999 waiting x flock W 0-0 2 for a"))
	if w := g.Waits[0]; len(w.For) != maxBlockers || w.More != 5 {
		t.Errorf("%d blockers and %d more, want %d and 5", len(w.For), w.More, maxBlockers)
	}
}

// TestLongChain: neither depth nor number of processes is a matter of the stack,
// and the end of a long chain is found.
func TestLongChain(t *testing.T) {
	t.Parallel()
	const n = 10_000
	in := []Answer{{Member: Member{ID: "id-a", Host: "a", State: "live", Answered: true}}}
	for i := range n {
		file := func(i int) string { return fmt.Sprint("f", i%n) }
		in[0].Rows = append(in[0].Rows,
			Row{State: "held", File: file(i), Class: "flock", Mode: "W", End: -1, PID: i + 1, Owner: uint64(2 * i), Shared: true, Since: begin},
			Row{State: "waiting", File: file(i + 1), Class: "flock", Mode: "W", End: -1, PID: i + 1, Owner: uint64(2*i + 1), Shared: true, Since: begin.Add(time.Second),
				WaitsFor: []Program{{PID: (i+1)%n + 1}}})
	}
	g := Build(begin, "id-a", in)
	if len(g.Cycles) != 1 || len(g.Cycles[0]) != n {
		t.Fatalf("%d cycles, want one of %d processes", len(g.Cycles), n)
	}
	in[0].Rows = in[0].Rows[:2*n-1] // the last process waits for nobody
	g = Build(begin, "id-a", in)
	if len(g.Cycles) != 0 {
		t.Fatalf("%d cycles, want none", len(g.Cycles))
	}
	s := g.Why(Target{PID: 1})
	if len(s.Ends) != 1 || s.Ends[0].PID != n {
		t.Errorf("the story of process 1 ends with %+v, want process %d", s.Ends, n)
	}
	if len(s.Steps) != maxSteps || s.Steps[maxSteps-1].More != n-maxSteps {
		t.Errorf("%d steps and %d more, want %d and %d", len(s.Steps), s.Steps[len(s.Steps)-1].More, maxSteps, n-maxSteps)
	}
}
