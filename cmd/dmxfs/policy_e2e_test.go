package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/journalview"
)

// A daemon that asks for other rules is told what is different. Then the rules
// are changed under a lock that is held.
func TestPolicyOfTheCluster(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	c := newExclusiveCluster(t, 3)
	p := &policyTest{testCluster: c, a: c.mounts[0], b: c.mounts[1], file: filepath.Join(c.dir, "new.toml")}
	p.isShown()
	p.keepsOut()
	p.joins()
	p.changesUnderLocks()
	p.keepsAcrossMounts()
}

// policyTest is TestPolicyOfTheCluster.
type policyTest struct {
	*testCluster
	a, b  *testMount
	plain *testMount // its options ask for no rules
	file  string     // of the policy to set
}

// shown is the policy of the cluster, as a host knows it.
func (p *policyTest) shown(m *testMount) admin.Policy {
	p.t.Helper()
	var shown admin.Policy
	if err := m.getJSON(&shown, "policy", "show"); err != nil {
		p.t.Fatalf("%s: %v", m.dir, err)
	}
	return shown
}

func (p *policyTest) isShown() {
	if s := p.shown(p.b); len(s.Rules) != len(exclusiveAlgorithms) || s.Rules[0].Path != exclusiveAlgorithms[0]+"/**" || !s.Rules[0].Exclusive || s.Default.Algorithm != "rw" {
		p.t.Errorf("the policy: %+v", s)
	}
	var of admin.PolicyCheck
	if err := p.b.getJSON(&of, "policy", "check", p.b.path("rcv/x")); err != nil || of.Algorithm != "rcv" || of.File != "rcv/x" || of.Rule.Rule == 0 || of.Yield != "never" {
		p.t.Errorf("%+v %v", of, err)
	}
}

// keepsOut: other rules are refused, and who asks for them is told.
func (p *policyTest) keepsOut() {
	err := p.add("--exclusive", "rcv/**=ring", "--exclusive", "new/**=rcv", "--no-restart").tryMount()
	if err == nil {
		p.t.Fatal("a daemon with other rules was let in")
	}
	for _, want := range []string{"the cluster has another policy", "here: rcv/**=ring; in the cluster: rcv/**=rcv", "only here: new/**=rcv", "only in the cluster: ring/**=ring"} {
		if !strings.Contains(err.Error(), want) {
			p.t.Errorf("it was told %v, without %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "exit status 1:") {
		p.t.Errorf("the exit code: %v", err)
	}
}

// joins: who asks for nothing takes the cluster's.
func (p *policyTest) joins() {
	p.plain = p.add()
	p.plain.mount()
	p.awaitMembers(4)
	if s := p.shown(p.plain); len(s.Rules) != len(exclusiveAlgorithms) {
		p.t.Errorf("%+v", s)
	}
}

// changesUnderLocks sets other rules while two readers hold what will be
// exclusive, one writer what was, and two processes of one host wait for an open
// that they would share.
func (p *policyTest) changesUnderLocks() {
	a, b := p.a, p.b
	write(p.t, a.path("rw/f"), "")
	readers := []*proc{a.start("flock -s rw/f sleep 100"), b.start("flock -s rw/f sleep 100")}
	a.held("rw/f", 2)
	writer := b.start("flock rcv/f sleep 100")
	a.held("rcv/f", 1)
	waits := a.start("flock rcv/f echo mine")
	a.blocked("rcv/f", 1)
	opened := b.start("exec 3>rw/g; sleep 100")
	a.held("rw/g", 1)
	openers := []*proc{a.start("exec 3<rw/g; sleep 100"), a.start("exec 3<rw/g; sleep 100")}
	a.blocked("rw/g", 2)

	p.change()
	a.held("rw/f", 2)
	a.held("rcv/f", 1)
	if waits.ended() || writer.ended() || readers[0].ended() || readers[1].ended() {
		p.t.Fatal("a lock or a wait ended with the change")
	}
	p.readersEnd(readers)
	writer.signal(unix.SIGKILL)
	p.says(waits, "mine\n")
	opened.signal(unix.SIGKILL)
	p.oneOpens(openers)
	await(p.t, "the journal tells of the grants", func() bool {
		rows := p.plain.journal("--path", "rw/f", "--event", "granted")
		return len(rows) > 0 && slices.ContainsFunc(rows, func(r journalview.Row) bool { return r.Class == "flock" && r.Algorithm == "ring" })
	})
}

// change sets the rules; every host has them, and notes it in its journal.
func (p *policyTest) change() {
	write(p.t, p.file, "[[rule]]\npath = 'rw/**'\nalgorithm = 'ring'\n[[rule]]\npath = 'rcv/**'\nalgorithm = 'rw'\nwait = '1h'\n")
	before, _ := p.a.status()
	if out := p.run("policy", "set", p.file, p.a.dir); !strings.Contains(out, "rw/**") {
		p.t.Errorf("policy set says\n%s", out)
	}
	for _, m := range []*testMount{p.a, p.b, p.mounts[2], p.plain} {
		if s := p.shown(m); len(s.Rules) != 2 || s.Rules[0].Algorithm != "ring" || s.Epoch <= before.Epoch {
			p.t.Errorf("%s: %+v", m.dir, s)
		}
		if !slices.ContainsFunc(m.journal("--event", "note"), func(r journalview.Row) bool {
			return strings.Contains(r.Reason, "the rules have changed") && strings.Contains(r.Reason, "only now: rw/**=ring")
		}) {
			p.t.Errorf("%s: the journal says nothing of the change", m.dir)
		}
	}
}

// readersEnd: what two readers held together is for one at a time when both have
// gone.
func (p *policyTest) readersEnd(readers []*proc) {
	if out, code := p.plain.sh("flock -n -s rw/f true"); code != 1 {
		p.t.Errorf("a third reader of what is exclusive now: %d %s", code, out)
	}
	third := p.plain.start("flock -s rw/f echo third")
	p.plain.blocked("rw/f", 1)
	readers[0].signal(unix.SIGKILL)
	p.a.held("rw/f", 1)
	if third.ended() {
		p.t.Fatal("two holders of what is exclusive now")
	}
	readers[1].signal(unix.SIGKILL)
	p.says(third, "third\n")
}

// oneOpens: of two processes of one host that open an exclusive file, one has it.
func (p *policyTest) oneOpens(openers []*proc) {
	await(p.t, "one of two processes has the file open", func() bool { return p.a.count("rw/g", "held") == 1 && p.a.count("rw/g", "waiting") == 1 })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); waitALittle() {
		if n := p.a.count("rw/g", "held"); n != 1 {
			p.t.Fatalf("%d processes have an exclusive file open", n)
		}
	}
	for _, o := range openers {
		o.signal(unix.SIGKILL)
	}
}

// says waits for a process that must succeed.
func (p *policyTest) says(o *proc, want string) {
	p.t.Helper()
	if out, code := o.wait(); code != 0 || out != want {
		p.t.Errorf("%d %q", code, out)
	}
}

// keepsAcrossMounts: options that ask for the old rules keep nobody out, and
// change nothing. Without rules all is as by default.
func (p *policyTest) keepsAcrossMounts() {
	p.run("unmount", p.b.dir)
	p.awaitMembers(3)
	p.b.mount()
	p.awaitMembers(4)
	if s := p.shown(p.b); len(s.Rules) != 2 {
		p.t.Errorf("%+v", s)
	}
	write(p.t, p.file, "# none\n")
	p.run("policy", "set", p.file, p.a.dir)
	if s := p.shown(p.b); len(s.Rules) != 0 || s.Hash != "" {
		p.t.Errorf("%+v", s)
	}
}
