package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
)

// nameLock counts under a lock that is a name, until the file stop is in a directory that is
// no mount, outside. There is the counter, too, and whether two have the lock at a time. It
// prints how far it has counted.
func nameLock(args []string) error {
	kind, outside := args[0], args[1]
	take, give := nameLockBy(kind)
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
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
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
	}
}

// nameLockBy is how to take and give up a lock of a kind.
func nameLockBy(kind string) (take, give func() error) {
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

// Programs on two hosts lock by names, as by mkdir(2), and count, while the daemons of both are
// killed again and again. No two have a lock at a time, and no program sees an error.
func TestTakeoverWhileNamesAreLocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--takeover")
	outside := t.TempDir()
	kinds := []string{"mkdir", "excl", "symlink", "link"}
	var programs []*proc
	for _, kind := range kinds {
		write(t, filepath.Join(outside, "count-"+kind), "0")
		for _, m := range c.mounts {
			programs = append(programs, m.helper("name-lock", kind, outside))
		}
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for end := time.Now().Add(time.Duration(tests.Or(8, 40)) * time.Second); time.Now().Before(end) && !t.Failed(); {
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) // at any moment
		both := c.mounts
		if n := r.IntN(4); n > 0 {
			both = both[n%2 : n%2+1]
		}
		var old []int
		for _, m := range both {
			m.mayTakeOver()
			old = append(old, m.daemon())
			defer m.cutsOff()()
		}
		for _, m := range both {
			m.signal(unix.SIGKILL)
		}
		for i, m := range both {
			m.awaitNew(old[i])
			kills++
		}
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
	t.Logf("%d kills, seed %d: %v", kills, seed, total)
	for _, m := range c.mounts {
		for line := range strings.Lines(read(t, m.state+"/dmxfs.log")) {
			if strings.Contains(line, "cannot be known") || strings.Contains(line, "cannot be found out") {
				t.Errorf("the log of %s: %s", m.dir, line)
			}
		}
	}
}

// dies has the daemon of m be killed when it has made a directory, and does not know it yet.
// It returns what the program is told.
func (m *testMount) dies(storage, name string) (out string, code int) {
	m.c.t.Helper()
	m.livesOn()
	m.mayTakeOver()
	defer m.cutsOff()()
	type outcome struct {
		out  string
		code int
	}
	done := make(chan outcome, 1)
	go func() {
		out, code := m.sh("mkdir " + name)
		done <- outcome{out, code}
	}()
	await(m.c.t, name+" is made", func() bool { return unix.Access(filepath.Join(storage, name), 0) == nil })
	old := m.daemon()
	m.signal(unix.SIGKILL)
	write(m.c.t, filepath.Join(storage, "go-"+name), "")
	m.awaitNew(old)
	x := <-done
	return x.out, x.code
}

// What a daemon that was killed has made is known to be made, as all others say that they have
// not; but not while a host is cut off that sees the storage, and cannot be asked.
func TestTakeoverAsksAllHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	storage := c.src
	c.src = c.lame("hurry")
	c.net = newNetwork(t)
	for range 3 {
		c.addHost("--takeover", "--file-id=inode", "--listing-age=0s").mount()
	}
	c.awaitMembers(3)
	a, b, lone := c.mounts[0], c.mounts[1], c.mounts[2]
	wants := func(what, name string, known bool) {
		t.Helper()
		out, code := a.dies(storage, name)
		if known != (code == 0) || !known && !strings.Contains(out, "Input/output error") {
			t.Errorf("%s: %d %s", what, code, out)
		}
	}
	wants("all can be asked", "slow-1", true)
	lone.cut(a, b)
	await(t, "the pair goes on", func() bool { return a.live(2) && b.live(2) })
	if out, code := lone.sh("mkdir other"); code != 0 {
		t.Errorf("without locks: %d %s", code, out)
	}
	wants("one is cut off", "slow-2", false)
	if log := read(t, a.state+"/dmxfs.log"); !strings.Contains(log, "may be cut off, and its programs go on without locks") {
		t.Errorf("the log does not say why: %s", log)
	}
	c.back("1|2")
	wants("it is back", "slow-3", true)
	// Nor does anybody know of it who has begun anew since.
	lone.cut(a, b)
	await(t, "the pair goes on", func() bool { return a.live(2) && b.live(2) })
	for _, m := range []*testMount{b, a} {
		c.run("unmount", m.dir)
		m.mount()
	}
	await(t, "the pair goes on", func() bool { return a.live(2) && b.live(2) })
	wants("one is cut off, of which nobody knows", "slow-4", false)
	c.back("1|2 anew")
	c.run("unmount", lone.dir)
	await(t, "it has left", func() bool { return a.live(2) && b.live(2) })
	wants("it has left in good order", "slow-5", true)
	b.signal(unix.SIGSTOP)
	wants("one does not answer", "slow-6", false)
	b.signal(unix.SIGCONT)
}
