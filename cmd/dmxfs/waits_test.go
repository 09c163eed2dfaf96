package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keepOpen keeps a file open for reading and writing and does what standard
// input says, a line for each answer: keep-open FILE.
//
//	add N      adds one to the number in the file, N times
//	poke TEXT  writes through a mapping
//	peek N     reads N bytes through the mapping
func keepOpen(args []string) error {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(args[0], unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	m, err := unix.Mmap(fd, 0, mapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		what, arg, _ := strings.Cut(in.Text(), " ")
		answer := "ok"
		n, _ := strconv.Atoi(arg)
		switch what {
		case "add":
			for range n {
				if err := increment(fd); err != nil {
					answer = err.Error()
					break
				}
			}
		case "poke":
			copy(m, arg)
		case "peek":
			answer = string(m[:n])
		}
		fmt.Println(answer)
	}
	return nil
}

// keeper is a program on a mount that keeps a file open.
type keeper struct {
	t   testing.TB
	p   *proc
	in  io.WriteCloser
	out *bufio.Reader
}

func (m *testMount) keep(file string) *keeper { return m.converse("keep-open", file) }

// converse starts a helper that is told what to do, and answers, line by line.
func (m *testMount) converse(helper string, args ...string) *keeper {
	t := m.c.t
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, cmd: exec.Command("/proc/self/exe", args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), helperEnv+"="+helper)
	p.cmd.Stdin, p.cmd.Stdout = inR, outW
	p.run(m)
	inR.Close()
	outW.Close()
	t.Cleanup(func() { inW.Close(); outR.Close() })
	return &keeper{t, p, inW, bufio.NewReader(outR)}
}

func (k *keeper) tell(format string, args ...any) {
	k.t.Helper()
	if _, err := fmt.Fprintf(k.in, format+"\n", args...); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeper) answer() string {
	k.t.Helper()
	s, err := k.out.ReadString('\n')
	if err != nil {
		k.t.Fatalf("the program has ended: %v", err)
	}
	return strings.TrimSpace(s)
}

func (k *keeper) want(want, format string, args ...any) {
	k.t.Helper()
	k.tell(format, args...)
	if got := k.answer(); got != want {
		k.t.Errorf(format+": %s, want %s", append(args, got, want)...)
	}
}

// Two hosts keep one file open and use it in turns. What one of them does at a
// stretch is not overlapped by the other, which sees all of it.
func TestHostsTakeTurnsWithAFileThatTheyKeepOpen(t *testing.T) {
	t.Parallel()
	// Not at any pause, as streams do: what it adds to is read before.
	c := newCluster(t, 2, "--yield", "300ms", "--yield-stream", "never")
	a, b := c.mounts[0], c.mounts[1]
	write(t, a.path("data"), "100")
	ka, kb := a.keep("data"), b.keep("data")
	total := 100
	for range 3 {
		for _, k := range []*keeper{ka, kb} {
			k.want("ok", "add 20")
			total += 20
		}
	}
	for range 2 { // both at once
		ka.tell("add 30")
		kb.tell("add 30")
		for _, k := range []*keeper{ka, kb} {
			if got := k.answer(); got != "ok" {
				t.Error(got)
			}
		}
		total += 60
	}
	for _, k := range []*keeper{ka, kb} {
		k.want(fmt.Sprint(total), "peek 3")
	}
	// What is written through a mapping goes with the lock, too, and comes
	// with it.
	ka.want("ok", "poke AAA")
	kb.want("AAA", "peek 3")
	kb.want("ok", "poke BBB")
	ka.want("BBB", "peek 3")
	if out, code := b.sh("cat data"); code != 0 || out != "BBB" {
		t.Errorf("cat: %d %q", code, out)
	}
}

// With never, an idle file stays with its host; and the time limit ends the
// waits of others.
func TestTheTimeLimitOfWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--yield", "never", "--wait", "1500ms")
	a, b := c.mounts[0], c.mounts[1]
	write(t, a.path("open"), "100")
	kept := a.keep("open")
	kept.want("ok", "add 1")
	for _, kind := range []string{"flock", "fcntl", "ofd"} {
		a.helper("hold", kind, kind)
		a.held(kind, 1)
		if out, code := b.helper("take", kind, kind).wait(); code != 1 || !strings.Contains(out, "connection timed out") {
			t.Errorf("%s: %d %s", kind, code, out)
		}
	}
	if _, err := os.ReadFile(b.path("open")); !isErrno(err, unix.ETIMEDOUT) {
		t.Errorf("open: %v", err)
	}
	if err := os.Truncate(b.path("open"), 1); !isErrno(err, unix.ETIMEDOUT) {
		t.Errorf("truncate: %v", err)
	}
	for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_CREAT} {
		fd, err := unix.Open(b.path("open"), flags|unix.O_NONBLOCK, 0o644)
		if err != unix.EAGAIN {
			t.Errorf("open with O_NONBLOCK and %#x: %v", flags, err)
			unix.Close(fd)
		}
	}
	rows := b.journal("--event", "withdrawn")
	if len(rows) == 0 || !strings.Contains(rows[0].Reason, "waited as long as it may") {
		t.Errorf("the journal says: %+v", rows)
	}
	// The holder goes on as before.
	kept.want("ok", "add 1")
	kept.want("102", "peek 3")
}

