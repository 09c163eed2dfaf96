package ring

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/mutant"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// The paper to the letter, and each rule taken out or turned round.
func TestMutantsAreFound(t *testing.T) {
	locktest.Mutants(t, []locktest.Mutant{
		// Rule 2, first bullet: "it replaces the sequence number by
		// HSeqNumSeen", for which a node must know its token by its node alone.
		{Name: "rule 2 of the paper", Paper: true, File: "ring.go",
			Old: "	case !c.before(msg.Request):\n", New: "	case !c.before(msg.Request):\n		if c.my.None() {\n			m := *msg\n			m.SN = c.high\n			msg = &m\n		}\n",
			Also: []mutant.Edit{{File: "ring.go",
				Old: "		if msg.Request == c.my && !c.in {\n			c.enter()\n", New: "		if !c.my.None() && !c.in {\n			c.enter()\n"}}},
		{Name: "any token of this node is the one", File: "ring.go",
			Old: "		if msg.Request == c.my && !c.in {\n			c.enter()\n", New: "		if !c.my.None() && !c.in {\n			c.enter()\n"},
		// Rule 4, of a token that comes again: "if it is not found, the token
		// is added in the request queue".
		{Name: "rule 4 of the paper", File: "ring.go",
			Old: "!(c.before(msg.Request) && c.asked(msg.inquiry)) {\n			c.next(msg)\n", New: "!(c.before(msg.Request) && c.asked(msg.inquiry)) {\n			c.queue = append(c.queue, msg.Request)\n			c.next(msg)\n"},

		{Name: "passes a token while it has the lock", File: "ring.go",
			Old: "return c.in || !c.my.None()", New: "return !c.in && !c.my.None()"},
		{Name: "passes every token while it waits", File: "ring.go",
			Old: "&& c.my.Precedes(r) }", New: "&& false }"},
		{Name: "holds every token while it waits", File: "ring.go",
			Old: "&& c.my.Precedes(r) }", New: "}"},
		{Name: "forgets the tokens that it holds", File: "ring.go",
			Old: "	for _, r := range c.queue {\n		c.next(", New: "	for _, r := range c.queue[:0] {\n		c.next("},
		{Name: "a token that comes twice is held twice", File: "ring.go",
			Old: "; !found {\n			c.queue", New: "; !found || true {\n			c.queue", Inside: true},
		{Name: "stamps are not heard", File: "ring.go",
			Old: "{ c.high = max(c.high, r.SN) }", New: "{}"},
		{Name: "a new machine starts its stamps anew", File: "ring.go",
			Old: "exclusive.Core { return &core{site: s, high: s.Clock()} }", New: "exclusive.Core { return &core{site: s} }"},
		{Name: "clocks are not heard", File: "../exclusive/machine.go",
			Old: "	m.site.clock = max(was, w.clock)\n", New: ""},
		{Name: "a question ends at who holds the token", File: "ring.go",
			Old: "			c.next(&question{msg.inquiry})\n", New: ""},
		{Name: "a question ends at who waits", File: "ring.go",
			Old: "	c.asks[i].ask = max(c.asks[i].ask, q.ask)\n	return false\n", New: "	c.asks[i].ask = max(c.asks[i].ask, q.ask)\n	return true\n"},
		{Name: "who asked is not told", File: "ring.go",
			Old: "		c.tell(q)\n	}\n	c.asks = nil\n", New: "		_ = q\n	}\n	c.asks = nil\n"},
		{Name: "a later question counts as the earlier one", File: "ring.go",
			Old: "	c.asks[i].ask = max(c.asks[i].ask, q.ask)\n", New: ""},
		{Name: "an answer to an earlier request counts", File: "ring.go",
			Old: "		if msg.Request == c.my && !c.in {\n			c.site.Deny", New: "		if !c.in {\n			c.site.Deny", Inside: true},
		{Name: "a release is no handover", File: "ring.go",
			Old: "	c.site.Leave()\n", New: ""},
		{Name: "an entry makes nothing stale", File: "ring.go",
			Old: "	c.site.Enter()\n", New: ""},
		{Name: "keeps what it holds over an epoch", File: "ring.go",
			Old: "	*c = core{site: c.site, high: c.site.Clock()}\n", New: "	*c = core{site: c.site, high: c.site.Clock(), queue: c.queue}\n", Inside: true},
		{Name: "a holder does not have the lock in the new epoch", File: "ring.go",
			Old: "	if holder == c.site.Self() {\n", New: "	if false {\n"},
		{Name: "dropped with the lock", File: "ring.go",
			Old: "return c.my.None() && len(c.queue) == 0", New: "return true"},
	})
}
