package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/daemon"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/succession"
)

// Programs that cannot go on, by the name of their file.
const (
	diesAtStart = "dies"
	otherState  = "other-state"
	hangsAsked  = "hangs"
	cannotGoOn  = "cannot-go-on"
	diesGoingOn = "dies-going-on"
)

// asSuccessor makes this program one of them, if it has its name.
func asSuccessor() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	asked, goesOn := len(os.Args) > 1 && os.Args[1] == succession.CheckCommand, succession.Left()
	switch filepath.Base(self) {
	case diesAtStart:
		os.Exit(7)
	case otherState:
		if asked {
			var t succession.Terms
			_ = json.NewDecoder(os.Stdin).Decode(&t)
			t.Mount++
			text, _ := json.Marshal(t)
			a, _ := succession.Agree(text)
			a.Version = "9.9"
			_ = printing.JSON(os.Stdout, a)
			os.Exit(0)
		}
	case hangsAsked:
		if asked {
			// Until nobody reads what it would answer: it is killed, or who asks has ended.
			_, _ = unix.Poll([]unix.PollFd{{Fd: 1}}, -1)
		}
	case cannotGoOn:
		daemon.InheritTrouble = func() error { return fmt.Errorf("of the test") }
	case diesGoingOn:
		if goesOn {
			os.Exit(7)
		}
	default:
		// The former program cannot go on at once either.
		if tries, _ := strconv.Atoi(os.Getenv(triesEnv)); os.Getenv(succession.WhyEnv) != "" && tries < formerTries {
			os.Setenv(triesEnv, strconv.Itoa(tries+1))
			daemon.InheritTrouble = func() error { return fmt.Errorf("of the test, for a while") }
		}
	}
}

// formerTries is how often the former program fails to go on, in place of the next one.
// How often it did is in its environment.
const (
	formerTries = 2
	triesEnv    = "DMXFS_TEST_TRIES"
)

// successorFile is a copy of this program that has a name of those above.
func successorFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(self, path) != nil { // it is on another file system
		copyProgram(t, path)
	}
	return path
}

// A program that cannot go on changes nothing, whenever that is found out.
func TestUpgradeThatIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--journal=required")
	m := c.mounts[0]
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.src, "program"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	hold := m.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 20 })
	daemon := m.daemon()
	for _, tt := range []struct{ program, want string }{
		{filepath.Join(t.TempDir(), "missing"), "no such file"},
		{t.TempDir(), "is no program"},
		{"/bin/true", "it is no dmxfs"},
		{"/bin/false", "cannot say whether it could go on"},
		{script, "cannot say whether it could go on"}, // it is executed by a descriptor that it cannot read
		{m.path("program"), "lies on the mount"},
		{successorFile(t, diesAtStart), "cannot say whether it could go on"},
		{successorFile(t, otherState), "the state of a mount"},
		{successorFile(t, hangsAsked), "does not answer"},
		{successorFile(t, cannotGoOn), "of the test"},
	} {
		timeout := "90s" // a machine with much to do starts a program slowly
		if filepath.Base(tt.program) == hangsAsked {
			timeout = "2s"
		}
		out, err := c.try("upgrade", "--timeout", timeout, "--program", tt.program, m.dir)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v %q, want %q", tt.program, err, out, tt.want)
		}
		size := c.size("f")
		await(t, "the holder writes on", func() bool { return c.size("f") > size+20 })
		if m.daemon() != daemon || hold.ended() {
			t.Fatalf("%s: the daemon is another one, or the holder has ended: %s", tt.program, hold.out.String())
		}
	}
	config := filepath.Join(t.TempDir(), "m.toml")
	write(t, config, fmt.Sprintf("mountpoint = %q\n", m.dir))
	for _, which := range [][]string{{m.dir}, {"--all"}, {"--config", config}} {
		if out := c.run(append([]string{"upgrade", "--check"}, which...)...); strings.Count(out, "could go on") != 1 {
			t.Errorf("--check %q: %q", which, out)
		}
	}
	if n := strings.Count(m.log(), "cannot go on yet"); n != formerTries {
		t.Errorf("the former program has begun %d times anew", n)
	}
	m.upgraded()
	if out, code := m.sh("flock -n g true"); code != 0 {
		t.Errorf("a lock, where the journal is required: %d %s", code, out)
	}
	if all := m.journal("--event", "upgraded"); len(all) != 2 {
		t.Errorf("upgrades: %+v", all)
	}
	if r := m.journal("--event", "lost,recovered,fenced"); len(r) > 0 {
		t.Errorf("lost: %+v", r)
	}
}

// A daemon that is killed in the middle of an upgrade, or a program that dies when it
// should go on, is what the death of a daemon always is: its locks are lost before
// anybody else has them.
func TestUpgradeThatIsKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--takeover=false")
	a, b := c.mounts[0], c.mounts[1]
	for round := range 4 {
		name := fmt.Sprint("f", round)
		hold := a.helper("append", "flock", name, "x", "0")
		await(t, "the holder has written", func() bool { return c.size(name) > 20 })
		next := b.helper("append", "flock", name, "y", "3")
		b.blocked(name, 1)
		daemon := a.daemon()
		args := []string{"upgrade", a.dir}
		if round == 0 {
			args = append(args, "--program", successorFile(t, diesGoingOn))
		}
		cmd := c.cmd(args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			at := time.Duration(rand.IntN(120)) * time.Millisecond
			t.Logf("killed after %v", at)
			<-time.After(at)
			_ = unix.Kill(daemon, unix.SIGKILL)
		}
		hold.ends("the holder, whose lock is lost")
		next.ends("who waited has the lock")
		_ = cmd.Wait() // it may have been done, or not
		a.awaitNew(daemon)
		c.awaitMembers(2)
		lines := strings.Split(read(t, c.src+"/"+name), "\n")
		for i := range lines[1:] {
			if strings.HasPrefix(lines[i], "y") && strings.HasPrefix(lines[i+1], "x") {
				t.Fatalf("round %d: both had the lock: %q", round, lines[i:i+2])
			}
		}
	}
}

// A member that is stopped holds up an upgrade until the others have dropped it.
func TestUpgradeBesideAStoppedMember(t *testing.T) {
	t.Parallel()
	// The pause of an upgrade must be shorter on a busy machine, too.
	c := newCluster(t, 3, "-o", "heartbeat=100ms,tenure=3s")
	a, stopped := c.mounts[0], c.mounts[2]
	hold := a.helper("append", "flock", "f", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("f") > 20 })
	stopped.signal(unix.SIGSTOP)
	_, err := c.try("upgrade", "--timeout", "10s", a.dir)
	t.Logf("upgrade: %v", err)
	size := c.size("f")
	await(t, "the holder writes on", func() bool { return c.size("f") > size+20 })
	if hold.ended() {
		t.Error(hold.out.String())
	}
	if err := unix.Kill(stopped.daemon(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.awaitMembers(3)
	if r := a.journal("--event", "lost,recovered,fenced"); len(r) > 0 {
		t.Errorf("lost: %+v", r)
	}
}