func isErrno(err error, want unix.Errno) bool {
	if p, ok := err.(*os.PathError); ok {
		err = p.Err
	}
	return err == want
}

// I/O that cannot have the file back in time fails, and the next one asks again.
func TestTheTimeLimitOfIO(t *testing.T) {
	t.Parallel()
	// On a busy machine a program that is never idle may rest for 300 ms.
	c := newCluster(t, 2, "--yield", "2s")
	a := c.mounts[0]
	b := c.add("--yield", "2s", "--wait", "1s")
	b.mount()
	c.awaitMembers(3)
	write(t, a.path("data"), "100")
	kb := b.keep("data")
	kb.want("ok", "add 1")
	busy := a.keep("data")
	busy.tell("add 1000000000") // never idle
	await(t, "the other host uses the file", func() bool { return a.usesOpen("data") })
	kb.tell("add 1")
	if got := kb.answer(); !strings.Contains(got, "connection timed out") {
		t.Errorf("read: %s", got)
	}
	busy.p.signal(unix.SIGKILL)
	busy.p.ends("the busy program")
	kb.want("ok", "add 1")
}

// usesOpen reports whether a program of this mount's host holds an open lock, and has
// read or written: else it gives way at once.
func (m *testMount) usesOpen(file string) bool {
	self := m.peers().Self
	for _, l := range m.locks() {
		if l.Path == file && l.Class == "open" && l.State == "held" && l.Node == self && l.Use != "unused" {
			return true
		}
	}
	return false
}

func TestLongWaitsAreLogged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--log-waits", "200ms")
	a, b := c.mounts[0], c.mounts[1]
	hold := a.helper("hold", "flock", "f")
	a.held("f", 1)
	wait := b.helper("take", "flock", "f")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a program waits long for a lock", "path=f", "class=flock", fmt.Sprintf("pid=%d", wait.cmd.Process.Pid),
		fmt.Sprintf("holders=\"process %d (", hold.cmd.Process.Pid), "on host " + host,
	}
	found := func() (n int, line string) {
		for l := range strings.Lines(b.log()) {
			if strings.Contains(l, want[0]) {
				n, line = n+1, l
			}
		}
		return n, line
	}
	await(t, "the wait is logged, and again after twice the time", func() bool { n, _ := found(); return n >= 2 })
	_, line := found()
	for _, w := range want {
		if !strings.Contains(line, w) {
			t.Errorf("no %q in %s", w, line)
		}
	}
	hold.signal(unix.SIGKILL)
	if out, code := wait.wait(); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if strings.Contains(a.log(), want[0]) {
		t.Errorf("the host of the holder logs a wait, too")
	}
}

// A program that looks at what is appended to a file costs who appends one wait
// of a second, and after that next to nothing.
func TestWhoLooksOnIsAStream(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	write(t, a.path("log"), "begin\n")
	tail := exec.Command("tail", "-n", "+1", "-f", b.path("log"))
	out, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	t.Cleanup(func() { tail.Process.Kill(); tail.Wait() })
	next := func(want string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil || line != want {
			t.Fatalf("%v, %q, want %q", err, line, want)
		}
	}
	next("begin\n")
	began := time.Now()
	const appends = 30
	for i := range appends {
		line := fmt.Sprintf("line %d\n", i)
		f, err := os.OpenFile(a.path("log"), os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(line)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			t.Logf("the first one took %v", time.Since(began))
			began = time.Now()
		}
		if i < 3 {
			next(line) // it looks once a second
		}
	}
	for i := 3; i < appends; i++ {
		next(fmt.Sprintf("line %d\n", i))
	}
	// A section between writers would take ten seconds each time.
	if took := time.Since(began); took > 2*appends*time.Second {
		t.Errorf("%d more took %v", appends-1, took)
	}
	uses := map[string]bool{}
	for _, l := range a.locks() {
		if l.Path == "log" && l.Class == "open" && l.State == "held" {
			uses[l.Use] = true
			if l.IdleSince == nil {
				t.Errorf("%+v", l)
			}
		}
	}
	if len(uses) != 1 || !uses["stream"] {
		t.Errorf("the lock of tail(1) is shown as %v", uses)
	}
}
