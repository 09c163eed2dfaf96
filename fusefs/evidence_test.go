package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/recent"
)

// betweenCase is a call during which the server is killed, and what another host does
// before the next one goes on. N is a new name each time, and FD an open file.
type betweenCase struct {
	op     uint32
	before string
	call   string
	where  string
	other  func(t *testing.T, name string) // nil: nothing
	want   string
	left   string // "", or what the file N or N.to has then; "-": there is none
	// The outcome if the other host is asked, who has noted this; empty: the same.
	told     string
	toldLeft string
	notes    []noted
}

// noted is what a host notes of a change of the name N, with something added.
type noted struct {
	kind recent.Kind
	add  string
}

var (
	gains   = []noted{{recent.Gains, ""}}
	gainsTo = []noted{{recent.Gains, ".to"}}
	loses   = []noted{{recent.Loses, ""}}
	movesTo = []noted{{recent.Loses, ""}, {recent.Gets, ".to"}}
	alters  = []noted{{recent.Alters, ""}}
)

// does has another host do what it does, and note it.
func (c *betweenCase) does(t *testing.T, m *recent.Memory, name string) {
	var st unix.Stat_t
	var dir unix.Stat_t
	must(t, unix.Stat(filepath.Dir(name), &dir))
	_ = unix.Stat(name, &st) // it may not be there
	var under []recent.Under
	for _, x := range c.notes {
		n := recent.NameOf(dir.Ino, filepath.Base(name)+x.add)
		if x.kind == recent.Alters {
			n = recent.Content(st.Ino)
		}
		under = append(under, m.Begin(&n, x.kind))
	}
	if c.other != nil {
		c.other(t, name)
	}
	for _, u := range under {
		m.End(u, recent.Changed)
	}
}

func otherMkdir(t *testing.T, name string)  { must(t, os.Mkdir(name, 0o750)) }
func otherMakes(t *testing.T, name string)  { must(t, os.WriteFile(name, nil, 0o600)) }
func otherFifo(t *testing.T, name string)   { must(t, unix.Mkfifo(name, 0o600)) }
func otherLinks(t *testing.T, name string)  { must(t, os.Link(name, name+".to")) }
func otherMoves(t *testing.T, name string)  { must(t, os.Rename(name, name+".to")) }
func otherChmods(t *testing.T, name string) { must(t, os.Chmod(name, 0o640)) }
func otherRemoves(t *testing.T, name string) {
	must(t, os.Remove(name))
}
func otherAnew(t *testing.T, name string) { writeFile(t, name, "theirs") }
func otherAppends(t *testing.T, name string) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("once")
	must(t, err)
	must(t, f.Close())
}
func otherAttr(t *testing.T, name string) { must(t, unix.Removexattr(name, "user.a")) }
func otherSymlink(to string) func(*testing.T, string) {
	return func(t *testing.T, name string) { must(t, os.Symlink(to, name)) }
}

// Another host does the same as a server that was killed had begun, or something else
// with the same names, before the next one goes on: then nobody is told that it has done
// what the other host did, and nothing is done twice.
func TestKilledAndAnotherHostDidTheSame(t *testing.T) {
	t.Parallel()
	for i, c := range betweenCases {
		for _, locked := range []bool{false, true} {
			if locked && c.op == opWrite {
				continue // under a lock it counts
			}
			if !tests.Tests() && locked == (i%2 == 0) && c.op != opWrite {
				continue // each case with or without
			}
			t.Run(fmt.Sprintf("%d %s locked=%v", i, strings.Fields(c.call)[0], locked), func(t *testing.T) {
				m := mountKept(t, func(c *childConfig) { c.Rule = &Rule{} })
				m.conf.Kept.Alone = false
				p := startProgram(t, m.dir, nil)
				if locked { // something else
					p.want("ok", "flock %d ex", p.open("lock", "rw,creat"))
				}
				between(t, m, p, &c, nil)
			})
		}
	}
}

// The same, and the other host is asked: then it is known what was done, and by whom.
func TestKilledAndAnotherHostIsAsked(t *testing.T) {
	t.Parallel()
	for i, c := range betweenCases {
		t.Run(fmt.Sprintf("%d %s", i, strings.Fields(c.call)[0]), func(t *testing.T) {
			other, err := recent.Create()
			must(t, err)
			t.Cleanup(func() { other.Close() })
			m := mountKept(t, func(c *childConfig) { c.Rule = &Rule{} })
			m.conf.Kept.Alone, m.conf.Kept.PID, m.conf.Kept.Other = false, os.Getpid(), other.FD()
			if c.told != "" {
				c.want, c.left = c.told, c.toldLeft
			}
			between(t, m, startProgram(t, m.dir, nil), &c, other)
		})
	}
}

