package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const roleEnv = "DMXFS_TEST_KEEPER_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "daemon":
		daemon()
	case "forbidden":
		forbids()
	case "taker":
		taker()
	}
	// The keepers of daemons that are killed go to this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func must[T any](x T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return x
}

// left is what a daemon says of itself.
type left struct {
	ID                             ID
	File, Removed, Pipe, Sock, Mem int
	Later                          int // opened after the keeper was made
	Closed                         int // and what was closed
	Path                           int // opened with O_PATH
}

// daemon opens what daemons open, has it kept, and waits to be killed. Descriptor 3 is
// the pipe of who watches.
func daemon() {
	dir := os.Getenv("DMXFS_TEST_KEEPER_DIR")
	var l left
	l.File = must(unix.Open(filepath.Join(dir, "file"), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o600))
	must(unix.Write(l.File, []byte("before ")))
	if err := unix.Flock(l.File, unix.LOCK_EX); err != nil {
		panic(err)
	}
	l.Removed = must(unix.Open(filepath.Join(dir, "removed"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o400))
	must(unix.Write(l.Removed, []byte("nobody can open this")))
	os.Remove(filepath.Join(dir, "removed"))
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		panic(err)
	}
	l.Pipe = pipe[0]
	must(unix.Write(pipe[1], []byte("in the pipe")))
	socks := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))
	l.Sock = socks[0]
	must(unix.Write(socks[1], []byte("in the socket")))
	closed := must(unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	l.ID = must(Start(3, os.Getppid())).ID()
	unix.Close(closed)
	l.Mem = must(unix.MemfdCreate("test", unix.MFD_CLOEXEC))
	must(unix.Write(l.Mem, []byte("memory")))
	l.Later = must(unix.Open(filepath.Join(dir, "later"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600))
	l.Closed = l.Later + 100
	l.Path = must(unix.Open(filepath.Join(dir, "later"), unix.O_PATH|unix.O_CLOEXEC, 0))
	json.NewEncoder(os.Stdout).Encode(l)
	for {
		unix.Pause()
	}
}

// taker tries to take a descriptor, and says what came of it.
func taker() {
	pid, _ := strconv.Atoi(os.Getenv("DMXFS_TEST_KEEPER_PID"))
	f, err := Find(ID{pid, must(startOf(pid))})
	if err == nil {
		_, err = f.Take(0)
	}
	fmt.Print(err)
	os.Exit(0)
}

// kept is a daemon that was killed, and what it has left.
type kept struct {
	left
	dir      string
	lifeline *os.File // the other end
	cmd      *exec.Cmd
}

func startDaemon(t *testing.T) *kept {
	t.Helper()
	k := &kept{dir: t.TempDir()}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k.lifeline = w
	t.Cleanup(func() { w.Close() })
	k.cmd = exec.CommandContext(t.Context(), "/proc/self/exe")
	k.cmd.Env = append(os.Environ(), roleEnv+"=daemon", "DMXFS_TEST_KEEPER_DIR="+k.dir)
	k.cmd.ExtraFiles, k.cmd.Stderr = []*os.File{r}, os.Stderr
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		err = k.cmd.Start()
	}
	r.Close()
	if err == nil {
		err = json.NewDecoder(out).Decode(&k.left)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.kill()
		if f, err := Find(k.ID); err == nil {
			f.End()
		}
		awaitEnd(t, k.ID)
	})
	return k
}

func (k *kept) kill() {
	k.cmd.Process.Kill()
	k.cmd.Wait()
}

