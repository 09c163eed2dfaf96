package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/journalview"
	tests "github.com/dmxfs/dmxfs/internal/long"
)

// countUnderName counts under a lock that is a name, until the file stop is in a directory that is
// no mount, outside. There is the counter, too, and whether two have the lock at a time. It
// prints how far it has counted. After each try it rests, for up to a time: name-lock KIND
// OUTSIDE REST.
func countUnderName(args []string) error {
	kind, outside := args[0], args[1]
	rest, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	take, give := nameLockOf(kind)
	n := 0
	for ; ; n++ {
		for {
			if _, err := os.Stat(filepath.Join(outside, "stop")); err == nil {
				fmt.Println(n)
				return nil
			}
			err := take()
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("take: %w", err)
			}
			<-time.After(rand.N(rest))
		}
		inside := filepath.Join(outside, "inside-"+kind)
		if err := os.Mkdir(inside, 0o700); err != nil {
			return fmt.Errorf("two have the lock: %w", err)
		}
		file := filepath.Join(outside, "count-"+kind)
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(string(b))
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(count+1)), 0o600); err != nil {
			return err
		}
		if err := os.Remove(inside); err != nil {
			return err
		}
		if err := give(); err != nil {
			return fmt.Errorf("give up: %w", err)
		}
		<-time.After(rand.N(rest))
	}
}

// nameLockOf is how to take and give up a lock of a kind.
func nameLockOf(kind string) (take, give func() error) {
	name := "lock-" + kind
	own := fmt.Sprintf("own-%s-%d", kind, os.Getpid())
	give = func() error { return unix.Unlink(name) }
	switch kind {
	case "mkdir":
		return func() error { return unix.Mkdir(name, 0o700) }, func() error { return unix.Rmdir(name) }
	case "excl":
		return func() error {
			fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}, give
	case "symlink":
		return func() error { return unix.Symlink("to", name) }, give
	case "link":
		return func() error {
			if err := os.WriteFile(own, nil, 0o600); err != nil {
				return err
			}
			return unix.Link(own, name)
		}, give
	}
	panic(kind)
}

// changesNames are the system calls by which that is done.
var changesNames = []int{unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT}

// newClusterOnDisk is n hosts over a file system of their own, which can be frozen.
func newClusterOnDisk(t *testing.T, n int) *testCluster {
	t.Helper()
	needTool(t, "mkfs.ext4")
	c := newCluster(t, 0)
	c.src = filepath.Join(c.dir, "disk")
	reservedDisk(t, c.src)
	for range n {
		c.add(withTakeover()...).mount()
	}
	c.awaitMembers(n)
	return c
}

