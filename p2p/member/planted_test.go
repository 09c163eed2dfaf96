package member_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mutant"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// places are those of the package that a bug is in, if it is planted: b.bug is
// the name of the bug of a machine. All are in one build.
var places = []mutant.Edit{
	{File: "base.go",
		Old: "	p   Params\n",
		New: "	p   Params\n	bug string\n"},
	{File: "base.go",
		Old: "func (b *base) awake(from int64) int64 {\n",
		New: "func (b *base) awake(from int64) int64 {\n	if b.bug == \"sleepIsSilence\" {\n		return b.now - max(from, b.lastTick)\n	}\n"},
	{File: "memory.go",
		Old: "e > to.Epoch {",
		New: "e > to.Epoch && s.bug != \"forgetEpoch\" {"},
	{File: "welcomes.go",
		Old: "func (w *welcomes) all() bool {\n",
		New: "func (w *welcomes) all() bool {\n	if w.bug == \"admitPartial\" {\n		return w.count() > 0\n	}\n"},
	{File: "lease.go",
		Old: "	until := l.scans.at + l.p.LookTenure\n	for _, y := range order {\n		if t := y.ten + l.p.Tenure; t < until {\n",
		New: "	until := l.scans.at + l.p.LookTenure\n	if l.bug == \"noLookTenure\" {\n		until = never\n		if len(order) == 0 {\n			until = maxTime\n		}\n	}\n	for i, y := range order {\n		if t := y.ten + l.p.Tenure; i == 0 && l.bug == \"noLookTenure\" || t < until {\n"},
	{File: "joining.go",
		Old: "		w.add(j.record())\n		j.terms.bring(w)\n		j.proposer.propose(w)\n	}\n}\n\n// answered",
		New: "		if j.bug == \"challengerAlone\" {\n			w.Members = nil\n		}\n		w.add(j.record())\n		j.terms.bring(w)\n		j.proposer.propose(w)\n	}\n}\n\n// answered"},
	{File: "silence.go",
		Old: "	lim := s.p.Tenure + s.p.Delta\n	by =",
		New: "	lim := s.p.Tenure + s.p.Delta\n	if s.bug == \"noDelta\" {\n		lim = s.p.Tenure\n	}\n	by ="},
	{File: "silence.go",
		Old: "	if y.heard {\n",
		New: "	if y.heard || s.bug == \"dropUnproved\" {\n"},
	{File: "identity.go",
		Old: "func (i *identity) draw(v *View) {\n",
		New: "func (i *identity) draw(v *View) {\n	if i.bug == \"sameIncarnation\" && i.me.Inc != 0 {\n		return\n	}\n"},
	{File: "identity.go",
		Old: "func (i *identity) isFormer(y *Member) bool {\n",
		New: "func (i *identity) isFormer(y *Member) bool {\n	if i.bug == \"cloneProof\" {\n		return true\n	}\n"},
	{File: "heartbeats.go",
		Old: "			y.refuse, y.refuseWhy = x.refuse, x.refuseWhy\n",
		New: "			y.refuse, y.refuseWhy = x.refuse, x.refuseWhy\n			if h.bug == \"keepTenure\" {\n				y.ten = x.ten\n			}\n"},
	{File: "heartbeats.go",
		Old: "h.now-y.syncAt >= h.p.Heartbeat {",
		New: "h.now-y.syncAt >= h.p.Heartbeat && h.bug != \"syncOnce\" {"},
	{File: "heartbeats.go",
		Old: "		y.ten = hb.Prom\n",
		New: "		y.ten = hb.Prom\n		if h.bug == \"tenureFromReceipt\" {\n			y.ten = h.now\n		}\n"},
	{File: "heartbeats.go",
		Old: "	if first {\n",
		New: "	if first && (h.bug != \"syncOnce\" || y.syncAt == never) {\n"},
	{File: "heartbeats.go",
		Old: "	if h.proposer.leavesOut(y.Node) {\n		return false\n	}\n",
		New: "	if h.proposer.leavesOut(y.Node) && h.bug != \"promiseWhileProposing\" {\n		return false\n	}\n	if h.bug == \"promiseOneWay\" {\n		return !y.refuse && !h.fences.has(y.Node)\n	}\n"},
	{File: "heartbeats.go",
		Old: "		if !y.got {\n",
		New: "		if !y.got && h.bug != \"grantWithoutSync\" {\n"},
	{File: "heartbeats.go",
		Old: "		if h.view.IsRevoked(y.Peer) {\n",
		New: "		if h.view.IsRevoked(y.Peer) && h.bug != \"promiseWhileProposing\" {\n"},
	{File: "sponsor.go",
		Old: "	clear(s.joiners)\n",
		New: "	if s.bug != \"keepJoiners\" {\n		clear(s.joiners)\n	}\n"},
	{File: "proofs.go",
		Old: "		return \"it was restarted\"\n	}\n",
		New: "		return \"it was restarted\"\n	}\n	if p.bug == \"replaceAnybody\" && p.state == StateOut && y.Peer != p.me.Peer {\n		return \"a planted bug\"\n	}\n"},
	{File: "scans.go",
		Old: "		s.at = max(s.at, l.Began)\n",
		New: "		at := l.Began\n		if s.bug == \"lookAtReply\" {\n			at = s.now\n		}\n		s.at = max(s.at, at)\n"},
	{File: "succession.go",
		Old: "	if !direct {\n",
		New: "	if !direct && s.bug != \"succeedAnyway\" {\n"},
	{File: "succession.go",
		Old: " && s.former(w).IsZero() {\n",
		New: " && s.former(w).IsZero() && s.bug != \"succeedAnyway\" {\n"},
	{File: "proofs.go",
		Old: "	i := p.view.Index(n)\n",
		New: "	if p.bug == \"heirIsProof\" && p.cfg.Heir != nil && p.cfg.Heir.has(n) {\n		return \"a planted bug\"\n	}\n	i := p.view.Index(n)\n"},
	{File: "succession.go",
		Old: "		if n := v.Members[i].Node; s.heir.has(n) {\n",
		New: "		if n := v.Members[i].Node; s.heir.has(n) && (n == s.heir.Of || s.bug != \"forgetClaims\") {\n"},
	{File: "succession.go",
		Old: "	if s.over || !w.Has(s.me) || s.former(s.view).IsZero() {\n",
		New: "	if s.bug == \"claimWhenLost\" {\n		return append(slices.Clone(s.claimed), s.me)\n	}\n	if s.over || !w.Has(s.me) || s.former(s.view).IsZero() {\n"},
	{File: "step.go",
		Old: "	if e.Epoch != m.view.Epoch {\n",
		New: "	if e.Epoch != m.view.Epoch && !(m.bug == \"answerOtherEpoch\" && m.heartbeats.peers[e.From] != nil) {\n"},
	{File: "step.go",
		Old: "		m.leaving.begin()\n",
		New: "		m.leaving.begin()\n		if m.bug == \"leaveForgets\" {\n			m.proposer.forget()\n		}\n"},
	{File: "step.go",
		Old: "		m.proposer.linked(op, in.Err)\n",
		New: "		open := m.proposer.open\n		m.proposer.linked(op, in.Err)\n		if m.bug == \"believeLink\" && in.Err == nil && open != nil && open.view.same(op.View) {\n			m.learn(open.view, true)\n		}\n"},
	{File: "viewproposal.go",
		Old: "		o.stage = stageUnknown\n	}\n",
		New: "		o.stage = stageUnknown\n	}\n	if p.bug == \"forgetUnknown\" && err != nil {\n		p.open = nil\n	}\n"},
	{File: "twins.go",
		Old: "	if !t.cfg.Bury.IsZero() {\n",
		New: "	if t.bug == \"noTwins\" || !t.cfg.Bury.IsZero() {\n"},
	{File: "twins.go",
		Old: "t.state == StateOut && t.cfg.Bury",
		New: "t.state == StateOut && t.bug != \"noTwins\" && t.cfg.Bury"},
	{File: "terms.go",
		Old: "	case !v.agrees(t.fileIDFor(v)) && !t.alone(v):\n",
		New: "	case !v.agrees(t.fileIDFor(v)) && !t.alone(v) && t.bug != \"anyFileID\":\n"},
	{File: "terms.go",
		Old: "	case !v.agrees(h.FileID):\n",
		New: "	case !v.agrees(h.FileID) && t.bug != \"anyFileID\":\n"},
	{File: "position.go",
		Old: "p.view.Unsure && ",
		New: "p.view.Unsure && p.bug != \"noHolding\" && "},
	{File: "viewchange.go",
		Old: "	m.engine.freeze(w)\n",
		New: "	m.engine.freeze(w)\n	if m.bug == \"speakBeforeFreeze\" {\n		for i := range w.Members {\n			if y := m.heartbeats.peers[w.Members[i].Node]; y != nil {\n				m.out.Send = append(m.out.Send, Envelope{m.me, y.Node, w.Epoch, HB{T: m.now, Prom: y.prom}})\n			}\n		}\n	}\n"},
}