func (k *kept) find(t *testing.T) *Found {
	t.Helper()
	f, err := Find(k.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func take(t *testing.T, f *Found, fd int) int {
	t.Helper()
	got, err := f.Take(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(got) })
	return got
}

func read(t *testing.T, fd int, at int64) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := unix.Pread(fd, b, at)
	if err == unix.ESPIPE {
		n, err = unix.Read(fd, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// awaitEnd returns when a process has ended, which somebody else waits for.
func awaitEnd(t *testing.T, id ID) {
	t.Helper()
	if pidfd, err := unix.PidfdOpen(id.PID, 0); err == nil {
		defer unix.Close(pidfd)
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 20_000); n != 1 {
			t.Fatalf("it does not end: %v", err)
		}
	}
	unix.Wait4(id.PID, nil, 0, nil)
}

// What a daemon that was killed had open the next one has: the same open files.
func TestTaken(t *testing.T) {
	k := startDaemon(t)
	k.kill()
	f := k.find(t)
	file := take(t, f, k.File)
	if _, err := unix.Write(file, []byte("after")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file, 0); got != "before after" {
		t.Errorf("the file has %q: it is not open for appending any more", got)
	}
	if flags, err := unix.FcntlInt(uintptr(file), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it outlives execve: %d, %v", flags, err)
	}
	other, err := unix.Open(filepath.Join(k.dir, "file"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("its lock: %v", err)
	}
	for fd, want := range map[int]string{k.Removed: "nobody can open this", k.Mem: "memory", k.Pipe: "in the pipe", k.Sock: "in the socket", k.Later: ""} {
		if got := read(t, take(t, f, fd), 0); got != want {
			t.Errorf("descriptor %d has %q, want %q", fd, got, want)
		}
	}
	if _, err := f.Take(k.Closed); !errors.Is(err, unix.EBADF) {
		t.Errorf("what was not open: %v", err)
	}
	// Again, by another look at it.
	if got := read(t, take(t, k.find(t), k.Removed), 0); got != "nobody can open this" {
		t.Errorf("taken again it has %q", got)
	}
	if err := f.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(k.ID); !errors.Is(err, ErrGone) { // though nobody has waited for it
		t.Errorf("after its end: %v", err)
	}
	awaitEnd(t, k.ID)
	if _, err := Find(k.ID); !errors.Is(err, ErrGone) {
		t.Errorf("after somebody has: %v", err)
	}
	// What was taken stays, with the lock.
	if err := unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("its lock: %v", err)
	}
}

// A keeper ends when who watches does, and not before.
func TestNothingIsLeftOver(t *testing.T) {
	k := startDaemon(t)
	k.kill()
	if _, err := k.lifeline.Write([]byte("x")); err != nil { // which means nothing
		t.Fatal(err)
	}
	take(t, k.find(t), k.File)
	k.lifeline.Close()
	awaitEnd(t, k.ID)
	if _, err := Find(k.ID); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	// Also while the daemon lives, which goes on.
	k = startDaemon(t)
	k.lifeline.Close()
	awaitEnd(t, k.ID)
	if err := k.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the daemon: %v", err)
	}
	k.kill()
	awaitEnd(t, k.ID)
}

// One that is killed has nothing any more, and says so.
func TestKeeperKilled(t *testing.T) {
	k := startDaemon(t)
	f := k.find(t)
	k.kill()
	unix.Kill(k.ID.PID, unix.SIGKILL)
	awaitEnd(t, k.ID)
	if _, err := f.Take(k.File); !errors.Is(err, ErrGone) {
		t.Errorf("taken: %v", err)
	}
	if _, err := Find(k.ID); !errors.Is(err, ErrGone) {
		t.Errorf("found: %v", err)
	}
	if err := f.End(); err != nil {
		t.Errorf("ended: %v", err)
	}
}

// A file that was opened with O_PATH is opened so again. Of one that is not found it is known
// whether it was not open, or whether the keeper has ended.
func TestTakenByPath(t *testing.T) {
	k := startDaemon(t)
	f := k.find(t)
	k.kill()
	got, err := f.TakePath(k.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(got)
	var st, want unix.Stat_t
	if err := errors.Join(unix.Fstat(got, &st), unix.Stat(filepath.Join(k.dir, "later"), &want)); err != nil || st.Ino != want.Ino {
		t.Errorf("it is another file: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(got), unix.F_GETFL, 0); err != nil || flags&unix.O_PATH == 0 {
		t.Errorf("it is not open by path: %x, %v", flags, err)
	}
	if got, err := f.TakePath(k.Removed); err != nil || read(t, got, 0) != "nobody can open this" {
		t.Errorf("another file: %d, %v", got, err)
	} else {
		unix.Close(got)
	}
	if got, err := f.TakePath(k.Closed); got != -1 || err != nil {
		t.Errorf("what was not open: %d, %v", got, err)
	}
	unix.Kill(k.ID.PID, unix.SIGKILL)
	awaitEnd(t, k.ID)
	for _, fd := range []int{k.Path, k.Closed, k.Removed} {
		if got, err := f.TakePath(fd); got != -1 || !errors.Is(err, ErrGone) {
			t.Errorf("when the keeper has ended: %d, %v", got, err)
		}
	}
}

// One that is stopped needs to do nothing, and goes on waiting when it goes on.
func TestKeeperFrozen(t *testing.T) {
	k := startDaemon(t)
	k.kill()
	f := k.find(t)
	for range 3 {
		unix.Kill(k.ID.PID, unix.SIGSTOP)
		if got := read(t, take(t, f, k.Removed), 0); got != "nobody can open this" {
			t.Errorf("it has %q", got)
		}
		unix.Kill(k.ID.PID, unix.SIGCONT)
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGURG, unix.SIGUSR1} {
		unix.Kill(k.ID.PID, s)
	}
	take(t, f, k.File)
	unix.Kill(k.ID.PID, unix.SIGSTOP)
	if err := f.End(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, k.ID)
}

// A number that is that of another process by now is not taken for the keeper.
func TestAnotherProcess(t *testing.T) {
	start, err := startOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Find(ID{os.Getpid(), start + 1}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if _, err := Find(ID{}); !errors.Is(err, ErrGone) {
		t.Errorf("none: %v", err)
	}
}

// Keepers are made and stopped while the runtime is at work in all threads.
func TestManyThreads(t *testing.T) {
	r, _ := lifeline(t)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			var keep [][]byte
			for {
				select {
				case <-stop:
					return
				default:
					keep = append(keep[len(keep)/100:], make([]byte, 1<<12))
				}
			}
		})
	}
	for range 30 {
		k, err := Start(r, os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", k.ID().PID)); err != nil || string(b) != "dmxfs-keeper\n" {
			t.Errorf("it is called %q, %v", b, err)
		}
		if err := k.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(k.ID().PID, 0); err != unix.ESRCH {
			t.Errorf("it is left: %v", err)
		}
	}
	close(stop)
	busy.Wait()
}

// lifeline is a pipe whose other end this process does not have: a child has it.
func lifeline(t *testing.T) (r int, owner *exec.Cmd) {
	t.Helper()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = pw
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
		pr.Close()
	})
	return int(pr.Fd()), cmd // which makes it block
}

