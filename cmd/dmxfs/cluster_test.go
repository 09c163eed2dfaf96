package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/crash"
	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// needMounts skips a test where no file system can be mounted. In CI nothing
// may skip: DMXFS_TEST_REQUIRE_MOUNTS makes it fail instead.
func needMounts(t testing.TB) {
	t.Helper()
	why := ""
	if _, err := os.Stat("/dev/fuse"); err != nil {
		why = "needs /dev/fuse: " + err.Error()
	} else if os.Geteuid() != 0 {
		why = "needs root, to mount without a helper"
	}
	if why == "" {
		return
	}
	if os.Getenv("DMXFS_TEST_REQUIRE_MOUNTS") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// needTool skips a test that needs a program which is not there.
func needTool(t testing.TB, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			if os.Getenv("DMXFS_TEST_REQUIRE_MOUNTS") != "" {
				t.Fatalf("needs the program %s", n)
			}
			t.Skipf("needs the program %s", n)
		}
	}
}

// testCluster is a shared directory with daemons that mount it.
type testCluster struct {
	t      testing.TB
	dir    string
	src    string
	net    *network // nil: all daemons are in the network of the test
	mounts []*testMount
	watch  *long.Watch
}

// emptyCluster has no shared directory yet.
func emptyCluster(t testing.TB) *testCluster {
	t.Helper()
	dir := t.TempDir()
	c := &testCluster{t: t, dir: dir, watch: long.Limit(t, dir)}
	if patienceOfTests > usualPatience {
		c.watch.Allow(4 * patienceOfTests)
	}
	return c
}

// testMount is one daemon, in the role of a host.
type testMount struct {
	c          *testCluster
	src        string // where this host has the shared directory
	dir, state string
	args       []string
	ns, addr   string // network namespace of the daemon and its address; empty: those of the test
	boot       string // boot ID that the daemon sees; empty: that of the machine
	watcher    int    // process that watches the daemon
	told       string // what the last mount has said to standard error
	crashes    int    // how many of its daemons the test has crash
}

// newCluster mounts a new shared directory n times.
func newCluster(t testing.TB, n int, args ...string) *testCluster {
	t.Helper()
	needMounts(t)
	c := emptyCluster(t)
	c.src = filepath.Join(c.dir, "src")
	if err := os.Mkdir(c.src, 0o755); err != nil {
		t.Fatal(err)
	}
	for range n {
		c.add(args...).mount()
	}
	if n > 1 {
		c.awaitMembers(n)
	}
	return c
}

// add prepares one more mount.
func (c *testCluster) add(args ...string) *testMount {
	c.t.Helper()
	name := string(rune('a' + len(c.mounts)%26))
	if n := len(c.mounts) / 26; n > 0 {
		name += strconv.Itoa(n)
	}
	m := &testMount{c: c, src: c.src, dir: filepath.Join(c.dir, name), state: filepath.Join(c.dir, "state-"+name), args: args}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	c.mounts = append(c.mounts, m)
	c.t.Cleanup(m.remove)
	return m
}

// cmd is the program with args.
func (c *testCluster) cmd(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "XDG_STATE_HOME="+c.dir)
	return cmd
}

