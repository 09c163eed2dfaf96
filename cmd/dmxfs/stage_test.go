package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stage is where actors are told what to do.
type stage struct {
	t   testing.TB
	dir string // of the sockets
	l   *net.UnixListener

	env     []string // of actors
	order   []string
	started []*exec.Cmd
	spawned map[string]bool // by another actor

	mu     sync.Mutex
	actors map[string]*actorConn
	last   int // number of the latest call
	joined chan struct{}
	once   sync.Once
}

// actorConn is the connection to an actor that runs.
type actorConn struct {
	pid   int
	conn  net.Conn
	ended bool // the process; guarded by stage.mu

	mu      sync.Mutex
	tids    map[int]int         // of the thread of a call
	answers map[int]chan string // of calls
	open    map[string]int      // the call that a thread is in
}

func newStage(t testing.TB) (*stage, error) {
	// Paths of sockets are short; that of t.TempDir may not be.
	dir, err := os.MkdirTemp("", "dmxfs-stage")
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/runner", Net: "unix"})
	if err != nil {
		return nil, err
	}
	st := &stage{t: t, dir: dir, l: l, spawned: map[string]bool{}, actors: map[string]*actorConn{}, joined: make(chan struct{}, 100)}
	go st.accept()
	return st, nil
}

func (st *stage) accept() {
	for {
		c, err := st.l.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(c)
		a := &actorConn{conn: c, tids: map[int]int{}, answers: map[int]chan string{}, open: map[string]int{}}
		name := ""
		if _, err := fmt.Fscanf(in, "%s %d\n", &name, &a.pid); err != nil {
			continue
		}
		st.mu.Lock()
		st.actors[name] = a
		st.mu.Unlock()
		go a.listen(in)
		st.joined <- struct{}{}
	}
}

func (a *actorConn) listen(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		n, tid := 0, 0
		if k, _ := fmt.Sscanf(line, "%d tid %d", &n, &tid); k == 2 {
			a.mu.Lock()
			a.tids[n] = tid
			a.mu.Unlock()
			continue
		}
		number, out, _ := strings.Cut(line, " ")
		_, _ = fmt.Sscan(number, &n)
		a.mu.Lock()
		c := a.answers[n]
		a.mu.Unlock()
		c <- out
	}
}

// start starts an actor in dir.
func (st *stage) start(name, dir string) error {
	cmd := exec.Command("/proc/self/exe", name, st.dir)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), helperEnv+"=actor", actorEnv), st.env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	st.started = append(st.started, cmd)
	return st.join(name)
}

// join waits until an actor has said its name.
func (st *stage) join(name string) error {
	select {
	case <-st.joined:
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("actor %s does not come", name)
	}
}

func (st *stage) end() { st.once.Do(st.clear) }

