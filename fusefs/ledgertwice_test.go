package fusefs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/shm"
)

// goOnAndDie starts a server that is killed when its own ledger has begun to count.
func (k *keptMount) goOnAndDie() {
	k.t.Helper()
	k.conf.Kept.Dies = true
	err := k.goOn()
	k.conf.Kept.Dies = false
	if err == nil {
		k.t.Fatal("the server lives")
	}
	x := k.announced()
	if want := k.next.Generation + uint64(len(k.tried)) + 1; x.Generation != want {
		k.t.Fatalf("the server that was killed is of generation %d, want %d", x.Generation, want)
	}
	k.tried = append(k.tried, x)
}

// announced is what the last server has left, or will.
func (k *keptMount) announced() (x KeptState) {
	k.t.Helper()
	b, err := os.ReadFile(k.conf.Kept.Locks + ".kept")
	must(k.t, err)
	must(k.t, json.Unmarshal(b, &x))
	return x
}

// closeWhenDead closes the connection to a child that does nothing any more: it need not come to its
// end before the next one has answered a WRITE, for whose page a notification waits.
func (m *testMount) closeWhenDead(c *keptConfig, over <-chan struct{}) {
	dead := func() bool {
		var x KeptState
		b, err := os.ReadFile(c.Locks + ".kept")
		if err != nil || json.Unmarshal(b, &x) != nil || x.Generation != c.Generation {
			return false
		}
		r, err := openedRequests(x)
		if err != nil {
			return false
		}
		defer r.Close()
		ended, err := r.Ended(x.PID)
		return err == nil && ended
	}
	for !dead() {
		select {
		case <-over:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	m.Close()
}

// goOnUntil starts a server that serves, and kills itself where x says, if it comes to that: else
// it does so later. It returns what has the answer of p, if that comes meanwhile.
func (k *keptMount) goOnUntil(x Crash, p *testProgram) (answered chan string, dead bool) {
	k.t.Helper()
	c := k.conf
	c.Kept.After = append([]KeptState{k.next}, k.tried...)
	c.Kept.Generation = k.next.Generation + uint64(len(c.Kept.After))
	c.Kept.Crash, c.lifeline = x, k.lifeline
	m, err := startChild(k.t, c, nil)
	if k.next, k.tried = k.announced(), nil; k.next.Generation != c.Kept.Generation {
		k.t.Fatalf("the server has not begun: %v", err)
	}
	if err == nil {
		k.testMount = m
	}
	answered = make(chan string, 1)
	go func() { answered <- p.answer() }()
	await(k.t, "it answers or is dead", func() bool {
		r, err := openedRequests(k.next)
		must(k.t, err)
		defer r.Close()
		dead, err = r.Ended(k.next.PID)
		must(k.t, err)
		return dead || len(answered) > 0
	})
	return answered, dead
}

// Servers are killed in a call, and when they have gone on with it. What the last one tells the
// program, and does, is what the second one would have, had it lived.
func TestKilledAgainAndAnotherHostIsAsked(t *testing.T) {
	t.Parallel()
	for i, c := range betweenCases {
		if c.told != "" {
			c.want, c.left = c.told, c.toldLeft
		}
		for k, where := range []string{atTaken, atAsked, atBegun, atCalled, atMade, atDone} {
			if (i+k)%6 != 0 && !tests.Tests() {
				continue // a moment of each case
			}
			t.Run(fmt.Sprintf("%d %s %s", i, strings.Fields(c.call)[0], where), func(t *testing.T) {
				t.Parallel()
				other, err := recent.Create()
				must(t, err)
				t.Cleanup(func() { other.Close() })
				m := mountKept(t, func(c *childConfig) { c.Rule = &Rule{} })
				m.conf.Kept.Alone, m.conf.Kept.PID, m.conf.Kept.Other = false, os.Getpid(), other.FD()
				m.again = &Crash{Op: c.op, Where: where}
				between(t, m, startProgram(t, m.dir, nil), &c, other)
			})
		}
	}
}

// The same, and another host does something before the second one goes on, or afterwards. It may be
// killed itself, and not know what it has done.
func TestKilledAgainAndAnotherHostDoesMore(t *testing.T) {
	t.Parallel()
	maybe := func(k recent.Kind) func(*testing.T, *recent.Memory, string) {
		return func(t *testing.T, other *recent.Memory, name string) { notes(t, other, name, k, recent.Unknown, nil) }
	}
	does := func(k recent.Kind, how func(*testing.T, string)) func(*testing.T, *recent.Memory, string) {
		return func(t *testing.T, other *recent.Memory, name string) { notes(t, other, name, k, recent.Changed, how) }
	}
	for _, x := range []struct {
		op            uint32
		before, call  string
		where         string
		first         func(*testing.T, *recent.Memory, string)
		again         string
		then          func(*testing.T, *recent.Memory, string)
		want, content string
	}{
		{9, "", "mkdir n 0700", atBegun, maybe(recent.Gains), atCalled, nil, "ok", ""},
		{9, "", "mkdir n 0700", atBegun, does(recent.Gains, otherMkdir), atBegun, does(recent.Loses, otherRemoves), "ok", ""},
		{9, "", "mkdir n 0700", atBegun, nil, atCalled, does(recent.Loses, otherRemoves), "ok", ""},
		{9, "", "mkdir n 0700", atBegun, nil, atBegun, does(recent.Gains, otherMkdir), "EEXIST", ""},
		{9, "", "mkdir n 0700", atBegun, maybe(recent.Gains), atBegun, does(recent.Gains, otherMkdir), "EEXIST", ""},
		{9, "", "mkdir n 0700", atCalled, nil, atAsked, maybe(recent.Loses), "ok", ""},
		{9, "", "mkdir n 0700", atBegun, nil, atCalled, maybe(recent.Gains), "EIO", ""},
		{6, "", "symlink to n", atBegun, maybe(recent.Gains), atCalled, nil, "ok", ""},
		{opCreate, "", "open n rw,creat,excl 0600", atBegun, maybe(recent.Gains), atCalled, nil, "ok 4", ""},
		{opCreate, "", "open n rw,creat,excl 0600", atBegun, nil, atBegun, does(recent.Gains, otherMakes), "EEXIST", ""},
		{10, "put n x", "unlink n", atBegun, maybe(recent.Loses), atCalled, nil, "ok", ""},
		{10, "put n x", "unlink n", atBegun, nil, atCalled, does(recent.Gains, otherAnew), "ok", "theirs"},
		{10, "put n x", "unlink n", atCalled, nil, atAsked, does(recent.Gains, otherAnew), "ok", "theirs"},
		{10, "put n x", "unlink n", atBegun, nil, atBegun, does(recent.Loses, otherRemoves), "ENOENT", ""},
		{12, "put n x", "rename n n.to", atBegun, maybe(recent.Loses), atCalled, does(recent.Gains, otherAnew), "ok", "theirs"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", x.call, x.where, x.again), func(t *testing.T) {
			t.Parallel()
			other, err := recent.Create()
			must(t, err)
			t.Cleanup(func() { other.Close() })
			m := mountKept(t, func(c *childConfig) { c.Rule = &Rule{} })
			m.conf.Kept.Alone, m.conf.Kept.PID, m.conf.Kept.Other = false, os.Getpid(), other.FD()
			p := startProgram(t, m.dir, nil)
			if x.before != "" {
				p.want("ok", "%s", x.before)
			}
			back := m.backing("n")
			m.crashAt(Crash{Op: x.op, Where: x.where})
			p.tell("%s", x.call)
			m.killed()
			if x.first != nil {
				x.first(t, other, back)
			}
			answered, dead := m.goOnUntil(Crash{Op: x.op, Where: x.again}, p)
			if !dead {
				t.Fatalf("the second server has answered %s", <-answered)
			}
			if x.then != nil {
				x.then(t, other, back)
			}
			must(t, m.goOn())
			m.within("a call returns", func() {
				if got := <-answered; got != x.want && !(x.want == "ok 4" && strings.HasPrefix(got, "ok ")) {
					t.Errorf("%s, want %s", got, x.want)
				}
			})
			if b, err := os.ReadFile(back); x.content != "" && (err != nil || string(b) != x.content) {
				t.Errorf("the file has %q, want %q (%v)", b, x.content, err)
			}
		})
	}
}

// notes has another host do something with a name, and note it.
func notes(t *testing.T, other *recent.Memory, name string, k recent.Kind, o recent.Outcome, how func(*testing.T, string)) {
	t.Helper()
	var dir unix.Stat_t
	must(t, unix.Stat(filepath.Dir(name), &dir))
	n := recent.NameOf(dir.Ino, filepath.Base(name))
	u := other.Begin(&n, k)
	if how != nil {
		how(t, name)
	}
	other.End(u, o)
}

// handlersThatNobodyAnswers note what they change, and are told by no other host what that has done.
func handlersThatNobodyAnswers(t *testing.T) *fileSystem {
	return handlersOnly(t, func(o *Options) {
		var err error
		o.Recent, err = recent.New()
		must(t, err)
		o.Others = func(context.Context, *recent.Question, bool) ([]recent.Host, error) { return nil, recent.ErrNever }
	})
}

// What a server that was killed has noted as made is made, whatever can be found out.
func TestWhatIsMadeIsNotAsked(t *testing.T) {
	t.Parallel()
	f := handlersThatNobodyAnswers(t)
	e := f.fence.evidence
	for _, c := range []*change{
		{in: &fuse.InHeader{}, op: "mkdir", dir: f.tree.root, name: "d", makes: unix.S_IFDIR},
		{in: &fuse.InHeader{}, op: "unlink", dir: f.tree.root, name: "f", removes: true},
		{in: &fuse.InHeader{}, op: "rename", dir: f.tree.root, name: "to", leave: f.tree.root, moves: "from"},
	} {
		for _, made := range []bool{true, false} {
			x := step{began: recent.Now()}
			e.lookBefore(c, &x.was)
			u := f.fence.touches.begin(c)
			x.touched = u.ids()
			if made {
				f.fence.touches.end(&u, c, nil)
			}
			if v, _ := e.find(t.Context(), c, &x, func() {}); (v == recent.Done) != made {
				t.Errorf("%s, made %v: %d", c.op, made, v)
			}
		}
	}
}

// A call that had not been made is made, though another host does the same between the look that
// tells that and the moment when the call may be made. So it has the outcome that the storage gives it.
func TestWhatWasNotMadeIsMadeWhateverComesBetween(t *testing.T) {
	t.Parallel()
	f := handlersThatNobodyAnswers(t)
	root := f.tree.root
	at := func(name string) string { return f.opts.Root.Name() + "/" + name }
	writeFile(t, at("f"), "x")
	writeFile(t, at("from"), "x")
	writeFile(t, at("appended"), "x")
	h := f.openForTest(t, "appended", os.O_RDWR|os.O_APPEND)
	mkdir := func(name string) func() error { return func() error { return unix.Mkdir(at(name), 0o700) } }
	anAppend := func() error { otherAppends(t, at("appended")); return nil }
	for _, x := range []struct {
		c      *change
		make   func() error // by another host, and then by this one
		remote bool
		want   error
	}{
		{&change{op: "mkdir", dir: root, name: "d", makes: unix.S_IFDIR, mode: 0o700}, mkdir("d"), false, unix.EEXIST},
		{&change{op: "symlink", dir: root, name: "s", makes: unix.S_IFLNK, target: "to"},
			func() error { return unix.Symlink("to", at("s")) }, false, unix.EEXIST},
		{&change{op: "unlink", dir: root, name: "f", removes: true},
			func() error { return unix.Unlink(at("f")) }, false, unix.ENOENT},
		{&change{op: "rename", dir: root, name: "to", leave: root, moves: "from"},
			func() error { return unix.Rename(at("from"), at("to")) }, false, unix.ENOENT},
		{&change{op: "write", h: h, data: []byte("once")}, anAppend, false, nil},
		// A server of remote storage may have made it, of what was sent before the kill.
		{&change{op: "mkdir", dir: root, name: "late", makes: unix.S_IFDIR, mode: 0o700}, mkdir("late"), true, unix.EIO},
		{&change{op: "write", h: h, data: []byte("once")}, anAppend, true, unix.EIO},
	} {
		f.storage.Remote = x.remote
		x.c.in = &fuse.InHeader{}
		p := &past{phase: phaseBegun, matched: true, step: step{began: recent.Now()}}
		f.fence.evidence.lookBefore(x.c, &p.step.was)
		tr := tracked{slot: slot{slotHead: new(slotHead)}, past: p}
		f.fence.findOut(&tr, x.c)
		must(t, x.make())
		if err := f.fence.doPast(&tr, x.c, x.make); err != x.want {
			t.Errorf("%s, remote %v: %v, want %v", x.c.op, x.remote, err, x.want)
		}
	}
	if got := readFile(t, at("appended")); got != "x"+strings.Repeat("once", 3) { // and not by the last one
		t.Errorf("what was appended: %q", got)
	}
}

// A server that is killed when its ledger has just begun to count leaves all that was
// left to it: the requests that are under way, too. When one serves the mount nobody can
// go on with what was left to it.
func TestKilledAsItsLedgerBegins(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	if got := p.do("open f rw,creat"); got[:2] != "ok" {
		t.Fatal(got)
	}
	m.crashAt(Crash{Op: 9, Where: atTaken})
	q.tell("mkdir d 0750")
	m.killed()
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", m.next.Keeper, m.next.Tables), unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	first := []shm.Candidate{{FD: fd, Generation: m.next.Generation}}
	for range 2 {
		m.goOnAndDie()
	}
	must(t, m.goOn())
	if got := m.answer(q); got != "ok" {
		t.Errorf("a call that was under way: %s", got)
	}
	if got := p.do("put g hello"); got != "ok" {
		t.Error(got)
	}
	if _, err := shm.OpenNewest(ledgerForm(), LedgerWhose, first); !errors.Is(err, shm.ErrOver) {
		t.Errorf("the first ledger after that: %v", err)
	}
}

// The same where an answer was noted, and perhaps written, of a request that is longer than
// what is kept of it.
func TestKilledTwiceAfterALongWrite(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw,creat")
	m.crashAt(Crash{Op: opWrite, Where: atDone})
	text := strings.Repeat("long", pageSize/2)
	p.tell("write %d 0 %s", fd, text)
	m.killed()
	for range 2 {
		m.goOnAndDie()
	}
	must(t, m.goOn())
	if got := m.answer(p); got != "ok" {
		t.Errorf("the write: %s", got)
	}
	if b, err := os.ReadFile(m.backing("f")); err != nil || string(b) != text {
		t.Errorf("the file has %d bytes (%v)", len(b), err)
	}
}
