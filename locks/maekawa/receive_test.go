package maekawa

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// seven is a machine of n0, whose quorum is n0, n1, n3, and which is in those
// of n4 and n6.
func seven() (locks.Machine, *locks.Turn) {
	m := Algorithm.New(locks.Config{View: &locks.View{Epoch: 3, Self: "n0", Members: []locks.NodeID{"n0", "n1", "n2", "n3", "n4", "n5", "n6"}}})
	out := &locks.Turn{}
	out.Reset(true)
	return m, out
}

func of(node int, sn uint64) exclusive.Request {
	return exclusive.Request{SN: uint64(locks.TokenFloor(3)) + sn, Node: node}
}

// What a peer says against the protocol is an error, and changes nothing.
func TestReceiveRefusesWhatBreaksTheProtocol(t *testing.T) {
	mine := of(0, 2)
	for _, c := range []struct {
		name string
		from int
		msg  locks.Message
		want string
	}{
		{"a request of nobody", 4, &request{of(9, 1), 0}, "of no member"},
		{"a request from the future", 4, &request{of(4, 100), 0}, "after the clock"},
		{"a request of another", 4, &request{of(6, 1), 0}, "of another node's request"},
		{"a request of one that has other members", 1, &request{of(1, 1), 0}, "not in its quorum"},
		{"a release of another", 4, &release{of(6, 1)}, "of another node's request"},
		{"a relinquish of another", 4, &relinquish{of(6, 1), 1}, "of another node's request"},
		{"a use by another", 4, &using{of(6, 1), 1}, "of another node's request"},
		{"a vote for another", 1, &locked{Request: of(4, 1), grant: 1}, "about another node's request"},
		{"a vote of no member of the quorum", 2, &locked{Request: mine, grant: 1}, "not in the quorum of this node"},
		{"a failure of no member of the quorum", 2, &failed{mine}, "not in the quorum of this node"},
		{"an inquiry of no member of the quorum", 2, &inquire{mine, 1}, "not in the quorum of this node"},
		{"a want of no member of the quorum", 2, &wanted{mine, 1}, "not in the quorum of this node"},
		{"a denial of no member of the quorum", 2, &denied{mine, 1}, "not in the quorum of this node"},
		{"of another algorithm", 1, strange{}, "another algorithm"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m, out := seven()
			m.Acquire(locks.Ticket{ID: 1, Mode: locks.Write, Range: locks.Whole, Try: true}, out)
			was := m.String()
			if !strings.Contains(was, "my="+mine.String()) {
				t.Fatalf("the request is another one: %s", was)
			}
			out.Reset(true)
			err := exclusive.CoreOf(m).Receive(c.from, c.msg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if got := m.String(); got != was || len(out.Lines()) > 0 {
				t.Errorf("the state was\n%s, and is\n%s\nafter %q", was, got, out.Lines())
			}
		})
	}
}

// A RELINQUISH that comes twice, after its request has got the vote again, does
// not give the vote back.
func TestAnEarlierVoteIsNotGivenBack(t *testing.T) {
	m, out := seven()
	receive := func(from int, msg locks.Message) {
		t.Helper()
		if err := exclusive.CoreOf(m).Receive(from, msg); err != nil {
			t.Fatal(err)
		}
	}
	c := exclusive.CoreOf(m).(*core)
	m.Acquire(locks.Ticket{ID: 1, Mode: locks.Write, Range: locks.Whole}, out)
	m.Cancel(1, out) // the clock is ahead of the stamps below
	late, early := of(6, 2), of(4, 1)
	receive(6, &request{late, 0})
	first := c.grant
	receive(4, &request{early, 0})
	receive(6, &relinquish{late, first})
	receive(4, &release{early})
	if c.lock.Request != late || c.grant == first {
		t.Fatalf("%v does not have the vote again: %v", late, m)
	}
	receive(4, &request{of(4, 1), 0}) // precedes it, as if it were new
	receive(6, &relinquish{late, first})
	if c.lock.Request != late {
		t.Errorf("the vote of %v was given back by what was said of an earlier one", late)
	}
}

type strange struct{}

func (strange) Append(b []byte) []byte { return b }
func (strange) String() string         { return "STRANGE" }
