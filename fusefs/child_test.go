package fusefs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// Mounts are served by a child process: a process that uses a file system
// which it serves itself can stand still (see go-fuse's package fuse, "Be
// careful when you access the FUSE mount from the same process"). The child is
// the test program again; test and child talk over a socket.

const childEnv = "DMXFS_TEST_CHILD"

// thisProgram can be run by other users, too, who cannot enter the directory
// in which it was built.
const thisProgram = "/proc/self/exe"

func TestMain(m *testing.M) {
	if conf := os.Getenv(childEnv); conf != "" {
		runChild(conf)
		return
	}
	if cmd := os.Getenv(helperEnv); cmd != "" {
		runHelper(cmd)
		return
	}
	if device := os.Getenv(namespaceEnv); device != "" {
		if err := enterNamespace(device); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	// Some wait for seconds, so that there can be more at a time than processors.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); !tests.Race && f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	tests.OneTurn()
	remove := tests.Scratch()
	code := m.Run()
	remove()
	os.Exit(code)
}

// childConfig is what the child mounts.
type childConfig struct {
	Root, Mount string
	Options     []string
	FileIDs     FileIDs
	TTL         time.Duration
	CacheTime   time.Duration
	Rule        *Rule
	NoMove      []string // paths that no file may get or lose
	Files       uint64   // limit of open files; 0: as it is
	// Caching: treat the storage as one whose client caches.
	Caching      bool
	NamesByTime  bool // as NFS
	KeepsNames   bool // as sshfs
	SillyRenames bool // as NFS
	Remote       bool
	Powerless    bool // the daemon has no rights beyond its own on files
	WriteThrough bool
	NullLocker   bool // for benchmarks
	Loopback     bool // go-fuse's own loopback instead
	Passthrough  bool // which the kernel may pass by
	LoopbackTTL  time.Duration
	Seconds      bool   // of the loopback: times are in whole seconds
	HoldAttr     bool   // of the loopback: see heldAttr
	HoldAnswers  uint32 // to requests of this kind, see heldAttr
	Suspended    bool   // from the beginning on
	AtOnce       bool   // new files are locked at once
	NoExpire     bool   // as on a kernel before 6.2
	RemovedRound time.Duration
	Hold         time.Duration
	PanicAt      string // the rule of this path cannot be told
	Kept         keptConfig
	lifeline     *os.File // see keptMount
}

func runChild(conf string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	var c childConfig
	if err := json.Unmarshal([]byte(conf), &c); err != nil {
		fail(err)
	}
	if c.Files > 0 {
		l := unix.Rlimit{Cur: c.Files, Max: c.Files}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			fail(err)
		}
		if err := without(unix.CAP_SYS_RESOURCE); err != nil {
			fail(err)
		}
	}
	if c.Powerless {
		if err := without(unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER); err != nil {
			fail(err)
		}
	}
	signal.Ignore(syscall.SIGINT)
	if c.Loopback {
		sock, err := controlSocket()
		if err != nil {
			fail(err)
		}
		runLoopback(c, sock, fail)
		return
	}
	ctl := &control{locker: newFakeLocker(), ended: make(chan error, 1)}
	o, err := c.options(ctl)
	if err != nil {
		fail(err)
	}
	s, accept, err := begin(&c, o, ctl)
	if err != nil {
		fail(err)
	}
	c.pretend(s.fs)
	ctl.s, ctl.locker.atOnce = s, c.AtOnce
	if c.Suspended {
		ctl.locker.suspend(true)
	}
	if c.HoldAnswers != 0 {
		s.fs.conn.held = func(opcode uint32) {
			if opcode == c.HoldAnswers {
				ctl.held.hold()
			}
		}
	}
	ctl.locker.coherence = s
	var locker Locker = ctl.locker
	if c.NullLocker {
		locker = nullLocker{}
	}
	go func() { ctl.ended <- s.Serve(context.Background(), locker) }()
	rs := rpc.NewServer()
	if err := rs.RegisterName("Child", ctl); err != nil {
		fail(err)
	}
	if sock, err := accept(); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
	} else {
		rs.ServeConn(sock) // until the test closes it, or is no more
	}
	s.Abort()
	<-s.Done()
}