// Programs on two hosts lock by names, as by mkdir(2), and count, while the daemons of both are
// killed again and again, most of them in such a call, and the next ones soon afterwards. No two
// have a lock at a time, and no program sees an error.
func TestTakeoverWhileNamesAreLocks(t *testing.T) {
	t.Parallel()
	c := newClusterOnDisk(t, 2)
	outside := t.TempDir()
	kinds := []string{"mkdir", "excl", "symlink", "link"}
	var programs []*proc
	for _, kind := range kinds {
		write(t, filepath.Join(outside, "count-"+kind), "0")
		for _, m := range c.mounts {
			programs = append(programs, m.helper("name-lock", kind, outside, tests.Or("30ms", "3ms")))
		}
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	kills, within, again := 0, 0, 0
	for end := time.Now().Add(time.Duration(tests.Or(5, 30)) * time.Second); time.Now().Before(end) && !t.Failed(); kills++ {
		m := c.mounts[r.IntN(2)]
		m.mayTakeOver()
		old := m.daemon()
		inTime := m.cutsOff()
		some := counted(outside, kinds) + r.IntN(tests.Or(80, 400)) // at any moment
		await(t, "the programs count", func() bool { return counted(outside, kinds) >= some })
		if r.IntN(4) > 0 {
			thaw := freezes(t, c.src)
			// It need not come to that, while all locks are the other host's.
			if comesTo(100*time.Millisecond, func() bool {
				return slices.ContainsFunc(changesNames, func(call int) bool { return isIn(old, call) })
			}) {
				within++
			}
			m.signal(unix.SIGKILL)
			thaw()
		} else {
			m.signal(unix.SIGKILL)
		}
		dead := []int{old}
		for r.IntN(2) == 0 {
			dead = append(dead, m.diesAgain(dead, r.IntN(2) == 0, r.IntN(2) == 0, time.Duration(r.IntN(60))*time.Millisecond))
			again++
		}
		m.awaitNew(dead[len(dead)-1])
		inTime()
		for _, p := range programs {
			if p.ended() {
				t.Errorf("%v has ended: %s", p.cmd.Args, p.out.String())
			}
		}
	}
	write(t, filepath.Join(outside, "stop"), "")
	total := map[string]int{}
	for _, p := range programs {
		out, code := p.wait()
		n, err := strconv.Atoi(strings.TrimSpace(out))
		if code != 0 || err != nil {
			t.Errorf("%v: %d %s", p.cmd.Args, code, out)
		}
		total[p.cmd.Args[1]] += n
	}
	for _, kind := range kinds {
		if got := read(t, filepath.Join(outside, "count-"+kind)); got != fmt.Sprint(total[kind]) || total[kind] == 0 {
			t.Errorf("%s: counted to %s, want %d", kind, got, total[kind])
		}
	}
	t.Logf("%d kills, %d of them within a call, and %d of the next daemon, seed %d: %v", kills, within, again, seed, total)
	for _, m := range c.mounts {
		for line := range strings.Lines(m.log()) {
			if strings.Contains(line, "cannot be known") || strings.Contains(line, "cannot be found out") {
				t.Errorf("the log of %s: %s", m.dir, line)
			}
		}
	}
}

// counted is how far programs have counted under the names of these kinds.
func counted(outside string, kinds []string) (n int) {
	for _, kind := range kinds {
		b, _ := os.ReadFile(filepath.Join(outside, "count-"+kind))
		one, _ := strconv.Atoi(string(b)) // it may be about to be written
		n += one
	}
	return n
}

// worked is for how long the threads of a process have had a processor.
func worked(pid int) (d time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range threads {
		var ns int64
		b, _ := os.ReadFile(name) // it may have ended
		_, _ = fmt.Sscan(string(b), &ns)
		d += time.Duration(ns)
	}
	return d
}

// diesAgain kills the daemon that goes on for those that are dead when it has worked for some time;
// or, if serves, for so long since it has begun to serve, when it may make anew what they had begun.
func (m *testMount) diesAgain(dead []int, serves, frozen bool, work time.Duration) (next int) {
	m.c.t.Helper()
	await(m.c.t, m.dir+" has another daemon", func() bool {
		next = m.daemon()
		if !serves {
			next = m.successor(dead)
		}
		return next != 0 && !slices.Contains(dead, next)
	})
	if frozen {
		defer freezes(m.c.t, m.src)()
	}
	began := worked(next)
	comesTo(200*time.Millisecond, func() bool { return worked(next)-began >= work }) // or it waits for what is frozen
	if err := unix.Kill(next, unix.SIGKILL); err != nil {
		m.c.t.Fatalf("the daemon %d has ended by itself: %v", next, err)
	}
	return next
}

// successor is the process that is about to go on for the daemons that are dead, or are about to be;
// 0: there is none.
func (m *testMount) successor(dead []int) int {
	for _, pid := range children(m.watcher) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && !slices.Contains(dead, pid) && string(comm) != "dmxfs-keeper\n" {
			return pid
		}
	}
	return 0
}

// freezes keeps all changes from the file system of dir until thaw is called.
func freezes(t testing.TB, dir string) (thaw func()) {
	t.Helper()
	const freeze, end = 0xc0045877, 0xc0045878 // FIFREEZE and FITHAW of <linux/fs.h>
	f, err := os.Open(dir)
	if err == nil {
		err = unix.IoctlSetInt(int(f.Fd()), freeze, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := errors.Join(unix.IoctlSetInt(int(f.Fd()), end, 0), f.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw) // one that stays frozen is never unmounted
	return thaw
}

// isIn reports whether a thread of a process is in a system call.
func isIn(pid int, call int) bool {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, file := range all {
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), fmt.Sprint(call, " ")) {
			return true
		}
	}
	return false
}