var betweenCases = []betweenCase{
	{op: 9, call: "mkdir N 0750", where: atBegun, other: otherMkdir, want: "EIO", told: "EEXIST", notes: gains},
	{op: opCreate, call: "open N rw,creat,excl 0600", where: atBegun, other: otherMakes, want: "EIO", told: "EEXIST", notes: gains},
	{op: 9, call: "mkdir N 0750", where: atCalled, want: "EIO", told: "ok"}, // which looks the same
	{op: opCreate, call: "open N rw,creat,excl 0600", where: atCalled, want: "EIO", told: "ok FD"},
	{op: 9, call: "mkdir N 0750", where: atBegun, want: "ok"},
	{op: 9, call: "mkdir N 0750", where: atCalled, other: otherRemoves, want: "ok", notes: loses},
	{op: 9, call: "mkdir N 0750", where: atBegun, other: otherMakes, want: "EEXIST", notes: gains},
	{op: opCreate, call: "open N rw,creat,excl 0600", where: atBegun, want: "ok FD"},
	{op: opCreate, call: "open N rw,creat 0600", where: atBegun, other: otherAnew, want: "ok FD", left: "theirs", notes: gains},
	{op: opCreate, call: "open N rw,creat 0600", where: atCalled, want: "ok FD"},
	{op: 8, call: "mkfifo N 0600", where: atBegun, other: otherFifo, want: "EIO", told: "EEXIST", notes: gains},
	{op: 6, call: "symlink where N", where: atBegun, other: otherSymlink("where"), want: "EIO", told: "EEXIST", notes: gains},
	{op: 6, call: "symlink where N", where: atBegun, other: otherSymlink("elsewhere"), want: "EEXIST", notes: gains},
	{op: 13, before: "put N x", call: "link N N.to", where: atBegun, other: otherLinks, want: "EIO", told: "EEXIST", notes: gainsTo},
	{op: 13, before: "put N x", call: "link N N.to", where: atBegun, want: "ok", left: "x"},
	{op: 10, before: "put N x", call: "unlink N", where: atBegun, other: otherRemoves, want: "EIO", told: "ENOENT", notes: loses},
	{op: 10, before: "put N x", call: "unlink N", where: atCalled, other: otherAnew, want: "EIO", left: "theirs", told: "ok", toldLeft: "theirs", notes: gains},
	{op: 10, before: "put N x", call: "unlink N", where: atBegun, other: otherChmods, want: "EIO", left: "x", told: "ok", toldLeft: "-", notes: alters},
	{op: 10, before: "put N x", call: "unlink N", where: atBegun, want: "ok", left: "-"},
	{op: 11, before: "mkdir N 0700", call: "rmdir N", where: atBegun, other: otherRemoves, want: "EIO", told: "ENOENT", notes: loses},
	{op: 11, before: "mkdir N 0700", call: "rmdir N", where: atBegun, want: "ok", left: "-"},
	{op: 12, before: "put N x", call: "rename N N.to", where: atBegun, other: otherMoves, want: "EIO", left: "x", told: "ENOENT", toldLeft: "x", notes: movesTo},
	{op: 12, before: "put N x", call: "rename N N.to", where: atCalled, other: otherAnew, want: "EIO", left: "theirs", told: "ok", toldLeft: "theirs", notes: gains},
	{op: 12, before: "put N x", call: "rename N N.to", where: atBegun, want: "ok", left: "x"},
	{op: opWrite, before: "open N rw,creat,append", call: "write FD 0 once", where: atBegun, other: otherAppends, want: "EIO", left: "once", notes: alters},
	{op: opWrite, before: "open N rw,creat,append", call: "write FD 0 once", where: atBegun, want: "ok", left: "once"},
	{op: opWrite, before: "open N rw,creat,append", call: "write FD 0 once", where: atCalled, want: "EIO", left: "once", told: "ok", toldLeft: "once"},
	{op: 10, before: "put N x", call: "unlink N", where: atCalled, want: "EIO", left: "-", told: "ok", toldLeft: "-"},
	{op: 12, before: "put N x", call: "rename N N.to", where: atCalled, want: "EIO", left: "x", told: "ok", toldLeft: "x"},
	{op: 24, before: "setxattr N user.a b", call: "removexattr N user.a", where: atCalled, want: "EIO", told: "ok"},
	{op: 24, before: "put N x", call: "removexattr N user.a", where: atCalled, want: "EIO"}, // there was none
	{op: 24, before: "setxattr N user.a b", call: "removexattr N user.a", where: atBegun, other: otherAttr, want: "EIO", notes: alters},
	{op: 24, before: "setxattr N user.a b", call: "removexattr N user.a", where: atBegun, want: "ok"},
}