// run runs the program and returns what it printed; it must succeed.
func (c *testCluster) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("dmxfs %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// try runs the program; an error has what it wrote to standard error.
func (c *testCluster) try(args ...string) (string, error) { return output(c.cmd(args...)) }

func output(cmd *exec.Cmd) (string, error) { return outputTo(new(bytes.Buffer), cmd) }

// outputTo is output, with what goes to standard error also in stderr.
func outputTo(stderr *bytes.Buffer, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, stderr
	err := cmd.Start()
	if err == nil {
		// No command takes so long. A test that hangs leaves its mounts behind.
		late := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		late.Stop()
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return out.String(), err
}

func (m *testMount) mount() {
	m.c.t.Helper()
	if err := m.tryMount(); err != nil {
		m.c.t.Fatalf("mount: %v", err)
	}
}

func (m *testMount) tryMount() error {
	args := append([]string{"--state", m.state}, m.args...)
	if !slices.Contains(m.args, "--listen") {
		args = append(args, "--listen", "/ip4/127.0.0.1/tcp/0")
	}
	cmd := m.c.cmd(append(args, m.src, m.dir)...)
	if m.ns != "" {
		cmd.Args = append([]string{"nsenter", "--net=/run/netns/" + m.ns, "/proc/self/exe"}, cmd.Args[1:]...)
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd.Args[2] = self
		if cmd.Path, err = exec.LookPath("nsenter"); err != nil {
			return err
		}
	}
	if m.boot != "" {
		m.rebooted(cmd)
	}
	told := new(bytes.Buffer)
	_, err := outputTo(told, cmd)
	m.told = told.String()
	if err != nil {
		return err
	}
	m.watcher = parent(m.daemon())
	return nil
}

// daemon is the process that serves the mount; 0 if there is none.
func (m *testMount) daemon() int {
	b, _ := os.ReadFile(filepath.Join(m.state, "lock"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	if pid != 0 && !alive(pid) {
		return 0
	}
	return pid
}

// alive reports whether a process runs: a zombie does not.
func alive(pid int) bool { return procState(pid) != "" && procState(pid) != "Z" }

// procState is the state of a process as proc_pid_stat(5) has it; empty if
// there is none.
func procState(pid int) string { return procStat(pid)[0] }

func parent(pid int) int {
	n, _ := strconv.Atoi(procStat(pid)[1])
	return n
}

// children are the processes that a process has started.
func children(pid int) (pids []int) {
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		if p, err := strconv.Atoi(e.Name()); err == nil && pid > 1 && parent(p) == pid {
			pids = append(pids, p)
		}
	}
	return pids
}

// procStat is the state and the parent of a process.
func procStat(pid int) [2]string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	if f := strings.Fields(rest); len(f) > 2 {
		return [2]string{f[0], f[1]}
	}
	return [2]string{}
}

func (m *testMount) mounted() bool { return m.c.mountedAt(m.dir) }

func (c *testCluster) mountedAt(dir string) bool {
	all, err := mountinfo.Read()
	if err != nil {
		c.t.Fatal(err)
	}
	e, ok := mountinfo.At(all, dir)
	return ok && e.Type == mountpoint.Type
}

// remove takes the mount away whatever state it is in, and tells what the
// daemon logged if the test has failed.
func (m *testMount) remove() {
	t := m.c.t
	pids := []int{m.daemon(), m.watcher}
	for _, pid := range pids {
		if pid > 1 {
			_ = unix.Kill(pid, unix.SIGCONT) // a test has stopped it
		}
	}
	err := m.c.unmount(m.dir)
	if err != nil {
		t.Errorf("unmount at the end of the test: %v", err)
	}
	if !m.ended(pids) {
		t.Errorf("the processes %v have not ended", pids)
		for _, pid := range []int{m.watcher, m.daemon(), pids[0]} {
			if pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	for m.mounted() && unix.Unmount(m.dir, unix.MNT_DETACH) == nil {
	}
	log := m.log()
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(log, bad) {
			t.Errorf("the log of %s has %q", m.dir, bad)
		}
	}
	if reports, err := crash.Reports(m.state); err == nil && len(reports) > m.crashes {
		b, _ := os.ReadFile(reports[len(reports)-1])
		t.Errorf("the daemon of %s crashed:\n%s", m.dir, b)
	}
	if t.Failed() && len(log) > 0 {
		t.Logf("the log of %s:\n%s", m.dir, log)
	}
}

// unmount unmounts dir at the end of a test. A program that was killed has its files
// open until the kernel has taken it apart, which can be after its parent was told.
func (c *testCluster) unmount(dir string) (err error) {
	for end := time.Now().Add(time.Minute); c.mountedAt(dir); waitALittle() {
		if _, err = c.try("unmount", dir); err == nil || time.Now().After(end) {
			break
		}
	}
	return err
}

// log is what the mount has logged: nothing is there until there is a line.
func (m *testMount) log() string {
	b, _ := os.ReadFile(mountlog.Path(m.state))
	return string(b)
}

// ended waits until the processes have ended, which is within moments, or have
// to be ended with force.
func (m *testMount) ended(pids []int) bool {
	for range 1500 {
		if !slices.ContainsFunc(pids, func(pid int) bool { return pid > 1 && alive(pid) }) {
			return true
		}
		waitALittle()
	}
	return false
}

// waitALittle is one turn of a loop that waits for a state.
func waitALittle() { <-time.After(10 * time.Millisecond) }

// await waits until ok, which is looked at again and again, for a time that
// is long beside what is expected. What takes long is looked at less often: a
// look is a command in most cases, and other tests need the processor.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	awaitFor(t, patienceOfTests/2, what, ok)
}

// awaitFor is await for what may take longer.
func awaitFor(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); {
		took := time.Since(began)
		if took > d {
			t.Fatalf("waited too long: %s", what)
		}
		<-time.After(min(max(took/10, 10*time.Millisecond), 100*time.Millisecond))
	}
}

// comesTo reports whether ok comes to be true within d.
func comesTo(d time.Duration, ok func() bool) bool {
	end, look := time.NewTimer(d), time.NewTicker(time.Millisecond)
	defer end.Stop()
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-end.C:
			return false
		}
	}
	return true
}