// dies has the daemon of m be killed while it makes a directory, which is made, and not noted.
// It returns what the program is told.
func (m *testMount) dies(name string) (out string, code int) {
	m.c.t.Helper()
	m.livesOn()
	m.mayTakeOver()
	defer m.cutsOff()()
	old := m.daemon()
	thaw := freezes(m.c.t, m.src)
	defer thaw()
	p := m.newHelper("mkdir", name)
	p.run(m)
	await(m.c.t, "the daemon makes "+name, func() bool { return isIn(old, unix.SYS_MKDIRAT) })
	m.signal(unix.SIGKILL)
	thaw()
	m.awaitNew(old)
	return p.wait()
}

// What a daemon that was killed has made is known to be made, as all others say that they have
// not; but not while a host is cut off that sees the storage, and cannot be asked.
func TestTakeoverAsksAllHosts(t *testing.T) {
	t.Parallel()
	tests.NoTurn(t)
	needTool(t, "mkfs.ext4")
	c := newCluster(t, 0)
	c.src = filepath.Join(c.dir, "disk")
	reservedDisk(t, c.src)
	c.net = newNetwork(t)
	for range 3 {
		c.addHost("--takeover").mount()
	}
	c.awaitMembers(3)
	a, b, lone := c.mounts[0], c.mounts[1], c.mounts[2]
	wants := func(what, name string, known bool) {
		t.Helper()
		out, code := a.dies(name)
		if known != (code == 0) || !known && !strings.Contains(out, "input/output error") {
			t.Errorf("%s: %d %s", what, code, out)
		}
	}
	parted := func() {
		lone.cut(a, b)
		await(t, "the pair goes on", func() bool { return a.live(2) && b.live(2) })
	}
	wants("all can be asked", "1", true)
	parted()
	if out, code := lone.sh("mkdir other"); code != 0 {
		t.Errorf("without locks: %d %s", code, out)
	}
	wants("one is cut off", "2", false)
	await(t, "the log says why", func() bool { // which is written by another process, after the answer
		return strings.Contains(a.log(), "may be cut off, and its programs go on without locks")
	})
	c.back("1|2")
	wants("it is back", "3", true)
	// Nor does anybody know of it who has begun anew since.
	parted()
	for _, m := range []*testMount{b, a} {
		c.run("unmount", m.dir)
		m.mount()
	}
	await(t, "the pair goes on", func() bool { return a.live(2) && b.live(2) })
	wants("one is cut off, of which nobody knows", "4", false)
	c.back("1|2 anew")
	c.run("unmount", lone.dir)
	await(t, "it has left", func() bool { return a.live(2) && b.live(2) })
	wants("it has left in good order", "5", true)
	b.signal(unix.SIGSTOP)
	wants("one does not answer", "6", false)
	b.signal(unix.SIGCONT)
}

// A host is gone for good, and the others are not sure of names until an admin has said so, to
// one of them. One that is said to be gone and is not says that it is there.
func TestTakeoverAsksNoHostThatIsForgotten(t *testing.T) {
	t.Parallel()
	tests.NoTurn(t)
	c := newClusterOnDisk(t, 3)
	a, b, gone := c.mounts[0], c.mounts[1], c.mounts[2]
	forget := func(id string) (string, error) {
		return c.try("peers", "forget", id, a.dir, "--reason", "its disk is broken", "--yes")
	}
	id := gone.peers().Self
	if out, err := forget(id); err == nil || !strings.Contains(err.Error(), "is a member") {
		t.Errorf("a member is forgotten: %s, %v", out, err)
	}
	record := filepath.Join(c.src, ".dmxfs/peers", id)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	await(t, "who is there has a record", func() bool { _, err := os.Stat(record); return err == nil })
	gone.kill()
	await(t, "the others go on", func() bool { return a.live(2) && b.live(2) })
	if out, code := a.dies("1"); code == 0 || !strings.Contains(out, "input/output error") {
		t.Errorf("one is gone: %d %s", code, out)
	}
	if out, err := forget(id); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("its record: %v", err)
	}
	for _, m := range []*testMount{a, b} {
		await(t, "the journal says who was forgotten", func() bool {
			return slices.ContainsFunc(m.journal("--event", "note"), func(r journalview.Row) bool { return strings.Contains(r.Reason, "its disk is broken") })
		})
	}
	if out, code := a.dies("2"); code != 0 {
		t.Errorf("it is forgotten: %d %s", code, out)
	}
}
