package fusefs

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// changeCalls are the calls of a program that change the storage, by the request
// that they become. The file "open" is open as descriptor %d.
var changeCalls = []struct{ request, call string }{
	{"SYMLINK", "symlink target new1"},
	{"MKNOD", "mkfifo new2 0644"},
	{"MKDIR", "mkdir new3 0755"},
	{"CREATE", "open new4 w,creat,excl"},
	{"TMPFILE", "open . w,tmpfile"},
	{"LINK", "link file new5"},
	{"RENAME", "rename file2 file3"}, // or RENAME2
	{"UNLINK", "unlink gone"},
	{"RMDIR", "rmdir dir"},
	{"SETATTR", "chmod file 0600"},
	{"SETATTR", "chown file 1 1"},
	{"SETATTR", "utimes file"},
	{"SETATTR", "truncate file 3"},
	{"SETATTR", "ftruncate %d 3"},
	{"SETATTR", "fchmod %d 0600"},
	{"SETXATTR", "setxattr file user.x y"},
	{"REMOVEXATTR", "removexattr file user.a"},
	{"OPEN", "open file w,trunc"},
	{"WRITE", "write %d 0 changed"},
	{"FALLOCATE", "fallocate %d 100000"},
	{"COPY_FILE_RANGE", "copy file other"},
	{"IOCTL", "setflags %d"},
}

func TestChangeCallsAreComplete(t *testing.T) {
	tested := map[string]bool{"RENAME2": true}
	for _, c := range changeCalls {
		tested[c.request] = true
	}
	for _, o := range operations {
		if o.fence != changesNothing && !tested[o.name] {
			t.Errorf("%s changes the storage, and no test tries it when the lock was lost", o.name)
		}
	}
}

// snapshot describes all that is on the storage.
func (m *testMount) snapshot() string {
	m.t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$0" && find . -printf '%p %i %y %m %U %G %s %n %T@ %b %l\n' | sort && getfattr -R -d . 2>/dev/null; cat file open other`, m.back).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func (m *testMount) forChanges() {
	for _, name := range []string{"file", "file2", "file3", "gone", "other", "open", "lock"} {
		writeFile(m.t, m.backing(name), "content")
	}
	must(m.t, os.Mkdir(m.backing("dir"), 0o755))
	must(m.t, unix.Setxattr(m.backing("file"), "user.a", []byte("b"), 0))
}

// A program that has lost a lock changes nothing any more, by no call and of no
// file, until it has given up what it locked through; others do.
func TestNothingIsChangedUnderALockThatWasLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		rule Rule
		lock func(m *testMount, p *testProgram) (unlock func())
	}{
		{"flock", DefaultRule, func(m *testMount, p *testProgram) func() {
			fd := p.open("lock", "r")
			p.want("ok", "flock %d ex", fd)
			return func() { p.want("ok", "flock %d un", fd) }
		}},
		{"POSIX, given up by close", DefaultRule, func(m *testMount, p *testProgram) func() {
			fd := p.open("lock", "rw")
			p.want("ok", "lk %d setw w 3 1", fd)
			return func() { p.want("ok", "close %d", fd) }
		}},
		{"open, between processes", Rule{Open: true, PerProcess: true}, func(m *testMount, p *testProgram) func() {
			fd := p.open("lock", "w")
			return func() { p.want("ok", "close %d", fd) }
		}},
		{"of the process that made it", DefaultRule, func(m *testMount, p *testProgram) func() {
			f, err := os.Open(m.path("lock"))
			must(t, err)
			must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
			return func() { must(t, f.Close()) }
		}},
		{"flock by another one, through what it has opened", DefaultRule, func(m *testMount, p *testProgram) func() {
			fd := p.open("lock", "r")
			shared := shareDescriptor(t, p, fd)
			q := startProgram(t, m.dir, nil, shared)
			shared.Close()
			q.want("ok", "flock 3 ex")
			q.kill() // as flock(1) in a shell ends
			return func() { p.want("ok", "flock %d un", fd) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mount(t, func(o *childConfig) { o.Rule = &c.rule })
			m.forChanges()
			p := startProgram(t, m.dir, nil)
			unlock := c.lock(m, p)
			fd := p.open("open", "rw")
			defer p.want("ok", "close %d", fd)
			call := func(s string) string {
				if strings.Contains(s, "%d") {
					s = fmt.Sprintf(s, fd)
				}
				return p.do("%s", s)
			}
			p.want("ok", "put new0 text") // it has its lock
			before := m.snapshot()
			ask[None](m, "Expel", false)
			for _, x := range changeCalls {
				if got := call(x.call); got != "EIO" {
					t.Errorf("%s: %s", x.call, got)
				}
			}
			if after := m.snapshot(); after != before {
				t.Errorf("the storage was\n%s, and is\n%s", before, after)
			}
			unlock()
			p.want("ok", "close %d", fd)
			await(t, "the last closes are known", func() bool {
				n := ask[Counts](m, "Counts", None{})
				return n.Handles == 0 || n.Handles == 1 && strings.Contains(c.name, "flock")
			})
			fd = p.open("open", "rw")
			for _, x := range changeCalls {
				// Not all storage has the flags of chattr(1).
				if got := call(x.call); !strings.HasPrefix(got, "ok") && x.request != "IOCTL" {
					t.Errorf("%s, afterwards: %s", x.call, got)
				}
			}
		})
	}
}

