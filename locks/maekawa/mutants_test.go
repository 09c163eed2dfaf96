package maekawa

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/mutant"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// The paper to the letter, and each rule taken out or turned round.
func TestMutantsAreFound(t *testing.T) {
	locktest.Mutants(t, []locktest.Mutant{
		// Section 4, (2), sends FAILED to who comes, never to who is displaced.
		{Name: "step 2 of the paper", Paper: true, File: "arbiter.go",
			Old: "			c.fail(&c.queue[1])", New: "			_ = c.queue[1]"},
		// (3): "it has received a FAILED message from some of its members".
		{Name: "step 3 of the paper", Paper: true, File: "requester.go",
			Old: "= m.grant, 0, 0, true, 0\n", New: "= m.grant, 0, 0, false, 0\n"},
		// (3) and (4) do not say which vote is given back.
		{Name: "what is given back is not named", Paper: true, File: "arbiter.go",
			Old: "	if msg.Request != c.lock.Request || msg.grant != c.grant {\n", New: "	if c.lock.None() {\n",
			Also: []mutant.Edit{{File: "requester.go", Old: "if m.inquired == 0 || m.grant != m.inquired {", New: "if m.inquired == 0 {"},
				{File: "message.go", Old: "return &relinquish{q, positive(r)}", New: "return &relinquish{q, r.Uint()}"}}},
		{Name: "gives back what it has not got", File: "requester.go",
			Old: "if m.inquired == 0 || m.grant != m.inquired {", New: "if m.inquired == 0 {",
			Also: []mutant.Edit{{File: "message.go", Old: "return &relinquish{q, positive(r)}", New: "return &relinquish{q, r.Uint()}"}}},
		{Name: "an inquiry that comes before its vote is ignored", File: "requester.go",
			Old: "msg.grant > m.relinquished {", New: "msg.grant == m.grant {"},

		{Name: "votes twice", File: "arbiter.go",
			Old: "	if c.lock.None() {\n		c.vote(", New: "	if c.lock.None() || c.lock.Node != r.Node && !c.lock.Precedes(r) {\n		c.vote("},
		{Name: "takes back a vote that was not given back", File: "arbiter.go",
			Old: "msg.grant != c.grant {\n", New: "false {\n", Test: "TestAnEarlierVoteIsNotGivenBack"},
		{Name: "an old vote counts", File: "requester.go",
			Old: "	if c.in || msg.grant <= m.relinquished || msg.grant <= m.grant {", New: "	if c.in || msg.grant <= m.grant {"},
		{Name: "a vote for an earlier request counts", File: "requester.go",
			Old: "	if msg.Request != c.my {\n		// Of", New: "	if c.my.None() {\n		// Of"},
		{Name: "an arbiter is not told that a request is over", File: "requester.go",
			Old: "		c.send(from, &release{msg.Request})\n", New: ""},
		{Name: "no FAILED to who comes", File: "arbiter.go",
			Old: "		c.fail(&c.queue[i])\n", New: ""},
		{Name: "no INQUIRE", File: "arbiter.go",
			Old: "		if !c.inquired {\n", New: "		if false {\n"},
		{Name: "an old FAILED counts", File: "requester.go",
			Old: "&& m.grant == 0 { // else", New: "{ // else", Inside: true},
		{Name: "enters without all votes", File: "requester.go",
			Old: "	for i := range c.members {\n		if c.members[i].grant == 0 {", New: "	for i := range c.members[1:] {\n		if c.members[i].grant == 0 {"},
		{Name: "a release leaves what waits", File: "arbiter.go",
			Old: "		c.queue = slices.Delete(c.queue, i, i+1)\n	}\n	if", New: "		_ = i\n	}\n	if", Test: "TestStories"},
		{Name: "a relinquished request is lost", File: "arbiter.go",
			Old: "	c.queue = slices.Insert(c.queue, i, e)\n	c.next()", New: "	_ = i\n	c.next()"},
		{Name: "a request is queued twice", File: "arbiter.go",
			Old: "	if found {\n", New: "	if found && false {\n", Inside: true},
		{Name: "quorums that do not meet", File: "quorum.go",
			Old: "	slices.Sort(q)\n", New: "	q = q[:len(q)-1]\n	slices.Sort(q)\n"},

		{Name: "who has the lock is not told that it is wanted", File: "arbiter.go",
			Old: "		c.send(c.lock.Node, &wanted{Request: c.lock.Request})\n", New: ""},
		{Name: "a vote does not tell that others wait", File: "requester.go",
			Old: "	c.wanted = c.wanted || msg.wanted\n", New: ""},
		{Name: "an INQUIRE does not tell that others wait", File: "requester.go",
			Old: "	c.wanted = true\n	if m := c.member(from); msg", New: "	if m := c.member(from); msg"},
		{Name: "tries are not asked for", File: "arbiter.go",
			Old: "		c.send(c.lock.Node, &wanted{c.lock.Request, n})\n", New: ""},
		{Name: "a vote does not bring the question", File: "requester.go",
			Old: "false, max(m.ask, msg.ask)", New: "false, m.ask"},
		{Name: "the use is not told", File: "requester.go",
			Old: "		c.send(m.node, &using{c.my, m.ask})\n", New: ""},
		{Name: "an answer to an earlier question counts", File: "arbiter.go",
			Old: "|| msg.ask != c.asking {", New: "{"},
		{Name: "who asked later is told as well", File: "arbiter.go",
			Old: "e := &c.queue[i]; e.asked {", New: "e := &c.queue[i]; e.ask > 0 {"},
		{Name: "those that asked later are not asked for", File: "arbiter.go",
			Old: "			e.ask, e.asked = 0, false\n		}\n	}\n	c.question()\n", New: "			e.ask, e.asked = 0, false\n		}\n	}\n"},
		{Name: "a try that gives back its vote is forgotten", File: "arbiter.go",
			Old: "	e := c.lock\n", New: "	e := c.lock\n	e.ask = 0\n"},

		{Name: "a release is no handover", File: "requester.go",
			Old: "	c.site.Leave()\n", New: ""},
		{Name: "an entry makes nothing stale", File: "requester.go",
			Old: "	c.site.Enter()\n", New: ""},
		{Name: "arbiters do not know the holder of an earlier epoch", File: "maekawa.go",
			Old: "	if c.arbitrates(holder) {\n", New: "	if false {\n"},
		{Name: "dropped with the vote given", File: "maekawa.go",
			Old: "return c.lock.None() }", New: "return c.my.None() }"},
	})
}
