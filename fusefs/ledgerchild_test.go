package fusefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
)

// A child with a ledger is killed, and another one goes on. What the first one had open
// stays open in a keeper, a process that shares its table of descriptors and does nothing.
// It ends when the test closes its end of a pipe, or is no more.

// keptConfig is the part of a child's configuration that is about its ledger.
type keptConfig struct {
	Generation uint64      // 0: it has none
	Locks      string      // file with the state of the fake locker
	After      []KeptState // of those before it, the newest last; empty: there is nothing to go on with
	Expelled   bool        // all locks were lost meanwhile
	Suspended  bool        // it goes on in a node that is not live yet
	Dies       bool        // as soon as its own ledger counts
	Crash      Crash       // or there, at the first time
	Alone      bool        // there is no other host
	// PID and Other are where the memory is of what another host has changed; 0: there is none.
	PID, Other int
}

// KeptState is what the next child needs.
type KeptState struct {
	PID, Keeper      int
	Tables, Requests int // descriptors
	Recent           int
	Generation       uint64
}

// lifelineFD ends with the test.
const lifelineFD = 4

var keeperByte byte

// startKeeper makes the keeper, see clone(2) about CLONE_FILES. It is a fork without
// exec, so it calls nothing of the runtime.
func startKeeper() (pid int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, old unix.Sigset_t // no handler of the runtime must run there
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, err
	}
	pid, e := cloneKeeper()
	err = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	if e != 0 {
		return 0, e
	}
	return pid, err
}

