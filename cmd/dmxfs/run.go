package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
)

// How dmxfs run ends beside the exit number of the command; as env(1) and
// timeout(1), as far as those have the case.
const (
	runLost     = 123 // the lock was lost, and the command was ended
	runTimeout  = 124 // the lock could not be had in time; the command was not run
	runFailure  = 125 // dmxfs run itself failed; the command was not run
	runNoExec   = 126 // the command cannot be executed
	runNotFound = 127 // there is no such command
)

// probeEvery is how often a lock is looked at while the command runs.
const probeEvery = 200 * time.Millisecond

func newRunCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] PATH -- COMMAND [ARGUMENT...]",
		Short: "Run a command under a lock",
		Long: `Run a command while holding a lock (flock) on PATH, a file below a dmxfs mount,
which is made if there is none. Programs on all hosts that lock the same file,
by dmxfs run, flock(1) or flock(2), are kept apart.

The exit number is that of the command, or 128 and the signal that ended it;
else 123: the lock was lost and the command ended for that, 124: the lock could
not be had in time, 125: the lock could not be had at all, 126 and 127: the
command cannot be executed or found.

When the lock is lost, because the other hosts had to go on without this one,
the command and all that it has started get SIGTERM, and later SIGKILL.
DMXFS_TOKEN is the fencing token of the lock in the command's environment.`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.MinimumNArgs(2)(c, args); err != nil {
				return exitcode.With(runFailure, fmt.Errorf("%w: dmxfs run PATH -- COMMAND (see dmxfs run --help)", err))
			}
			return nil
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return exitcode.With(runFailure, fmt.Errorf("%w (see dmxfs run --help)", err))
	})
	shared := c.Flags().Bool("shared", false, "a lock for reading, beside others of the kind")
	exclusive := c.Flags().Bool("exclusive", false, "a lock for writing, alone (the default)")
	wait := time.Duration(-1)
	c.Flags().Var(config.Limit(&wait, ""), "wait", "how long to wait for the lock, 0s for not at all (default without end)")
	grace := 5 * time.Second
	c.Flags().Var(config.Limit(&grace, ""), "kill-after", "when the lock is lost, how long after SIGTERM to send SIGKILL")
	c.Flags().SetInterspersed(false)
	c.RunE = func(c *cobra.Command, args []string) error {
		if *shared && *exclusive {
			return exitcode.With(runFailure, errors.New("--shared and --exclusive: give one of them"))
		}
		if args[1] == "--" {
			args = append(args[:1:1], args[2:]...)
		}
		if len(args) < 2 {
			return exitcode.With(runFailure, errors.New("no command given: dmxfs run PATH -- COMMAND"))
		}
		r := runner{path: args[0], how: unix.LOCK_EX, wait: wait, grace: grace, s: s}
		if *shared && !*exclusive {
			r.how = unix.LOCK_SH
		}
		return r.run(c.Context(), args[1:])
	}
	return c
}

// runner is one dmxfs run.
type runner struct {
	path  string
	how   int           // LOCK_EX or LOCK_SH
	wait  time.Duration // negative: without end
	grace time.Duration
	s     streams
}

func (r *runner) run(ctx context.Context, command []string) error {
	lock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	// What the command leaves behind when it ends becomes a child of this
	// process, so that it is found if the lock is lost.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return exitcode.With(runFailure, fmt.Errorf("prctl: %w", err))
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.s.in, r.s.out, r.s.err
	// The command has the lock, too: it stays if this process is killed.
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Env = append(os.Environ(), tokenOf(lock)...)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		code := runNoExec
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = runNotFound
		}
		return exitcode.With(code, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	lost := make(chan error, 1)
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go probe(watch, lock, lost)
	for {
		select {
		case err := <-ended:
			// Others need not wait for descriptors that the command has left
			// to programs in the background.
			_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
			return commandError(cmd, err)
		case sig := <-signals:
			if s, ok := sig.(unix.Signal); ok && !fromTerminal(s) {
				_ = cmd.Process.Signal(s)
			}
		case err := <-lost:
			fmt.Fprintf(r.s.err, "dmxfs: the lock of %s is lost (%v): %s is ended\n", r.path, err, command[0])
			r.end(ended)
			return exitcode.With(runLost, errSilent)
		}
	}
}

// commandError makes the end of the command that of this program.
func commandError(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	st := cmd.ProcessState
	if st == nil {
		return exitcode.With(runFailure, err)
	}
	code := st.ExitCode()
	if w, ok := st.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		code = 128 + int(w.Signal())
	} else if code == 0 { // its output could not be passed on
		return exitcode.With(exitcode.Failure, err)
	}
	return exitcode.With(code, errSilent)
}