// path is a file of the mount.
func (m *testMount) path(name string) string { return filepath.Join(m.dir, name) }

// sh runs a shell command in the mount and returns its output and exit code.
func (m *testMount) sh(command string) (string, int) {
	m.c.t.Helper()
	p := m.start(command)
	return p.wait()
}

// proc is a shell command that runs in a mount.
type proc struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

// start starts a shell command in the mount, in a process group of its own.
func (m *testMount) start(command string) *proc {
	m.c.t.Helper()
	p := &proc{t: m.c.t, cmd: exec.Command("sh", "-c", command), done: make(chan struct{})}
	p.run(m)
	return p
}

// helper starts this binary as a helper, see helper_test.go.
func (m *testMount) helper(name string, args ...string) *proc {
	m.c.t.Helper()
	p := m.newHelper(name, args...)
	p.run(m)
	return p
}

// helperIn is helper in a directory of the mount.
func (m *testMount) helperIn(dir, name string, args ...string) *proc {
	m.c.t.Helper()
	p := m.newHelper(name, args...)
	p.runIn(m.path(dir))
	return p
}

func (m *testMount) newHelper(name string, args ...string) *proc {
	p := &proc{t: m.c.t, cmd: exec.Command("/proc/self/exe", args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), helperEnv+"="+name)
	return p
}

func (p *proc) run(m *testMount) { p.runIn(m.dir) }

func (p *proc) runIn(dir string) {
	p.cmd.Dir = dir
	if p.cmd.Stderr = &p.out; p.cmd.Stdout == nil {
		p.cmd.Stdout = &p.out
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is looked at by wait
		close(p.done)
	}()
	p.t.Cleanup(func() {
		p.signal(unix.SIGKILL)
		<-p.done
	})
}

// signal goes to all processes of the command.
func (p *proc) signal(s syscall.Signal) { _ = unix.Kill(-p.cmd.Process.Pid, s) }

// patienceOfTests is how long a program of a test may take. User-mode Linux is slow, and tests of full size are long.
var patienceOfTests = usualPatience

const usualPatience = 2 * time.Minute

func (p *proc) wait() (string, int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patienceOfTests):
		p.t.Fatalf("%v does not end", p.cmd.Args)
	}
	return p.out.String(), p.cmd.ProcessState.ExitCode()
}

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// endsWithin waits for the end, for a bounded time that is much longer than
// what is promised to users: machines that run tests are slow at times.
func (p *proc) ends(what string) {
	p.t.Helper()
	await(p.t, what, p.ended)
}

// blocked waits until n requests wait for a lock of the file.
func (m *testMount) blocked(file string, n int) { m.awaitCount(file, "waiting", n) }

// held waits until n locks of the file are held, in the whole cluster, and the
// journal of the mount has what led to that on its disk: it writes some
// milliseconds later than it grants, but before it answers.
func (m *testMount) held(file string, n int) {
	m.c.t.Helper()
	m.awaitCount(file, "held", n)
	m.journal("--last", "1")
}

func (m *testMount) awaitCount(file, state string, n int) {
	m.c.t.Helper()
	defer func() {
		if m.c.t.Failed() {
			m.c.t.Logf("locks:\n%s\njournal:\n%s", m.c.run("locks", "--all", m.dir), m.c.run("journal", m.dir))
		}
	}()
	await(m.c.t, fmt.Sprintf("%d of %s are %s", n, file, state), func() bool { return m.count(file, state) == n })
}

func (m *testMount) count(file, state string) int {
	n := 0
	for _, l := range m.locks() {
		if l.Path == file && l.State == state {
			n++
		}
	}
	return n
}
