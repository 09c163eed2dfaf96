package rcv

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

func of(node int, sn uint64) exclusive.Request {
	return exclusive.Request{SN: uint64(locks.TokenFloor(3)) + sn, Node: node}
}

// What a peer says against the protocol is an error, and changes nothing.
func TestReceiveRefusesWhatBreaksTheProtocol(t *testing.T) {
	mine := of(0, 2)
	rm := func(r exclusive.Request, change func(*roaming)) *roaming {
		m := &roaming{inquiry: inquiry{r, 0}, unvisited: []int{2}, info: newInfo(3)}
		m.rows[r.Node%3] = row{log: []exclusive.Request{r}, version: 1}
		change(m)
		return m
	}
	nothing := func(*roaming) {}
	for _, c := range []struct {
		name string
		msg  locks.Message
		want string
	}{
		{"a request of nobody", rm(of(7, 1), nothing), "of no member"},
		{"a request from the future", rm(of(1, 100), nothing), "after the clock"},
		{"a request that comes home", rm(mine, nothing), "comes home"},
		{"a request that is to come here again", rm(of(1, 1), func(m *roaming) { m.unvisited = []int{0} }), "unvisited are [0]"},
		{"a request that is to come home", rm(of(1, 1), func(m *roaming) { m.unvisited = []int{1} }), "unvisited are [1]"},
		{"a request that is to go to nobody", rm(of(1, 1), func(m *roaming) { m.unvisited = []int{3} }), "unvisited are [3]"},
		{"unvisited out of order", rm(of(1, 1), func(m *roaming) { m.unvisited = []int{2, 2} }), "unvisited are [2 2]"},
		{"tables of other members", rm(of(1, 1), func(m *roaming) { m.info = newInfo(2) }), "2 nodes of 3"},
		{"a place from the future", rm(of(1, 1), func(m *roaming) { m.rows[1].ordered = of(1, 100).SN }), "after the clock"},
		{"a list with nobody", rm(of(1, 1), func(m *roaming) { m.list = []exclusive.Request{of(5, 1)} }), "of no member"},
		{"a log with nobody", rm(of(1, 1), func(m *roaming) { m.rows[2] = row{log: []exclusive.Request{of(5, 1)}, version: 1} }), "of no member"},
		{"votes that were not given", rm(of(1, 1), func(m *roaming) { m.rows[0].version = 9 }), "9 votes of this node, which gave"},
		{"another order", rm(of(1, 1), func(m *roaming) {
			m.list = []exclusive.Request{of(2, 1)}
			m.rows[2].ordered = of(2, 1).SN
		}), "the order has <1,3.1> at 1, not <2,3.1>"},
		{"an IM for another", &inform{before: of(1, 1), next: of(2, 1), info: newInfo(3)}, "for another node"},
		{"an EM for another", &enter{Request: of(1, 1), info: newInfo(3)}, "for another node"},
		{"an EM without a place", &enter{Request: mine, info: newInfo(3)}, "has no place"},
		{"a question for another", &question{before: of(1, 1), inquiry: inquiry{of(2, 1), 1}}, "for another node"},
		{"an answer for another", &held{inquiry{of(1, 1), 1}}, "for another node"},
		{"the end of a probe of another", &probed{inquiry{of(1, 1), 1}}, "for another node"},
		{"a SEALED that was not asked for", &closeMsg{verbSealed, 1}, "nothing of the sort was asked"},
		{"a BUSY that was not asked for", &closeMsg{verbBusy, 1}, "nothing of the sort was asked"},
		{"a FORGET without a CLOSE", &closeMsg{verbForget, 1}, "not sealed by that"},
		{"a REOPEN without a CLOSE", &closeMsg{verbReopen, 1}, "not sealed by that"},
		{"of another algorithm", strange{}, "another algorithm"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m := Algorithm.New(locks.Config{View: &locks.View{Epoch: 3, Self: "n0", Members: []locks.NodeID{"n0", "n1", "n2"}}})
			out := &locks.Turn{}
			out.Reset(true)
			m.Acquire(locks.Ticket{ID: 1, Mode: locks.Write, Range: locks.Whole, Try: true}, out)
			// n1 is known to be the first in the order.
			if err := exclusive.CoreOf(m).Receive(2, &question{before: mine, inquiry: inquiry{of(2, 1), 1}}); err != nil {
				t.Fatal(err)
			}
			known := rm(of(1, 1), func(m *roaming) {
				m.list = []exclusive.Request{of(1, 1)}
				m.rows[1] = row{ordered: of(1, 1).SN, version: 1}
			})
			if err := exclusive.CoreOf(m).Receive(1, known); err != nil {
				t.Fatal(err)
			}
			was := m.String()
			out.Reset(true)
			err := exclusive.CoreOf(m).Receive(2, c.msg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if got := m.String(); got != was || len(out.Lines()) > 0 {
				t.Errorf("the state was\n%s, and is\n%s\nafter %q", was, got, out.Lines())
			}
		})
	}
}

type strange struct{}

func (strange) Append(b []byte) []byte { return b }
func (strange) String() string         { return "STRANGE" }