// lock opens the file and locks it.
func (r *runner) lock(ctx context.Context) (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	// The calls block, and end with the process at the latest.
	done := make(chan result, 1)
	go func() {
		f, err := r.openAndLock()
		done <- result{f, err}
	}()
	var limit <-chan time.Time
	if r.wait > 0 {
		timer := time.NewTimer(r.wait)
		defer timer.Stop()
		limit = timer.C
	}
	timeout := func(why string) error {
		return exitcode.With(runTimeout, fmt.Errorf("the lock of %s could not be had: %s (dmxfs locks shows who holds it)", r.path, why))
	}
	select {
	case x := <-done:
		switch {
		case x.err == nil:
			return x.f, nil
		case errors.Is(x.err, unix.EWOULDBLOCK):
			return nil, timeout("another program holds it")
		case errors.Is(x.err, unix.ETIMEDOUT):
			return nil, timeout("another program holds it for longer than the mount lets anybody wait (its option wait)")
		case errors.Is(x.err, unix.ENOLCK):
			return nil, exitcode.With(runFailure, fmt.Errorf("lock %s: dmxfs cannot guarantee a lock at the moment (see dmxfs status)", r.path))
		}
		if exitcode.Of(x.err) != exitcode.Failure {
			return nil, x.err
		}
		return nil, exitcode.With(runFailure, x.err)
	case <-limit:
		return nil, timeout(fmt.Sprintf("another program holds it for longer than %v", r.wait))
	case <-ctx.Done():
		return nil, exitcode.With(128+int(unix.SIGINT), errors.New("interrupted while waiting for the lock"))
	}
}

func (r *runner) openAndLock() (*os.File, error) {
	if err := onMount(r.path); err != nil {
		return nil, err
	}
	// Not after the open, which waits for a writer if it is of a pipe.
	if st, err := os.Stat(r.path); err == nil && !st.Mode().IsRegular() {
		return nil, errIrregular(r.path)
	}
	flags, how := os.O_RDONLY, r.how
	if r.wait == 0 {
		flags, how = flags|unix.O_NONBLOCK, how|unix.LOCK_NB
	}
	f, err := os.OpenFile(r.path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(r.path, flags|os.O_CREATE, 0o666)
	} else if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(r.path, flags|os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errIrregular(r.path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if err != unix.EINTR {
			f.Close()
			return nil, &fs.PathError{Op: "lock", Path: r.path, Err: err}
		}
	}
}

func errIrregular(path string) error {
	return fmt.Errorf("%s is no regular file: the kernel passes only locks of those on to dmxfs; name a file", path)
}

// onMount reports an error if the file at path is not, or would not be, below
// a dmxfs mount: a lock there would be this host's own.
func onMount(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		var dir string
		if dir, err = filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
			real = filepath.Join(dir, filepath.Base(abs))
		}
	}
	if err != nil {
		return err
	}
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	if !mountpoint.OnDmxfs(all, real) {
		return fmt.Errorf("%s is not below a dmxfs mount: its locks would hold on this host only", path)
	}
	return nil
}

// tokenOf is the fencing token of a locked file, for the environment.
func tokenOf(f *os.File) []string {
	b := make([]byte, 32)
	n, err := unix.Fgetxattr(int(f.Fd()), "user.dmxfs.token", b)
	if err != nil {
		return nil
	}
	return []string{"DMXFS_TOKEN=" + string(b[:n])}
}

// probe looks again and again whether the lock is still there, and tells lost
// when it is not. The call asks dmxfs each time and costs nothing below; it
// waits while the host is cut off and nothing is decided.
func probe(ctx context.Context, lock *os.File, lost chan<- error) {
	conn, err := lock.SyscallConn() // keeps the descriptor while a call is under way
	if err != nil {
		lost <- err
		return
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		if conn.Control(func(fd uintptr) { _, err = unix.Seek(int(fd), 0, unix.SEEK_HOLE) }) != nil {
			return // the file is closed: the command has ended
		}
		switch err {
		case unix.EIO:
			lost <- errors.New("the other hosts went on without this one")
			return
		case unix.ENOTCONN, unix.ECONNABORTED:
			lost <- errors.New("the dmxfs daemon of this mount has ended")
			return
		}
	}
}

// fromTerminal reports whether the terminal has sent s to the command, too,
// because that is in the same process group.
func fromTerminal(s unix.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(tty)
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// end ends all that the command has started, and returns when it is gone.
func (r *runner) end(ended <-chan error) {
	signalAll(unix.SIGTERM)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	kill := time.NewTimer(r.grace)
	defer kill.Stop()
	hard := false
	for {
		select {
		case <-tick.C:
		case <-kill.C:
			hard = true
		case <-ended:
			ended = nil
		}
		if hard {
			signalAll(unix.SIGKILL)
		}
		for ended == nil { // orphans of the command are ours to bury
			var st unix.WaitStatus
			if pid, err := unix.Wait4(-1, &st, unix.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
		if ended == nil && len(descendants(os.Getpid())) == 0 {
			return
		}
	}
}

func signalAll(s unix.Signal) {
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, s)
	}
}

// descendants are the processes that pid has started, and those that they have
// started, and so on.
func descendants(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(b)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}
