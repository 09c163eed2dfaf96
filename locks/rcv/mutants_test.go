package rcv

import (
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/mutant"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// What the paper gets wrong, and each rule taken out or turned round.
func TestMutantsAreFound(t *testing.T) {
	locktest.Mutants(t, append(slices.Clone(ofThePaper), ofTheRules...))
}

// ofThePaper are what the paper gets wrong.
var ofThePaper = []locktest.Mutant{
	// Lines 25 to 32: an IM is not exchanged, and whether the receiver has
	// finished is guessed from its NONL.
	{Name: "an IM as in the paper", Paper: true, File: "receive.go",
		Old: "		c.info.merge(&msg.info)\n		c.inform(", New: "		c.inform(",
		Also: []mutant.Edit{{File: "rcv.go", Old: "	if before != c.my {\n", New: "	if c.info.position(before) == 0 {\n"}}},
	// Exchange, lines 13 to 22: a row is copied before the finished
	// requests that other rows tell of have been taken out of it.
	{Name: "a ghost stays in a log that is copied", Paper: true, File: "info.go",
		Old: "			w.log, w.version = o.log, o.version\n		}\n	}\n	s.purge()\n", New: "			w.log, w.version = o.log, o.version\n		}\n		if n == 0 {\n			s.purge()\n		}\n	}\n"},
	// Line 19 and 26: a request is known by its node only.
	{Name: "a request is known by its node", File: "rcv.go",
		Old: "	if before != c.my {\n", New: "	if c.my.None() {\n", Test: "TestSimulateEager"},
}

// ofTheRules are rules that are taken out or turned round.
var ofTheRules = []locktest.Mutant{
	{Name: "orders by the votes that are known", File: "info.go",
		Old: "return best.Request, lead > unknown ||", New: "return best.Request, lead > 0 ||"},
	{Name: "orders although the others could draw level", File: "info.go",
		Old: "return best.Request, lead > unknown ||", New: "return best.Request, lead >= unknown ||"},
	{Name: "equal votes decide nothing", File: "info.go",
		Old: "lead > unknown || lead == unknown && byNode(best.Request, second.Request) < 0", New: "lead > unknown"},
	{Name: "a second that nobody has voted for is of no node", File: "info.go",
		Old: "tally{Request: exclusive.Request{Node: 1}}", New: "tally{Request: exclusive.Request{Node: 1 << 20}}"},
	{Name: "votes for what has a place", File: "receive.go",
		Old: "		if !c.info.knows(c.self(), msg.Request) {\n", New: "		if true {\n", Inside: true},
	{Name: "does not vote for others", File: "receive.go",
		Old: "			c.info.vote(c.self(), msg.Request)\n", New: ""},
	{Name: "the shorter order wins", File: "info.go",
		Old: "	if m.end() > s.end() {\n", New: "	if m.end() < s.end() {\n"},
	{Name: "an older log wins", File: "info.go",
		Old: "		if o.version > w.version {\n", New: "		if o.version < w.version {\n"},
	{Name: "what is over comes back", File: "info.go",
		Old: "		s.trim(old)\n	} else", New: "		_ = old\n	} else", Inside: true},

	{Name: "everyone who has a place enters", File: "rcv.go",
		Old: "	case p == c.info.start+1:\n", New: "	case p > 0:\n"},
	{Name: "nobody is told who is next", File: "rcv.go",
		Old: "	c.next = next\n", New: ""},
	{Name: "who is next is given the lock at once", File: "rcv.go",
		Old: "	if before != c.my {\n", New: "	if true {\n"},
	{Name: "an EM that comes late is taken", File: "rcv.go",
		Old: "	if c.in || r != c.my {\n", New: "	if c.in || c.my.None() {\n", Test: "TestSimulateTwice"},
	{Name: "the lock is not passed on", File: "rcv.go",
		Old: "	if !next.None() {\n		c.enter(next)\n", New: "	if false {\n		c.enter(next)\n"},
	{Name: "a withdrawn request is gone", File: "rcv.go",
		Old: "	c.zombie = true\n", New: "	c.my = exclusive.Request{}\n"},
	{Name: "a withdrawn request is not taken up again", File: "rcv.go",
		Old: "	if c.zombie {\n", New: "	if false {\n"},

	{Name: "forgets alone", File: "forget.go",
		Old: "	case c.site.N() == 1:\n", New: "	case true:\n"},
	{Name: "forgets although someone is busy", File: "forget.go",
		Old: "			k.abandoned = true\n", New: ""},
	{Name: "seals with a request under way", File: "forget.go",
		Old: "		if c.my.None() && len(c.probes) == 0 {\n", New: "		if len(c.probes) == 0 {\n"},
	{Name: "seals with a probe under way", File: "forget.go",
		Old: "		if c.my.None() && len(c.probes) == 0 {\n", New: "		if c.my.None() {\n"},
	{Name: "begins to forget with a probe under way", File: "forget.go",
		Old: " || len(c.probes) > 0 || c.opt", New: " || c.opt"},
	{Name: "goes on to forget while the lock is used", File: "rcv.go",
		Old: "func (c *core) Used() {\n	c.abandon()\n", New: "func (c *core) Used() {\n"},
	{Name: "goes on to forget after the lock is gone", File: "rcv.go",
		Old: "func (c *core) Release() {\n	c.abandon()\n", New: "func (c *core) Release() {\n", Inside: true},
	{Name: "requests while it is sealed", File: "rcv.go",
		Old: "	if c.sealed != nil {\n		c.deferred", New: "	if false {\n		c.deferred"},
	{Name: "a request that comes while it is sealed waits for the end", File: "rcv.go",
		Old: "		c.site.Send(c.sealed.by, &closeMsg{verbHurry, c.sealed.id})\n", New: "", Test: "TestStories"},
	{Name: "handles while it is sealed", File: "receive.go",
		Old: "c.sealed != nil && (!ok || m.verb == verbClose) {", New: "c.sealed != nil && ok && m.verb == verbClose {"},
	{Name: "forgets what it parked", File: "forget.go",
		Old: "	c.sealed = nil\n	for", New: "	c.sealed, c.parked = nil, nil\n	for"},
	{Name: "forgets what it deferred", File: "forget.go",
		Old: "		c.Request(d.SN, d.ask)\n", New: ""},
	{Name: "nobody is let go", File: "forget.go",
		Old: "		verb = verbReopen\n", New: "		return\n"},
	{Name: "who answers late is not let go", File: "forget.go",
		Old: "	case verbSealed, verbBusy:\n		k := c.closing\n", New: "	case verbSealed, verbBusy:\n		k := c.closing\n		if k.abandoned && msg.verb == verbSealed {\n			k.missing = slices.DeleteFunc(k.missing, func(n int) bool { return n == from })\n			if len(k.missing) == 0 {\n				c.closing = nil\n			}\n			return\n		}\n"},

	{Name: "those before a try are not asked", File: "rcv.go",
		Old: "			c.site.Send(r.Node, &question{before: r, inquiry: q})\n", New: ""},
	{Name: "only the one before a try is asked", File: "rcv.go",
		Old: "	for i := c.info.start + 1; i < p; i++ {\n", New: "	for i := max(c.info.start+1, p-1); i < p; i++ {\n"},
	{Name: "a try that comes later asks nobody", File: "rcv.go",
		Old: "		c.roam(&roaming{inquiry: q, unvisited: c.others(), probe: true})\n", New: "",
		Also: []mutant.Edit{{File: "rcv.go", Old: "		c.probes = append(c.probes, ask)\n", New: ""}}},
	{Name: "who asked is not told", File: "rcv.go",
		Old: "		c.tell(q)\n	}\n	c.asks = nil\n", New: "		_ = q\n	}\n	c.asks = nil\n"},
	{Name: "a question while the lock is used has no answer", File: "rcv.go",
		Old: "	case c.in && c.site.Used():\n		c.tell(q)\n", New: ""},

	{Name: "a release is no handover", File: "rcv.go",
		Old: "	c.site.Leave()\n", New: ""},
	{Name: "to forget is no handover", File: "forget.go",
		Old: "	c.site.Leave()\n", New: ""},
	{Name: "an entry makes nothing stale", File: "rcv.go",
		Old: "	c.site.Enter()\n", New: ""},
	{Name: "the holder of an earlier epoch has no place", File: "rcv.go",
		Old: "	c.info.list = []exclusive.Request{h}\n", New: "	if holder == c.self() {\n		c.info.list = []exclusive.Request{h}\n	}\n"},
	{Name: "dropped with logs", File: "rcv.go",
		Old: " && c.info.fresh()\n", New: "\n"},
}