// plant is a file of that build.
const plant = `package member

func init() { Plant = func(m *Machine, bug string) { m.bug = bug } }
`

// needsBugs is for tests of the build with planted bugs.
func needsBugs(t *testing.T) {
	t.Helper()
	if member.Plant == nil {
		t.Skip("TestWithPlantedBugs runs it")
	}
}

// TestWithPlantedBugs builds the package with all bugs in their places, and runs
// the tests that must find them, each of which plants one at a time.
func TestWithPlantedBugs(t *testing.T) {
	if member.Plant != nil {
		t.Skip("this is that build")
	}
	overlay := mutant.Overlay(t, places, map[string]string{"plant_test.go": plant})
	if long.Race {
		t.Skip("runs without the race detector, which has nothing to find there")
	}
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool to build the package with: ", err)
	}
	tests := []string{"TestPlantedBugsAreFound", "TestEpochsGoBackIfNobodyKeepsThem", "TestCopyThatIsNotRefused", "TestClonesThatProveSomething"}
	args := []string{"test", "-vet=off", "-count=1", "-v", "-overlay=" + overlay, "-run=^(" + strings.Join(tests, "|") + ")$"}
	if testing.Short() {
		args = append(args, "-short")
	}
	cmd := exec.Command(gotool, append(args, ".")...)
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s did not find what it must:\n%s", name, out)
		}
	}
}