// pretend makes the storage, or the kernel, one of another kind.
func (c *childConfig) pretend(f *fileSystem) {
	if c.Caching {
		f.storage.ClientCache = true
	}
	f.storage.NamesByTime, f.storage.SillyRenames, f.storage.KeepsNames = c.NamesByTime, c.SillyRenames, c.KeepsNames
	if c.Remote {
		f.storage.Remote = true
	}
	if c.NoExpire {
		f.entryTTL = 0
	}
	if c.RemovedRound > 0 {
		f.removedRound = c.RemovedRound
	}
}

// options are those of the mount that ctl is asked about.
func (c *childConfig) options(ctl *control) (Options, error) {
	root, err := os.Open(c.Root)
	if err != nil {
		return Options{}, err
	}
	mo, err := ParseMountOptions(c.Options)
	if err != nil {
		return Options{}, err
	}
	o := Options{
		Root: root, MountPoint: c.Mount, Mount: mo, FileIDs: c.FileIDs, TTL: c.TTL, CacheTime: c.CacheTime, Hold: c.Hold, WriteThrough: c.WriteThrough,
		LateWrite: ctl.lateWrite,
		Log:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if c.Rule != nil {
		o.Rule = func(string) Rule { return *c.Rule }
	}
	if c.PanicAt != "" {
		o.Rule = func(path string) Rule {
			if path == c.PanicAt {
				panic("no rule for " + path)
			}
			return DefaultRule
		}
	}
	if c.NoMove != nil {
		o.Movable = func(from, to string, dir bool) bool {
			for _, p := range c.NoMove {
				if from == p || to == p {
					return false
				}
			}
			return true
		}
	}
	return o, nil
}

// testMount is a mount and the child that serves it.
type testMount struct {
	*rpc.Client
	t         testing.TB
	dir, back string // the mount point, and the shared directory
	cmd       *exec.Cmd
	stderr    *strings.Builder
	exited    chan error
	lives     int // how often it was upgraded
	killed    bool
	log       string // file that has what would be in stderr; or empty
}

// mount mounts a new directory.
func mount(t testing.TB, edit ...func(*childConfig)) *testMount {
	t.Helper()
	base := tempDir(t)
	c := childConfig{Root: filepath.Join(base, "back"), Mount: filepath.Join(base, "mnt")}
	for _, e := range edit {
		e(&c)
	}
	for _, d := range []string{c.Root, c.Mount} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return mountConfig(t, c)
}

// tempDir is a directory that other users can enter.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dmxfs-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// needFuse skips a test where it cannot run.
func needFuse(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("no /dev/fuse:", err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func mountConfig(t testing.TB, c childConfig) *testMount {
	t.Helper()
	needFuse(t)
	tests.Limit(t, c.Mount)
	m, err := startChild(t, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// startChild starts a child and waits until it serves.
func startChild(t testing.TB, c childConfig, cred *syscall.Credential) (*testMount, error) {
	conf, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	m := &testMount{t: t, dir: c.Mount, back: c.Root, exited: make(chan error, 1), stderr: new(strings.Builder)}
	m.killed = c.Kept.Dies || c.Kept.Crash.Where != ""
	m.cmd = exec.Command(thisProgram)
	m.cmd.Env = append(os.Environ(), childEnv+"="+string(conf))
	m.cmd.ExtraFiles = []*os.File{theirs}
	m.cmd.Stderr = m.stderr
	if c.lifeline != nil {
		// A keeper would hold a pipe open.
		f, err := os.CreateTemp("", "dmxfs-test-stderr-")
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
		m.log, m.cmd.Stderr = f.Name(), f
		m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, c.lifeline)
	}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	theirs.Close()
	go func() { m.exited <- m.cmd.Wait() }()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	m.Client = rpc.NewClient(conn)
	dead := make(chan struct{}) // it does nothing any more, but may not come to its end yet
	if c.lifeline != nil {      // the keeper would keep the socket open
		over := make(chan struct{})
		go func() {
			exit := <-m.exited
			m.exited <- exit
			close(over)
			m.Close()
		}()
		if c.Kept.Crash.Where != "" && !c.Kept.Crash.Waits {
			go func() {
				m.closeWhenDead(&c.Kept, over)
				close(dead)
			}()
		}
	}
	t.Cleanup(m.stop)
	var ok Counts
	if err := m.Call("Child.Counts", None{}, &ok); err != nil {
		m.Close()
		exit := errors.New("it has killed itself")
		select {
		case exit = <-m.exited:
			m.exited <- exit
		case <-dead:
		}
		return nil, fmt.Errorf("the server did not start: %v: %s", exit, m.said())
	}
	return m, nil
}

func (m *testMount) stop() {
	m.Close()
	if m.killed {
		select {
		case <-m.exited:
		case <-time.After(20 * time.Second):
			m.t.Error("the server that was killed does not end")
		}
		if said := m.said(); m.t.Failed() && said != "" {
			m.t.Logf("server that was killed:\n%s", said)
		}
		return
	}
	select {
	case err := <-m.exited:
		m.exited <- err
		if err != nil { // as after a data race
			m.t.Errorf("the server ended with %v", err)
		}
	case <-time.After(time.Minute): // another test's namespace may have a copy of the mount
		m.t.Error("the server does not end; it is killed")
		m.cmd.Process.Signal(syscall.SIGQUIT)
		<-m.exited
	}
	if said := m.said(); m.t.Failed() && said != "" {
		m.t.Logf("server:\n%s", said)
	}
	if left := mountsBelow(m.dir); len(left) > 0 {
		m.t.Errorf("mounts left behind: %v", left)
		for range left {
			unix.Unmount(m.dir, unix.MNT_DETACH)
		}
	}
}

// said is what the server has written to its standard error.
func (m *testMount) said() string {
	if m.log == "" {
		return m.stderr.String()
	}
	b, _ := os.ReadFile(m.log)
	return string(b)
}

func mountsBelow(dir string) (found []string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && (f[4] == dir || strings.HasPrefix(f[4], dir+"/")) {
			found = append(found, f[4])
		}
	}
	return found
}

// ask calls the child, which must not fail.
func ask[R any](m *testMount, method string, arg any) R {
	m.t.Helper()
	var r R
	if err := m.Call("Child."+method, arg, &r); err != nil {
		m.t.Fatalf("%s: %v", method, err)
	}
	return r
}

func (m *testMount) path(name string) string    { return filepath.Join(m.dir, name) }
func (m *testMount) backing(name string) string { return filepath.Join(m.back, name) }

// key is the key of a file of the shared directory.
func (m *testMount) key(name string, c locks.Class) locks.Key {
	m.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(m.backing(name), &st); err != nil {
		m.t.Fatal(err)
	}
	return locks.Key{File: fmt.Sprintf("i%d", st.Ino), Class: c}
}

// remote takes a lock for the other node; the result gives it up.
func (m *testMount) remote(name string, c locks.Class, mode locks.Mode) (drop func()) {
	m.t.Helper()
	id := ask[int](m, "Hold", HoldArgs{m.key(name, c), mode, locks.Whole})
	return func() { m.t.Helper(); ask[None](m, "Drop", id) }
}

func (m *testMount) holders(name string, c locks.Class) int {
	m.t.Helper()
	return ask[int](m, "Holders", m.key(name, c))
}

// await waits until a condition holds; it is looked at again and again.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end, look := time.NewTimer(20*time.Second), time.NewTicker(time.Millisecond)
	defer end.Stop()
	defer look.Stop()
	for !cond() {
		select {
		case <-look.C:
		case <-end.C:
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// without runs the child again without some capabilities, which are the
// threads' own, and which only execve(2) takes from all of them.
func without(caps ...int) error {
	if os.Getenv(droppedEnv) != "" {
		return nil
	}
	runtime.LockOSThread()
	for _, c := range caps {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return err
		}
	}
	if err := os.Setenv(droppedEnv, "1"); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(3, unix.F_SETFD, 0); err != nil {
		return err
	}
	return syscall.Exec(thisProgram, os.Args, os.Environ())
}

const droppedEnv = "DMXFS_TEST_DROPPED"