//go:norace
//go:noinline
func cloneKeeper() (int, syscall.Errno) {
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_FILES|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid == 0 {
		syscall.RawSyscall(syscall.SYS_READ, lifelineFD, uintptr(unsafe.Pointer(&keeperByte)), 1)
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return int(pid), e
}

func ledgerForm() shm.Form {
	f := shm.Form{Version: LedgerVersion, Texts: 1 << 16}
	for _, t := range LedgerForm {
		f.Tables = append(f.Tables, shm.Spec{Words: t.Words, Texts: t.Texts, Max: t.Max})
	}
	return f
}

// beginKept mounts with a ledger, or goes on with that of a child that was killed.
func beginKept(c *keptConfig, o Options, ctl *control) (s *Server, accept func() (net.Conn, error), err error) {
	sock, err := controlSocket()
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(lifelineFD)
	accept = func() (net.Conn, error) { return sock, nil }
	ctl.kept = KeptState{PID: os.Getpid(), Generation: c.Generation}
	if ctl.kept.Keeper, err = startKeeper(); err != nil {
		return nil, nil, fmt.Errorf("keeper: %w", err)
	}
	tables, err := shm.Create("tables", c.Generation, ledgerForm())
	if err != nil {
		return nil, nil, err
	}
	requests, err := NewRequests(c.Generation)
	if err != nil {
		return nil, nil, err
	}
	if err := c.recent(&o); err != nil {
		return nil, nil, err
	}
	ctl.kept.Tables, ctl.kept.Requests, ctl.kept.Recent = tables.FD(), requests.FD(), o.Recent.FD()
	if err := c.announce(ctl.kept); err != nil {
		return nil, nil, err
	}
	if o.Ledger = (&Ledger{tables, requests}); c.Dies {
		o.Ledger.Tables = dyingTables{tables}
	}
	ctl.locker.file = c.Locks
	if len(c.After) == 0 {
		ctl.locker.mu.Lock()
		ctl.locker.save()
		ctl.locker.mu.Unlock()
		s, err = New(o)
	} else {
		s, err = succeed(c, o, ctl, tables)
	}
	if err == nil {
		s.fs.point, s.fs.conn.point = ctl.point, ctl.point
	}
	if c.Crash.Where != "" {
		ctl.crash.Store(&c.Crash)
	}
	return s, accept, err
}

// announce tells what this child has made before anything of it counts.
func (c *keptConfig) announce(x KeptState) error {
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return os.WriteFile(c.Locks+".kept", b, 0o600)
}

// dyingTables have their process killed when they have begun to count.
type dyingTables struct{ *shm.Tables }

func (d dyingTables) Put(table int, words []uint64) (uint32, error) {
	n, err := d.Tables.Put(table, words)
	if table == LedgerWhose && err == nil {
		unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	return n, err
}

// keptBy are descriptors that a child has left, by its keeper.
type keptBy struct {
	KeptState
	pidfd int
}

func (x *keptBy) take(fd int) int {
	got, err := unix.PidfdGetfd(x.pidfd, fd, 0)
	if err == unix.EBADF { // as with O_PATH, see ResumeKilled
		got, err = unix.Open(fmt.Sprintf("/proc/%d/fd/%d", x.Keeper, fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "descriptor %d: %v\n", fd, err)
		return -1
	}
	return got
}

// awaitEnd waits until the child does nothing any more.
func (x *keptBy) awaitEnd() error {
	requests, err := OpenRequests(x.take(x.Requests), x.Generation)
	if err != nil {
		return err
	}
	defer requests.Close()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-look.C {
		switch ended, err := requests.Ended(x.PID); {
		case err != nil || ended:
			return err
		case time.Now().After(end):
			return errors.New("the process that was killed goes on")
		}
	}
}

// newest are the tables that count, and who has left them.
func newest(after []*keptBy) (*shm.Tables, *keptBy, error) {
	var all []shm.Candidate
	for _, x := range after {
		all = append(all, shm.Candidate{FD: x.take(x.Tables), Generation: x.Generation})
	}
	t, err := shm.OpenNewest(ledgerForm(), LedgerWhose, all)
	if err != nil {
		return nil, nil, err
	}
	for i, c := range all {
		if c.Generation == t.Generation() {
			return t, after[i], nil
		}
	}
	panic("tables of another generation")
}

// succeed goes on with what other children have left, with own as its tables.
func succeed(c *keptConfig, o Options, ctl *control, own *shm.Tables) (*Server, error) {
	b, err := os.ReadFile(c.Locks)
	if err == nil {
		err = ctl.locker.inherit(b)
	}
	if err != nil {
		return nil, err
	}
	var after []*keptBy
	for _, x := range c.After {
		pidfd, err := unix.PidfdOpen(x.Keeper, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(pidfd)
		after = append(after, &keptBy{x, pidfd})
		if err := after[len(after)-1].awaitEnd(); err != nil { // no other one serves before that
			return nil, err
		}
	}
	tables, x, err := newest(after)
	if err != nil {
		return nil, err
	}
	requests, err := OpenRequests(x.take(x.Requests), x.Generation)
	if err != nil {
		return nil, err
	}
	s, err := ResumeKilled(o, tables, requests, func(old int) (int, error) { return x.take(old), nil })
	if err != nil {
		return nil, err
	}
	if err := own.Supersede(tables, LedgerWhose); err != nil {
		return nil, err
	}
	if c.Suspended {
		ctl.locker.suspend(true)
	}
	if c.Expelled {
		ctl.locker.expel()
		s.Expelled()
	}
	for _, x := range after {
		err = errors.Join(err, unix.Kill(x.Keeper, unix.SIGKILL))
	}
	return s, errors.Join(err, tables.Close(), requests.Close())
}

// Crash is where the child kills itself.
type Crash struct {
	Op    uint32 // 0: any request
	Where string
	After int32 // so many times it does not
	Waits bool  // it does not at all, but the request waits there for CrashAt
}

func (c *control) point(op uint32, where string) {
	x := c.crash.Load()
	if x == nil || x.Op != 0 && x.Op != op || x.Where != where || atomic.AddInt32(&x.After, -1) >= 0 {
		return
	}
	for ; x.Waits; <-time.After(time.Millisecond) {
		if c.crash.Load() != x {
			return
		}
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// CrashAt has the child kill itself.
func (c *control) CrashAt(x Crash, _ *None) error {
	c.crash.Store(&x)
	return nil
}

// crashAt has the server kill itself, which it may do before it answers.
func (k *keptMount) crashAt(x Crash) {
	k.t.Helper()
	err := k.Call("Child.CrashAt", x, &None{})
	if err == nil {
		return
	}
	select {
	case exit := <-k.exited:
		k.exited <- exit
	case <-time.After(20 * time.Second):
		k.t.Fatalf("CrashAt: %v", err)
	}
}

// Kept tells what the next child needs.
func (c *control) Kept(_ None, x *KeptState) error {
	*x = c.kept
	return nil
}

// Unknown gives up the locks of open files that the mount does not know, and tells how
// many there were.
func (c *control) Unknown(_ None, n *int) error {
	for k, hs := range c.locker.handles() {
		for _, h := range hs {
			if !c.s.Knows(h) {
				*n++
				c.locker.UnlockHandle(k, h, "nobody has it open")
			}
		}
	}
	return nil
}

// DropAll gives up what the other node has locked.
func (c *control) DropAll(None, *None) error {
	l := c.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.held {
		l.clear(k, locks.Whole, func(x fakeLock) bool { return x.remote > 0 })
	}
	l.save()
	return nil
}

// Fail has what was written to a file fail to be written out.
func (c *control) Fail(k locks.Key, _ *None) error {
	for _, n := range c.s.fs.tree.ofFile(k.File) {
		n.unwritten.failed(unix.ENOSPC)
		n.noteUnwritten()
		c.s.fs.tree.unpin(n)
	}
	return nil
}

// handles are those through which this node has locks.
func (l *fakeLocker) handles() map[locks.Key][]locks.HandleID {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[locks.Key][]locks.HandleID{}
	for k, xs := range l.held {
		for _, x := range xs {
			if x.remote == 0 && !slices.Contains(all[k], x.handle) {
				all[k] = append(all[k], x.handle)
			}
		}
	}
	return all
}

// save writes down what is locked, before anybody hears of it. REQUIRES: mu held.
func (l *fakeLocker) save() {
	if l.file == "" {
		return
	}
	b, err := json.Marshal(l.state())
	if err == nil {
		err = os.WriteFile(l.file+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(l.file+".new", l.file)
	}
	if err != nil {
		panic(err)
	}
}

// keptMount is a mount whose server is killed again and again.
type keptMount struct {
	*testMount
	conf     childConfig
	lifeline *os.File // the end that children have
	next     KeptState
	tried    []KeptState // those who died before they had taken its place
	again    *Crash      // where the server after one that was killed is killed, too, in between
}

// mountKept mounts with a ledger.
func mountKept(t testing.TB, edit ...func(*childConfig)) *keptMount {
	t.Helper()
	needFuse(t)
	needRoot(t)
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { w.Close(); r.Close() }) // after all children have ended
	k := &keptMount{lifeline: r}
	k.testMount = mount(t, append(edit, func(c *childConfig) {
		c.Kept = keptConfig{Generation: 1, Locks: c.Mount + ".locks", Alone: true}
		c.lifeline = r
		k.conf = *c
	})...)
	k.next = ask[KeptState](k.testMount, "Kept", None{})
	return k
}

// within bounds a step of a test: what hangs is cut off.
func (k *keptMount) within(what string, step func()) {
	k.t.Helper()
	cmd := k.cmd
	timer := time.AfterFunc(20*time.Second, func() {
		k.t.Errorf("in vain waited until %s", what)
		unix.Unmount(k.dir, unix.MNT_FORCE) // cuts the connection, if nothing else
		cmd.Process.Kill()
	})
	defer timer.Stop()
	step()
}

// answer is the one of p, which waits for the mount.
func (k *keptMount) answer(p *testProgram) (s string) {
	k.t.Helper()
	k.within("a call returns", func() { s = p.answer() })
	return s
}

// killed waits until the server is dead, or as good as that.
func (k *keptMount) killed() {
	k.t.Helper()
	k.testMount.killed = true
	defer func() {
		if k.t.Failed() { // nobody goes on: what waits for that would be in the way of the test's end
			unix.Unmount(k.dir, unix.MNT_FORCE)
		}
	}()
	await(k.t, "the server is killed", func() bool {
		r, err := openedRequests(k.next)
		if err != nil {
			k.t.Fatal(err)
		}
		defer r.Close()
		ended, err := r.Ended(k.next.PID)
		return err == nil && ended
	})
	k.Close()
}

// openedRequests are those of a child that is dead, by its keeper.
func openedRequests(x KeptState) (*Requests, error) {
	f, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", x.Keeper, x.Requests), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	r, err := OpenRequests(f, x.Generation)
	if err != nil {
		unix.Close(f)
	}
	return r, err
}

// kill kills the server at once.
func (k *keptMount) kill() {
	k.t.Helper()
	must(k.t, k.cmd.Process.Kill())
	k.killed()
}

// goOn starts the next server.
func (k *keptMount) goOn() error {
	k.t.Helper()
	c := k.conf
	c.Kept.After = append([]KeptState{k.next}, k.tried...)
	c.Kept.Generation = k.next.Generation + uint64(len(c.Kept.After))
	c.lifeline = k.lifeline
	var m *testMount
	var err error
	k.within("the next server goes on", func() { m, err = startChild(k.t, c, nil) })
	if err != nil {
		return err
	}
	k.testMount, k.tried = m, nil
	k.within("the next server answers", func() { k.next = ask[KeptState](m, "Kept", None{}) })
	return nil
}

// succeeded starts the next server after one that was killed.
func (k *keptMount) succeeded() {
	k.t.Helper()
	k.killed()
	must(k.t, k.goOn())
}
