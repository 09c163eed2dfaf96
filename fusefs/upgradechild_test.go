package fusefs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// A child that is upgraded executes itself anew, as the daemon does. The socket
// to the test cannot be gone on with, since package rpc has a state; so the next
// life of the child listens on another one.

// upgradeEnv has what the next life needs beside its configuration.
const upgradeEnv = "DMXFS_TEST_UPGRADE"

// nextLife is the value of upgradeEnv.
type nextLife struct {
	State, FakeState int // descriptors of memory
	Listen           string
}

// UpgradeArgs say how.
type UpgradeArgs struct {
	Listen string        // path of the socket of the next life
	Limit  time.Duration // of Pause
	// Damage changes a byte of the state, so that it cannot be used.
	Damage bool
}

// Pause and Unpause are those of the mount.
func (c *control) Pause(limit time.Duration, _ *None) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.s.Pause(ctx)
}

func (c *control) Unpause(None, *None) error {
	c.s.Unpause()
	return nil
}

// Upgrade hands over; there is no answer if that succeeds.
func (c *control) Upgrade(a UpgradeArgs, _ *None) error {
	if err := c.Pause(a.Limit, nil); err != nil {
		return err
	}
	late := make(chan error, 1) // what the lock engine asks for when all is at rest
	go func() { late <- c.s.Refresh(locks.Key{Class: locks.Flock}) }()
	fake := c.locker.willWait()
	state, fds, err := c.s.Export()
	if err != nil {
		panic(err)
	}
	if err := <-late; !errors.Is(err, locks.ErrBequeathed) {
		panic(fmt.Sprintf("a refresh of a mount at rest: %v", err))
	}
	if a.Damage {
		state[len(state)-1]++
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			panic(err)
		}
	}
	next, err := json.Marshal(nextLife{inMemory(state), inMemory(fake), a.Listen})
	if err != nil {
		panic(err)
	}
	os.Setenv(upgradeEnv, string(next))
	panic(syscall.Exec(thisProgram, os.Args, os.Environ()))
}

// inMemory puts b into memory that outlives execve(2).
func inMemory(b []byte) int {
	fd, err := unix.MemfdCreate("state", 0)
	if err == nil {
		_, err = unix.Write(fd, b)
	}
	if err != nil {
		panic(err)
	}
	return fd
}

func fromMemory(fd int) ([]byte, error) {
	return os.ReadFile("/proc/self/fd/" + strconv.Itoa(fd))
}

// controlSocket is that of a first life.
func controlSocket() (net.Conn, error) {
	unix.CloseOnExec(3) // so that the test sees when this life ends
	return net.FileConn(os.NewFile(3, "control"))
}

// begin mounts, or goes on with what the life before has left. accept is where
// the test comes.
func begin(c *childConfig, o Options, ctl *control) (s *Server, accept func() (net.Conn, error), err error) {
	if c.Kept.Generation > 0 {
		return beginKept(&c.Kept, o, ctl)
	}
	if os.Getenv(upgradeEnv) != "" {
		return resumed(o, ctl)
	}
	sock, err := controlSocket()
	if err == nil {
		s, err = New(o)
	}
	return s, func() (net.Conn, error) { return sock, nil }, err
}

// resumed is the next life of a child.
func resumed(o Options, ctl *control) (s *Server, accept func() (net.Conn, error), err error) {
	var next nextLife
	if err := json.Unmarshal([]byte(os.Getenv(upgradeEnv)), &next); err != nil {
		return nil, nil, err
	}
	fake, err := fromMemory(next.FakeState)
	if err == nil {
		err = ctl.locker.inherit(fake)
	}
	if err != nil {
		return nil, nil, err
	}
	state, err := fromMemory(next.State)
	if err != nil {
		return nil, nil, err
	}
	unix.Close(next.State)
	unix.Close(next.FakeState)
	if s, err = Resume(o, state, func(fd int) int {
		unix.CloseOnExec(fd)
		return fd
	}); err != nil {
		return nil, nil, err
	}
	return s, func() (net.Conn, error) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next.Listen, Net: "unix"})
		if err != nil {
			return nil, err
		}
		defer l.Close()
		l.SetDeadline(time.Now().Add(20 * time.Second)) // if the test is no more
		return l.Accept()
	}, nil
}

// upgrade upgrades the child, and waits until the next one answers.
func (m *testMount) upgrade(a UpgradeArgs) error {
	m.t.Helper()
	m.lives++
	a.Listen = fmt.Sprintf("%s.%d", m.dir, m.lives)
	if a.Limit == 0 {
		a.Limit = 10 * time.Second
	}
	m.t.Cleanup(func() { os.Remove(a.Listen) })
	if err := m.Call("Child.Upgrade", a, &None{}); err == nil || err != rpc.ErrShutdown && err.Error() != "unexpected EOF" {
		return err
	}
	m.Close()
	var conn net.Conn
	await(m.t, "the next life of the server listens", func() (ok bool) {
		var err error
		conn, err = net.Dial("unix", a.Listen)
		select {
		case exit := <-m.exited:
			m.exited <- exit
			m.t.Fatalf("the server did not go on: %v: %s", exit, m.stderr)
		default:
		}
		return err == nil
	})
	m.Client = rpc.NewClient(conn)
	return nil
}

func (m *testMount) mustUpgrade() {
	m.t.Helper()
	if err := m.upgrade(UpgradeArgs{}); err != nil {
		m.t.Fatal(err)
	}
}

// savedFake is a fakeLocker at rest: savedFakeLock is a fakeLock, and so on.
type savedFake struct {
	Locks  []savedFakeLock
	Stale  []locks.Key
	Token  locks.Token
	Tenure locks.Tenure
	LastID int
}

type savedFakeLock struct {
	Key    locks.Key
	Owner  locks.OwnerID
	Handle locks.HandleID
	Mode   locks.Mode
	Range  locks.Range
	PID    int
	Remote int
}

// willWait ends all that waits, and describes the rest.
func (l *fakeLocker) willWait() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.wake()
	b, err := json.Marshal(l.state())
	if err != nil {
		panic(err)
	}
	return b
}

// state describes what is locked. REQUIRES: mu held.
func (l *fakeLocker) state() savedFake {
	s := savedFake{Token: l.token, Tenure: l.tenure, LastID: l.lastID}
	for k, xs := range l.held {
		for _, x := range xs {
			s.Locks = append(s.Locks, savedFakeLock{k, x.owner, x.handle, x.mode, x.rg, x.pid, x.remote})
		}
	}
	for k, yes := range l.stale {
		if yes {
			s.Stale = append(s.Stale, k)
		}
	}
	return s
}

func (l *fakeLocker) inherit(b []byte) error {
	var s savedFake
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	l.token, l.tenure, l.lastID = s.Token, s.Tenure, s.LastID
	for _, x := range s.Locks {
		l.held[x.Key] = append(l.held[x.Key], fakeLock{x.Owner, x.Handle, x.Mode, x.Range, x.PID, x.Remote})
	}
	for _, k := range s.Stale {
		l.stale[k] = true
	}
	return nil
}