// A keeper that would not end is not made.
func TestLifelines(t *testing.T) {
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	for what, fd := range map[string]int{"that has its other end here": int(pr.Fd()), "for writing": int(pw.Fd()), "that is none": 999} {
		if _, err := Start(fd, 0); err == nil || !strings.Contains(err.Error(), "descriptor") {
			t.Errorf("a pipe %s: %v", what, err)
		}
	}
}

// Who may not trace is told why.
func TestRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	k := startDaemon(t)
	defer k.kill()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), roleEnv+"=taker", "DMXFS_TEST_KEEPER_PID="+strconv.Itoa(k.ID.PID))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "may not trace the keeper") {
		t.Errorf("%q, %v", out, err)
	}
}

// As far as it is clear beforehand, it is said when the keeper is to be made.
func TestYama(t *testing.T) {
	defer func(was string) { yama = was }(yama)
	yama = filepath.Join(t.TempDir(), "ptrace_scope")
	for _, c := range []struct {
		scope     string
		forbidden bool
	}{{"0", false}, {"1", !mayTrace()}, {"2", !mayTrace()}, {"3", true}} {
		if err := os.WriteFile(yama, []byte(c.scope+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := forbidden(0); (err != nil) != c.forbidden {
			t.Errorf("%s: %v", c.scope, err)
		}
		if err := notAllowed(unix.EPERM); !errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "Yama") != (c.scope != "0") {
			t.Errorf("%s: %v", c.scope, err)
		}
	}
	r, _ := lifeline(t)
	if _, err := Start(r, 0); err == nil || !strings.Contains(err.Error(), "ptrace_scope is 3") {
		t.Errorf("a keeper was made: %v", err)
	}
}

// Sockets are found among all that a keeper has, and what is known to be none is not looked at.
func TestSockets(t *testing.T) {
	k := startDaemon(t)
	list, err := k.find(t).Sockets(func(int) bool { return false })
	if err != nil || len(list) != 2 || list[0] != k.Sock && list[1] != k.Sock { // both ends
		t.Errorf("sockets: %v, %v, want %d and its other end", list, err, k.Sock)
	}
	list, err = k.find(t).Sockets(func(fd int) bool { return fd == k.Sock })
	if err != nil || len(list) != 1 || list[0] == k.Sock {
		t.Errorf("sockets but %d: %v, %v", k.Sock, list, err)
	}
}
