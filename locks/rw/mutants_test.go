package rw

import (
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

// Every rule of the algorithm, taken out or turned round. A line that can be
// changed without a test that fails is a line that nobody needs.
func TestMutantsAreFound(t *testing.T) {
	locktest.Mutants(t, slices.Concat(ofPermissions, ofCrossedAnswers, ofTheOrder, ofAsking, ofWithdrawing, ofGivingBack, ofLookingAgain, ofEpochs, ofDataAndTokens, ofQuestions, ofDropping))
}

var ofPermissions = []locktest.Mutant{
	{Name: "keeps auth when a writer gets it", File: "peer.go",
		Old: "		p.auth.Remove(q.rng)\n", New: "		if q.mode == locks.Read {\n			p.auth.Remove(q.rng)\n		}\n"},
	{Name: "keeps auth when a reader gets it back", File: "peer.go",
		Old: "		p.auth.Remove(q.rng)\n", New: "		if q.mode == locks.Write {\n			p.auth.Remove(q.rng)\n		}\n"},
	{Name: "forgets what it gives", File: "peer.go",
		Old: "		p.given.Insert(q.rng)\n", New: ""},
	{Name: "forgets what it gets back", File: "peer.go",
		Old: "		p.given.Remove(a.rng)\n", New: ""},
	{Name: "never asks again", File: "pump.go",
		Old: "	m.touch(q.rng)\n", New: "", Inside: true},
	{Name: "a reader asks nobody", File: "peer.go",
		Old: "return p.given.Overlaps(r)", New: "return false"},
	{Name: "a writer asks only who was given nothing", File: "peer.go",
		Old: "return !p.auth.Contains(r)", New: "return !p.auth.Overlaps(r)"},
	{Name: "answers in spite of a held read", File: "held.go",
		Old: "	return obstacle(h.reads, c)\n", New: "	if c.from != nil {\n		return nil\n	}\n	return obstacle(h.reads, c)\n"},
	{Name: "answers in spite of a held write", File: "held.go",
		Old: "if u := obstacle(h.writes, c); u != nil ||", New: "if u := obstacle(h.writes, c); u != nil && c.from == nil ||"},
}

var ofCrossedAnswers = []locktest.Mutant{
	{Name: "crossed answers count", File: "peer.go",
		Old: "if slices.Contains(open, c.tag) {", New: "if false {"},
	{Name: "answers that did not cross are void", File: "peer.go",
		Old: "if slices.Contains(open, c.tag) {", New: "if true {", Inside: true},
	{Name: "grants to readers do not cross", File: "peer.go",
		Old: "if a.mode == locks.Write && a.rng.Overlaps(q.rng) {", New: "if a.mode == locks.Write && q.mode == locks.Write && a.rng.Overlaps(q.rng) {"},
	{Name: "a reply lists only the writes that are open", File: "peer.go",
		Old: "if a.rng.Overlaps(r) {", New: "if a.mode == locks.Write && a.rng.Overlaps(r) {"},
	{Name: "a reply lists only what is not withdrawn", File: "peer.go",
		Old: "if a.rng.Overlaps(r) {", New: "if !a.withdrawn && a.rng.Overlaps(r) {"},
	{Name: "crossed permissions stay on the books", File: "peer.go",
		Old: "		p.given.Remove(a.rng)\n", New: "		if len(a.crossed) == 0 {\n			p.given.Remove(a.rng)\n		}\n", Inside: true},
	{Name: "every reply ends all crossings", File: "peer.go",
		Old: "return c.rng.Overlaps(a.rng) && !slices.Contains(open, c.tag)", New: "return c.rng.Overlaps(a.rng)"},
	{Name: "a reply ends crossings elsewhere", File: "peer.go",
		Old: "return c.rng.Overlaps(a.rng) && !slices.Contains(open, c.tag)", New: "return !slices.Contains(open, c.tag)"},
	{Name: "tags come again", File: "claim.go",
		Old: "	t.round++\n", New: "	t.round = 1\n"},
}

var ofTheOrder = []locktest.Mutant{
	{Name: "peers pass waiting tickets", File: "claims.go",
		Old: "	if u := search(cs.waiting.queue); u != nil || c.from != nil {", New: "	if c.from != nil {\n		return nil\n	}\n	if u := search(cs.waiting.queue); u != nil {"},
	{Name: "tickets pass what is owed", File: "claims.go",
		Old: "	return search(cs.owed)\n", New: "	return nil\n", Inside: true},
	{Name: "a try that ignores held tickets", File: "pump.go",
		Old: "	if t.try && m.held.hard(t) != nil {", New: "	if false {"},
	{Name: "tries are stamped among waits", File: "claim.go",
		Old: "	if a.try != b.try {", New: "	if false {"},
	{Name: "an overtake is a flag", File: "claim.go",
		Old: "if c := cmp.Compare(b.over, a.over); c != 0 {", New: "if c := cmp.Compare(min(b.over, 1), min(a.over, 1)); c != 0 {"},
	{Name: "an overtake is not told", File: "claim.go",
		Old: "n: t.stamp.N, over: t.over,", New: "n: t.stamp.N,"},
	{Name: "waits pass whoever waits for anybody", File: "claims.go",
		Old: "!cs.held.waitsFor(u, c)", New: "false"},
	{Name: "waits for whoever waits for it", File: "claims.go",
		Old: "!cs.held.waitsFor(u, c)", New: "true"},
	{Name: "a peer's request waits for whoever waits for its owner", File: "held.go",
		Old: "		return c.own.conflicts(u.mode, u.rng)\n", New: "		return false\n"},
	{Name: "the clock does not hear", File: "receive.go",
		Old: "	m.hear(max(msg.sn, msg.over))\n", New: ""},
	{Name: "an overtaker is not told of another", File: "receive.go",
		Old: "		m.send(p, &clock{q.tag, m.high}, out)\n", New: ""},
	{Name: "an overtaker that is told does nothing", File: "receive.go",
		Old: "		m.overtake(t)\n", New: ""},
	{Name: "a repeated request overtakes as well", File: "receive.go",
		Old: "!t.held && a.moved && a.over", New: "!t.held && a.over", Test: "TestStories"},
	{Name: "overtakes by itself without end", File: "receive.go",
		Old: "		t.bids--\n", New: "", Test: "TestOvertakesByItselfOnlySoOften"},
	{Name: "asking again leaves the earlier request", File: "pump.go",
		Old: "		again = p.withdraw(t.id) != nil || again\n", New: "", Inside: true},
	{Name: "an earlier request stays when it is asked again", File: "receive.go",
		Old: "		m.send(p, &reply{tag: old.tag}, out)\n", New: ""},
}

var ofAsking = []locktest.Mutant{
	{Name: "does not hear what the owner holds", File: "receive.go",
		Old: "		from: p, tag: msg.tag, own: msg.own,\n", New: "		from: p, tag: msg.tag,\n"},
	{Name: "leans on a later request", File: "peer.go",
		Old: "		t.compare(&a.rank) >= 0 && a.own", New: "		a.own"},
	{Name: "leans on a wider request", File: "peer.go",
		Old: "a.mode == t.mode && a.rng == t.rng &&", New: "a.mode == t.mode && a.rng.Contains(t.rng) &&"},
	{Name: "leans on a stronger request", File: "peer.go",
		Old: "a.mode == t.mode && a.rng == t.rng &&", New: "a.mode >= t.mode && a.rng == t.rng &&"},
	{Name: "leans on a withdrawn request", File: "peer.go",
		Old: "	return !a.try && !a.withdrawn &&", New: "	return !a.try &&"},
	{Name: "leans on a try", File: "peer.go",
		Old: "	return !a.try && !a.withdrawn &&", New: "	return !a.withdrawn &&"},
	{Name: "leans on a request that says less", File: "peer.go",
		Old: "t.compare(&a.rank) >= 0 && a.own.includes(own)", New: "t.compare(&a.rank) >= 0"},
	{Name: "a no denies other tries", File: "peer.go",
		Old: "		return a.id == t.id\n", New: "		return a.try && a.mode == t.mode && a.rng == t.rng\n"},
}

var ofWithdrawing = []locktest.Mutant{
	{Name: "a cancelled request leaves a ghost", File: "pump.go",
		Old: "			m.send(p, &cancel{a.tag()}, out)\n", New: ""},
	{Name: "a cancel is not answered", File: "receive.go",
		Old: "		m.send(p, &reply{tag: msg.tag}, out)\n", New: ""},
	{Name: "who leaned on a withdrawn request is not told", File: "pump.go",
		Old: "	if any {\n", New: "	if any && false {\n"},
	{Name: "who leaned on an earlier request is not told", File: "pump.go",
		Old: "	if again {\n", New: "	if again && false {\n", Inside: true},
}

var ofGivingBack = []locktest.Mutant{
	{Name: "expire takes what is held", File: "machine.go",
		Old: "	needed := m.held.written(func() {})\n", New: "	var needed locks.Ranges\n"},
	{Name: "expire takes what is asked for", File: "peer.go",
		Old: "			idle = idle.Sub(a.rng)\n", New: ""},
	{Name: "expire tells nobody", File: "machine.go",
		Old: "		m.send(p, &release{idle, m.last}, out)\n", New: "", Inside: true},
	{Name: "a release is not taken", File: "receive.go",
		Old: "	p.back(msg.ranges)\n", New: "", Inside: true},
}

var ofLookingAgain = []locktest.Mutant{
	{Name: "what was blocked is not looked at", File: "machine.go",
		Old: "		m.look(x)\n", New: ""},
	{Name: "tries do not look when something is held", File: "pump.go",
		Old: "		if u.conflict(t) {\n", New: "		if false {\n"},
	{Name: "an owner's tickets do not look when it holds more", File: "pump.go",
		Old: "	m.changes(t.owner)\n", New: ""},
	{Name: "an owner's tickets never look when it holds more or less", File: "pump.go",
		Old: "!m.lookChanged()", New: "true"},
	{Name: "a permission that comes is not looked at", File: "receive.go",
		Old: "	if p.gain(a, msg.open) {\n		out.Stale = true\n	}\n	m.touch(a.rng)\n", New: "	if p.gain(a, msg.open) {\n		out.Stale = true\n	}\n"},
	{Name: "what may not enter now never does", File: "pump.go",
		Old: "			m.barred = true\n", New: ""},
	{Name: "enters although it may not", File: "pump.go",
		Old: "		if !out.MayEnter {", New: "		if false {"},
}

var ofEpochs = []locktest.Mutant{
	{Name: "says nothing of what it writes", File: "restore.go",
		Old: "w := m.held.written(m.breathe)", New: "var w locks.Ranges"},
	{Name: "does not read what others write", File: "restore.go",
		Old: "given = writes[id]", New: "given = nil"},
	{Name: "keeps its requests over an epoch", File: "restore.go",
		Old: "	m.install(v)\n",
		New: "	old := m.known\n	m.install(v)\n	for _, p := range m.others() {\n		for _, o := range old {\n			if p.id == o.id {\n				p.asks = o.asks\n			}\n		}\n	}\n"},
	{Name: "a permission is what is held at the end, not what was announced", File: "restore.go",
		Old: "slices.Clone(writes[v.Self])", New: "slices.Clone(m.held.written(m.breathe))", Inside: true},
	{Name: "goes on between two epochs", File: "restore.go",
		Old: "	m.frozen = true\n	if len(m.tickets)", New: "	if len(m.tickets)"},
}

var ofDataAndTokens = []locktest.Mutant{
	{Name: "a reply does not hand over", File: "pump.go",
		Old: "		out.Handover = true\n", New: ""},
	{Name: "a release does not hand over", File: "machine.go",
		Old: "		out.Handover = true\n", New: ""},
	{Name: "a reply does not make stale", File: "peer.go",
		Old: "		stale = true\n		p.given.Remove", New: "		p.given.Remove"},
	{Name: "a release does not make stale", File: "receive.go",
		Old: "	out.Stale = true\n	p.back(", New: "	p.back("},
	{Name: "an epoch does not make stale", File: "restore.go",
		Old: "			out.Stale = true\n", New: ""},
	{Name: "every reply makes stale", File: "peer.go",
		Old: "	if p.given.Overlaps(a.rng) {\n", New: "	stale = true\n	if p.given.Overlaps(a.rng) {\n"},
	{Name: "tokens do not travel", File: "stamps.go",
		Old: "	t.last = max(t.last, x)\n", New: ""},
	{Name: "a reply has an old token", File: "pump.go",
		Old: "yes: true, token: m.last,", New: "yes: true, token: locks.TokenFloor(m.view.Epoch),"},
	{Name: "a release has an old token", File: "machine.go",
		Old: "&release{idle, m.last}", New: "&release{idle, locks.TokenFloor(m.view.Epoch)}"},
	{Name: "a new machine starts its tokens anew", File: "machine.go",
		Old: "&machine{tokens: tokens{c.Token}}", New: "&machine{}"},
	{Name: "an epoch does not raise tokens", File: "stamps.go",
		Old: "{ t.last = max(t.last, locks.TokenFloor(e)) }", New: "{}"},
}

var ofQuestions = []locktest.Mutant{
	{Name: "does not keep who is known in order", File: "peers.go",
		Old: "slices.Insert(ps.known, before, p)", New: "slices.Concat(ps.known, []*peer{p})"},
	{Name: "does not say which readers block", File: "query.go",
		Old: "add) && t.mode == locks.Write {", New: "add) && false {"},
	{Name: "does not say whom it waits for", File: "query.go",
		Old: "		if p.lacks(t.mode, t.rng) && p.served(t, own) {", New: "		if false && p.served(t, own) {"},
	{Name: "suspects only those that it has asked", File: "peers.go",
		Old: "		if p.lacks(mode, r) {", New: "		if p.lacks(mode, r) && len(p.asks) > 0 {"},
}

var ofDropping = []locktest.Mutant{
	{Name: "dropped with something given", File: "query.go",
		Old: "!p.given.Empty() || ", New: ""},
	{Name: "dropped with something kept", File: "query.go",
		Old: "!p.auth.Empty() || ", New: ""},
	{Name: "dropped with requests open", File: "query.go",
		Old: " || len(p.asks) > 0", New: ""},
}