func between(t *testing.T, m *keptMount, p *testProgram, c *betweenCase, other *recent.Memory) {
	t.Helper()
	const name = "n"
	fd := "-"
	fill := func(s string) string {
		words := strings.Fields(s)
		for i, w := range words {
			if w == "FD" {
				words[i] = fd
			} else if w == "N" || w == "N.to" {
				words[i] = name + w[1:]
			}
		}
		return strings.Join(words, " ")
	}
	if strings.HasPrefix(c.before, "setxattr") {
		p.want("ok", "put %s x", name)
	}
	if c.before != "" {
		got := p.do("%s", fill(c.before))
		n, opened := strings.CutPrefix(got, "ok ")
		if opened {
			fd = n
		} else if got != "ok" {
			t.Fatalf("%s: %s", c.before, got)
		}
	}
	m.crashAt(Crash{Op: c.op, Where: c.where})
	p.tell("%s", fill(c.call))
	m.killed()
	back := m.backing(name)
	switch {
	case other != nil:
		c.does(t, other, back)
	case c.other != nil:
		c.other(t, back)
	}
	got := goOnAgain(m, p)
	n, opened := strings.CutPrefix(got, "ok ")
	if opened {
		fd = n
	}
	if want := fill(c.want); got != want {
		t.Errorf("%s, killed at %s: %s, want %s", fill(c.call), c.where, got, want)
	}
	if fd != "-" {
		p.want("ok", "close %s", fd)
	}
	b, err := os.ReadFile(m.log)
	must(t, err)
	says := false
	for line := range strings.Lines(string(b)) {
		says = says || strings.Contains(line, "cannot be known") && strings.Contains(line, "path="+name)
	}
	if says != (c.want == "EIO") && m.again == nil {
		t.Errorf("%s, killed at %s: the log of the next server says %q", fill(c.call), c.where, b)
	}
	if c.left == "" {
		return
	}
	all, err := filepath.Glob(back + "*")
	must(t, err)
	if c.left == "-" {
		if len(all) > 0 {
			t.Errorf("%s, killed at %s: there is %q", fill(c.call), c.where, all)
		}
		return
	}
	if b, err := os.ReadFile(back); err == nil && string(b) == c.left {
		return
	}
	if b, err := os.ReadFile(back + ".to"); err != nil || string(b) != c.left {
		t.Errorf("%s, killed at %s: of %q none has %q", fill(c.call), c.where, all, c.left)
	}
}

// goOnAgain has servers go on, the first of which is killed as m says, and is the answer of p.
func goOnAgain(m *keptMount, p *testProgram) string {
	m.t.Helper()
	if m.again == nil {
		must(m.t, m.goOn())
		return m.answer(p)
	}
	answered, dead := m.goOnUntil(*m.again, p)
	if !dead {
		m.kill()
	}
	must(m.t, m.goOn())
	got := ""
	m.within("a call returns", func() { got = <-answered })
	return got
}

// What is looked at before is known again.
func TestWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	f := handlersOnly(t)
	dir := f.opts.Root.Name()
	e := f.fence.evidence
	c := &change{in: &fuse.InHeader{}, op: "unlink", dir: f.tree.root, name: "f", removes: true}
	// A file that is made anew is another one, whatever its number.
	writeFile(t, filepath.Join(dir, "f"), "y")
	var w was
	e.lookBefore(c, &w)
	if err, guess := e.certain(c, &w); err != nil || guess {
		t.Errorf("the file is as it was: %v, %v", err, guess)
	}
	w.csec--
	if err, guess := e.certain(c, &w); err != nil || !guess {
		t.Errorf("the file is another one: %v, %v", err, guess)
	}
}
