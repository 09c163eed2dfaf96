package ring

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/exclusive"
)

// What a peer says against the protocol is an error, and changes nothing.
func TestReceiveRefusesWhatBreaksTheProtocol(t *testing.T) {
	of := func(node int, sn uint64) inquiry {
		return inquiry{exclusive.Request{SN: uint64(locks.TokenFloor(3)) + sn, Node: node}, 1}
	}
	for _, c := range []struct {
		name string
		msg  locks.Message
		want string
	}{
		{"a token of nobody", &token{of(3, 1)}, "of no member"},
		{"a token from the future", &token{of(1, 100)}, "after the clock"},
		{"a question of nobody", &question{of(3, 1)}, "of no member"},
		{"a question from the future", &question{of(1, 100)}, "after the clock"},
		{"an answer for another", &held{of(1, 1)}, "another node"},
		{"of another algorithm", strange{}, "another algorithm"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m := Algorithm.New(locks.Config{View: &locks.View{Epoch: 3, Self: "n0", Members: []locks.NodeID{"n0", "n1", "n2"}}})
			var out locks.Turn
			out.Reset(true)
			m.Acquire(locks.Ticket{ID: 1, Mode: locks.Write, Range: locks.Whole, Try: true}, &out)
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