// An open lock that hosts have, and not processes, is about its own file.
func TestNamesUnderAnOpenLockThatWasLost(t *testing.T) {
	t.Parallel()
	m := mount(t)
	m.forChanges()
	p, other := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fd := p.open("file", "rw")
	ask[None](m, "Expel", true)
	p.want("EIO", "rename other file")
	p.want("EIO", "unlink file")
	p.want("EIO", "link file new")
	p.want("EIO", "chmod file 0600")
	p.want("EIO", "fchmod %d 0600", fd)
	p.want("EIO", "setxattr file user.x y")
	p.want("ok", "rename file2 file3")
	other.want("ok", "chmod file 0640")
	p.want("ok", "close %d", fd)
	await(t, "the last close is known", func() bool { return ask[Counts](m, "Counts", None{}).Handles == 0 })
	p.want("ok", "rename other file")
}

// While the node is suspended nobody knows whether a lock still holds. Who has
// one waits, and nobody else does.
func TestChangesByNameWaitWhileTheNodeIsSuspended(t *testing.T) {
	t.Parallel()
	m := mount(t)
	m.forChanges()
	p, free := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	fd := p.open("lock", "r")
	p.want("ok", "flock %d ex", fd)
	ask[None](m, "Suspend", true)
	p.tell("chmod file 0600")
	p.sleeping()
	free.want("ok", "mkdir new 0755")
	ask[None](m, "Suspend", false)
	if got := p.answer(); got != "ok" {
		t.Errorf("chmod: %s", got)
	}
	ask[None](m, "Suspend", true)
	p.tell("rename file2 file3")
	p.sleeping()
	ask[None](m, "Expel", true) // while it waits
	if got := p.answer(); got != "EIO" {
		t.Errorf("rename: %s", got)
	}
	p.want("ok", "flock %d un", fd)
	p.want("ok", "rename file2 file3")
}

// A lock that an admin breaks takes what is done by name with it.
func TestChangesByNameUnderABrokenLock(t *testing.T) {
	t.Parallel()
	m := mount(t)
	m.forChanges()
	p := startProgram(t, m.dir, nil)
	fd := p.open("lock", "r")
	p.want("ok", "flock %d ex", fd)
	ask[None](m, "Break", BreakArgs{m.key("lock", locks.Flock)})
	p.want("EIO", "rename file2 file3")
	p.want("ok", "close %d", fd)
	await(t, "the last close is known", func() bool { return ask[Counts](m, "Counts", None{}).Handles == 0 })
	p.want("ok", "rename file2 file3")
}

// The tenure ends between the check and the return of a call.
func TestLateChangesAreReported(t *testing.T) {
	var late []LateWrite
	f := handlersOnly(t, func(o *Options) { o.LateWrite = func(w LateWrite) { late = append(late, w) } })
	root := f.opts.Root.Name()
	writeFile(t, root+"/f", "content")
	must(t, os.Mkdir(root+"/d", 0o755))
	in := header(rootID)
	p := f.procs.find(in.Pid)
	p.held.Store(2) // as if there was a lock
	f.records.explicit.Add(1)
	defer f.records.explicit.Add(-1)
	node := f.lookupForTest(t, "f")
	f.lookupForTest(t, "d")
	on := in
	on.NodeId = node
	var entry fuse.EntryOut
	var attr fuse.AttrOut
	for _, c := range []struct {
		operation, path string
		call            func() fuse.Status
	}{
		{"symlink", "s", func() fuse.Status { return f.Symlink(nil, &in, "x", "s", &entry) }},
		{"mkdir", "e", func() fuse.Status { return f.Mkdir(nil, &fuse.MkdirIn{InHeader: in}, "e", &entry) }},
		{"mknod", "m", func() fuse.Status { return f.Mknod(nil, &fuse.MknodIn{InHeader: in}, "m", &entry) }},
		{"create", "c", func() fuse.Status { return f.createForTest("c", 0, unix.O_RDWR) }},
		{"link", "l", func() fuse.Status { return f.Link(nil, &fuse.LinkIn{InHeader: in, Oldnodeid: node}, "l", &entry) }},
		{"rename", "g", func() fuse.Status { return f.Rename(nil, &fuse.RenameIn{InHeader: in, Newdir: rootID}, "f", "g") }},
		{"chmod", "g", func() fuse.Status {
			x := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: on, Valid: fuse.FATTR_MODE, Mode: 0o600}}
			return f.SetAttr(nil, &x, &attr)
		}},
		{"truncate", "g", func() fuse.Status {
			x := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: on, Valid: fuse.FATTR_SIZE, Size: 2}}
			return f.SetAttr(nil, &x, &attr)
		}},
		{"setxattr", "g", func() fuse.Status {
			return f.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: on}, "user.x", []byte("y"))
		}},
		{"removexattr", "g", func() fuse.Status { return f.RemoveXAttr(nil, &on, "user.x") }},
		{"unlink", "g", func() fuse.Status { return f.Unlink(nil, &in, "g") }},
		{"rmdir", "d", func() fuse.Status { return f.Rmdir(nil, &in, "d") }},
	} {
		late = nil
		f.locker = &stubLocker{admit: func(n int) error {
			if n > 1 {
				return locks.ErrLost
			}
			return nil
		}}
		if st := c.call(); st != fuse.EIO {
			t.Errorf("%s: %v", c.operation, st)
		}
		if len(late) != 1 || late[0].Operation != c.operation || late[0].Path != c.path || late[0].Program.PID != os.Getpid() {
			t.Errorf("%s: reported is %+v", c.operation, late)
		}
	}
	if len(f.handles.all()) != 0 {
		t.Error("a file that was made late is open")
	}
}