func (st *stage) clear() {
	st.l.Close()
	st.mu.Lock()
	for _, a := range st.actors {
		if !a.ended { // its number may be another's by now
			_ = unix.Kill(a.pid, unix.SIGKILL)
		}
		a.conn.Close()
	}
	st.mu.Unlock()
	for _, c := range st.started {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	if err := os.RemoveAll(st.dir); err != nil {
		st.t.Error(err)
	}
}

// do carries out one step and returns its outcome.
func (st *stage) do(s *semStep) (string, error) {
	st.mu.Lock()
	a := st.actors[s.actor]
	st.mu.Unlock()
	if a == nil {
		return "", fmt.Errorf("no actor %s", s.actor)
	}
	switch w := s.words[0]; w {
	case "kill", "stop", "cont":
		if err := unix.Kill(a.pid, signals[w]); err != nil {
			return "", err
		}
		if w == "kill" {
			return "ok", st.gone(a)
		}
		return "ok", nil
	case "signal": // to the thread, in the middle of its call
		a.mu.Lock()
		tid := a.tids[a.open[s.thread]]
		a.mu.Unlock()
		return "ok", unix.Tgkill(a.pid, tid, unix.SIGUSR1)
	case "result":
		a.mu.Lock()
		n := a.open[s.thread]
		a.mu.Unlock()
		return st.await(a, s, n)
	}
	n, err := st.tell(a, s)
	if err != nil {
		return "", err
	}
	switch s.words[0] {
	case "exit":
		return "ok", st.gone(a)
	case "exec":
		return "ok", st.join(s.actor)
	case "spawn":
		if out, err := st.await(a, s, n); err != nil || out != "ok" {
			return out, err
		}
		return "ok", st.join(s.words[1])
	}
	return st.await(a, s, n)
}

// tell makes an actor begin a call.
func (st *stage) tell(a *actorConn, s *semStep) (int, error) {
	st.mu.Lock()
	st.last++
	n := st.last
	st.mu.Unlock()
	thread := s.thread
	if thread == "" {
		thread = "main"
	}
	a.mu.Lock()
	a.answers[n] = make(chan string, 1)
	a.open[s.thread] = n
	a.mu.Unlock()
	_, err := fmt.Fprintf(a.conn, "%d %s %s\n", n, thread, strings.Join(s.words, " "))
	return n, err
}

// patience is how long a call that should end may take, and stillFor how often
// in a row a call that should wait is seen to wait.
const (
	patience = 30 * time.Second
	stillFor = 15
)

// await is the outcome of a call, or "waits" if it is what the step wants and
// the thread does not come back from the system call.
func (st *stage) await(a *actorConn, s *semStep, n int) (string, error) {
	a.mu.Lock()
	answer := a.answers[n]
	a.mu.Unlock()
	mayWait := s.want == "waits"
	for _, d := range s.differs {
		mayWait = mayWait || d.want == "waits"
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	still := 0
	for end := time.Now().Add(patience); ; {
		select {
		case out := <-answer:
			return out, nil
		case <-tick.C:
		}
		waits := a.waits(n)
		if still++; !waits {
			still = 0
		}
		if late := time.Now().After(end); mayWait && still >= stillFor || late && waits {
			return "waits", nil
		} else if late {
			return "", fmt.Errorf("no outcome")
		}
	}
}

// waits reports whether the thread of a call sleeps in a call about locks.
func (a *actorConn) waits(n int) bool {
	a.mu.Lock()
	tid := a.tids[n]
	a.mu.Unlock()
	if tid == 0 {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", a.pid, tid))
	if err != nil {
		return false
	}
	number := 0
	if _, err := fmt.Sscan(string(b), &number); err != nil {
		return false // it runs
	}
	return number == unix.SYS_FCNTL || number == unix.SYS_FLOCK || number == unix.SYS_OPENAT
}

// gone waits until the process of an actor is no more.
func (st *stage) gone(a *actorConn) error {
	err := a.gone()
	st.mu.Lock()
	a.ended = err == nil
	st.mu.Unlock()
	return err
}

// gone waits until the process has ended and its files are closed.
func (a *actorConn) gone() error {
	for end := time.Now().Add(patience); ; waitALittle() {
		b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(a.pid), "stat"))
		if err != nil {
			return nil
		}
		// A zombie without other threads has closed everything.
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", a.pid))
		if _, rest, ok := strings.Cut(string(b), ") "); ok && rest[0] == 'Z' && err == nil && len(threads) == 1 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d does not end", a.pid)
		}
	}
}

// newActors starts an actor on each of mounts, named a, b, …. They lock a file
// of their own first, as in TestSemantics, unless open locks are wanted.
func newActors(t testing.TB, openLocks bool, mounts ...*testMount) *stage {
	t.Helper()
	st, err := newStage(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.end)
	if openLocks {
		st.env = append(st.env, openLocksEnv+"=1")
	}
	for i, m := range mounts {
		if err := st.start(string(rune('a'+i)), m.dir); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// call makes an actor do something, "a.t flock x ex", and returns the outcome.
func (st *stage) call(format string, args ...any) string {
	st.t.Helper()
	return st.begin(format, args...).outcome()
}

// want is call with an outcome that is known.
func (st *stage) want(outcome, format string, args ...any) {
	st.t.Helper()
	if got := st.call(format, args...); got != outcome {
		st.t.Errorf("%s: %s, want %s", fmt.Sprintf(format, args...), got, outcome)
	}
}

// pendingCall is a call that an actor has begun.
type pendingCall struct {
	st    *stage
	step  semStep
	actor *actorConn
	n     int
	once  sync.Once
	got   string
}

func (st *stage) begin(format string, args ...any) *pendingCall {
	st.t.Helper()
	s, err := parseStep(fmt.Sprintf(format, args...) + " =>")
	if err != nil {
		st.t.Fatal(err)
	}
	st.mu.Lock()
	a := st.actors[s.actor]
	st.mu.Unlock()
	n, err := st.tell(a, &s)
	if err != nil {
		st.t.Fatal(err)
	}
	return &pendingCall{st: st, step: s, actor: a, n: n}
}

// waits waits until the call is seen to wait, and fails if it ends instead.
func (p *pendingCall) waits() *pendingCall {
	p.st.t.Helper()
	p.step.want = "waits"
	if out, err := p.st.await(p.actor, &p.step, p.n); err != nil || out != "waits" {
		p.st.t.Fatalf("%s: %s %v, want it to wait", p.step, out, err)
	}
	return p
}

// outcome waits for the end of the call.
func (p *pendingCall) outcome() string {
	p.st.t.Helper()
	p.once.Do(func() {
		p.step.want = ""
		out, err := p.st.await(p.actor, &p.step, p.n)
		if err != nil {
			p.st.t.Fatalf("%s: %v", p.step, err)
		}
		p.got = p.st.nameProcesses(out)
	})
	return p.got
}

// ended reports whether the call has ended.
func (p *pendingCall) ended() bool {
	p.actor.mu.Lock()
	defer p.actor.mu.Unlock()
	return p.got != "" || len(p.actor.answers[p.n]) > 0
}
