package fusefs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperEnv makes the test program another program: one that makes the system
// calls it is told on its standard input, and says how they went.
const helperEnv = "DMXFS_TEST_HELPER"

// program is a helper that runs.
type testProgram struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startProgram starts a helper, as another user if cred is not nil. Files are
// its descriptors from 3 on.
func startProgram(t testing.TB, dir string, cred *syscall.Credential, files ...*os.File) *testProgram {
	t.Helper()
	p := &testProgram{t: t, cmd: exec.Command(thisProgram)}
	p.cmd.Env = append(os.Environ(), helperEnv+"=1")
	p.cmd.Dir = dir
	p.cmd.ExtraFiles = files
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setpgid: true}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	return p
}

// end lets it run out, or kills it if it does not, and cuts off the mount that it is in:
// no signal ends a call that a server has read and not answered.
func (p *testProgram) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.in.Close()
	timer := time.AfterFunc(5*time.Second, func() {
		p.cmd.Process.Kill()
		unix.Unmount(p.cmd.Dir, unix.MNT_FORCE)
	})
	p.cmd.Wait()
	if !timer.Stop() {
		p.t.Error("a helper was stuck in a call")
	}
}

func (p *testProgram) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// tell makes it begin a call, and answer gives the outcome.
func (p *testProgram) tell(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *testProgram) answer() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the helper is no more: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *testProgram) do(format string, args ...any) string {
	p.t.Helper()
	p.tell(format, args...)
	return p.answer()
}

// want makes a call whose outcome is known.
func (p *testProgram) want(outcome, format string, args ...any) {
	p.t.Helper()
	if got := p.do(format, args...); got != outcome {
		p.t.Errorf("%s: %s, want %s", fmt.Sprintf(format, args...), got, outcome)
	}
}

// open opens a file, and gives the descriptor in the helper.
func (p *testProgram) open(name, how string) int {
	p.t.Helper()
	s := p.do("open %s %s", name, how)
	fd, err := strconv.Atoi(strings.TrimPrefix(s, "ok "))
	if err != nil {
		p.t.Fatalf("open %s %s: %s", name, how, s)
	}
	return fd
}

// sleeping waits until the helper waits for the file system.
func (p *testProgram) sleeping() {
	p.t.Helper()
	await(p.t, "the helper waits for the file system", p.isSleeping)
}

func (p *testProgram) isSleeping() bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.cmd.Process.Pid))
	for _, where := range []string{"request_wait_answer", "fuse_", "folio_wait"} {
		if strings.Contains(string(b), where) {
			return true
		}
	}
	return false
}

// One thread makes all calls, and it is the one whose wchan is that of the
// process: later the first goroutine may run on another one.
func init() {
	if os.Getenv(helperEnv) != "" {
		runtime.LockOSThread()
	}
}

func runHelper(how string) {
	if how == "greet" { // after an exec; it must not be told anything before
		fmt.Println("ok")
	}
	signal.Ignore(syscall.SIGURG)
	if os.Getenv("DMXFS_TEST_CATCH") != "" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		w := strings.Fields(in.Text())
		text, err := helperCall(w)
		var errno syscall.Errno
		switch {
		case err == nil:
			fmt.Println(strings.TrimSpace("ok " + text))
		case errors.As(err, &errno):
			fmt.Println(cmpName(errno))
		default:
			fmt.Println(err)
		}
	}
	os.Exit(0)
}

func cmpName(e syscall.Errno) string {
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", int(e))
}

var openFlags = map[string]int{
	"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR, "creat": unix.O_CREAT, "excl": unix.O_EXCL,
	"trunc": unix.O_TRUNC, "append": unix.O_APPEND, "nonblock": unix.O_NONBLOCK, "tmpfile": unix.O_TMPFILE,
	"path": unix.O_PATH, "dir": unix.O_DIRECTORY, "nofollow": unix.O_NOFOLLOW,
}

var lockTypes = map[string]int16{"r": unix.F_RDLCK, "w": unix.F_WRLCK, "u": unix.F_UNLCK}

var lockCommands = map[string]int{
	"set": unix.F_SETLK, "setw": unix.F_SETLKW, "get": unix.F_GETLK,
	"ofdset": unix.F_OFD_SETLK, "ofdsetw": unix.F_OFD_SETLKW, "ofdget": unix.F_OFD_GETLK,
}

// errNoCall is the error of a helper that was told to make another call than
// those that it knows.
var errNoCall = errors.New("no such call")

// helperCall makes one call.
func helperCall(w []string) (text string, err error) {
	num := func(i int) int64 {
		n, err := strconv.ParseInt(w[i], 0, 64)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return n
	}
	for _, calls := range []func([]string, func(int) int64) (string, error){callOnDescriptor, callOnLock, callOnName, callOnContent} {
		if text, err = calls(w, num); err != errNoCall {
			return text, err
		}
	}
	return "", fmt.Errorf("%w: %s", errNoCall, w[0])
}

// callOnDescriptor makes a call through a descriptor, or uses mapped memory.
func callOnDescriptor(w []string, num func(int) int64) (string, error) {
	switch w[0] {
	case "open": // NAME FLAG,FLAG [MODE]
		flags := unix.O_CLOEXEC
		for _, f := range strings.Split(w[2], ",") {
			flags |= openFlags[f]
		}
		mode := uint32(0o644)
		if len(w) > 3 {
			mode = uint32(num(3))
		}
		fd, err := unix.Open(w[1], flags, mode)
		return strconv.Itoa(fd), err
	case "close":
		return "", unix.Close(int(num(1)))
	case "dup":
		fd, err := unix.Dup(int(num(1)))
		return strconv.Itoa(fd), err
	case "read": // FD OFF LEN
		b := make([]byte, num(3))
		n, err := unix.Pread(int(num(1)), b, num(2))
		return string(b[:max(n, 0)]), err
	case "write": // FD OFF TEXT
		_, err := unix.Pwrite(int(num(1)), []byte(w[3]), num(2))
		return "", err
	case "ftruncate":
		return "", unix.Ftruncate(int(num(1)), num(2))
	case "end":
		off, err := unix.Seek(int(num(1)), 0, unix.SEEK_END)
		return strconv.FormatInt(off, 10), err
	case "fsync":
		return "", unix.Fsync(int(num(1)))
	case "fchmod":
		return "", unix.Fchmod(int(num(1)), uint32(num(2)))
	case "setflags": // FD
		return "", unix.IoctlSetPointerInt(int(num(1)), unix.FS_IOC_SETFLAGS, 0)
	case "fallocate": // FD SIZE
		return "", unix.Fallocate(int(num(1)), 0, 0, num(2))
	case "fcopy": // FROM TO
		_, err := unix.CopyFileRange(int(num(1)), nil, int(num(2)), nil, 10, 0)
		return "", err
	case "fstat":
		var st unix.Stat_t
		err := unix.Fstat(int(num(1)), &st)
		return fmt.Sprintf("mode=%o uid=%d gid=%d size=%d", st.Mode, st.Uid, st.Gid, st.Size), err
	case "map": // FD LEN: kept for peek and poke
		m, err := unix.Mmap(int(num(1)), 0, int(num(2)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		helperMap = m
		return "", err
	case "peek": // OFF LEN
		return string(helperMap[num(1) : num(1)+num(2)]), nil
	case "poke": // OFF TEXT
		copy(helperMap[num(1):], w[2])
		return "", nil
	case "unmap":
		return "", unix.Munmap(helperMap)
	}
	return "", errNoCall
}

// callOnLock makes a call that locks, or is about the program itself.
func callOnLock(w []string, num func(int) int64) (string, error) {
	switch w[0] {
	case "flock": // FD ex|sh|un [nb]
		how := map[string]int{"ex": unix.LOCK_EX, "sh": unix.LOCK_SH, "un": unix.LOCK_UN}[w[2]]
		if len(w) > 3 {
			how |= unix.LOCK_NB
		}
		return "", unix.Flock(int(num(1)), how)
	case "lk": // FD COMMAND TYPE START LEN
		lk := unix.Flock_t{Type: lockTypes[w[3]], Start: num(4), Len: num(5)}
		err := unix.FcntlFlock(uintptr(num(1)), lockCommands[w[2]], &lk)
		if err == nil && strings.HasSuffix(w[2], "get") {
			for n, t := range lockTypes {
				if t == lk.Type {
					return fmt.Sprintf("%s %d %d pid=%d", n, lk.Start, lk.Len, lk.Pid), nil
				}
			}
		}
		return "", err
	case "umask":
		unix.Umask(int(num(1)))
		return "", nil
	case "exec": // become the same program again, with all descriptors
		os.Setenv(helperEnv, "greet")
		err := syscall.Exec(thisProgram, []string{w[1]}, os.Environ())
		return "", err
	case "keep": // FD over exec
		_, err := unix.FcntlInt(uintptr(num(1)), unix.F_SETFD, 0)
		return "", err
	}
	return "", errNoCall
}

// callOnName makes a call with a name.
func callOnName(w []string, num func(int) int64) (string, error) {
	switch w[0] {
	case "truncate":
		return "", unix.Truncate(w[1], num(2))
	case "mkdir":
		return "", unix.Mkdir(w[1], uint32(num(2)))
	case "symlink":
		return "", unix.Symlink(w[1], w[2])
	case "mkfifo":
		return "", unix.Mkfifo(w[1], uint32(num(2)))
	case "link":
		return "", unix.Link(w[1], w[2])
	case "rename":
		return "", unix.Rename(w[1], w[2])
	case "unlink":
		return "", unix.Unlink(w[1])
	case "rmdir":
		return "", unix.Rmdir(w[1])
	case "utimes":
		return "", unix.UtimesNanoAt(unix.AT_FDCWD, w[1], []unix.Timespec{{Sec: 1}, {Sec: 2}}, 0)
	case "setxattr":
		return "", unix.Setxattr(w[1], w[2], []byte(w[3]), 0)
	case "removexattr":
		return "", unix.Removexattr(w[1], w[2])
	case "chmod":
		return "", unix.Chmod(w[1], uint32(num(2)))
	case "chown":
		return "", unix.Chown(w[1], int(num(2)), int(num(3)))
	case "stat":
		var st unix.Stat_t
		err := unix.Lstat(w[1], &st)
		return fmt.Sprintf("mode=%o uid=%d gid=%d size=%d", st.Mode, st.Uid, st.Gid, st.Size), err
	case "ls":
		es, err := os.ReadDir(w[1])
		var names []string
		for _, e := range es {
			names = append(names, e.Name())
		}
		slices.Sort(names)
		return strings.Join(names, " "), err
	case "getxattr":
		b := make([]byte, 4096)
		n, err := unix.Getxattr(w[1], w[2], b)
		return string(b[:max(n, 0)]), err
	case "listxattr":
		size, err := unix.Listxattr(w[1], nil)
		if err != nil || size == 0 {
			return "none", err
		}
		b := make([]byte, size)
		n, err := unix.Listxattr(w[1], b)
		names := strings.Split(strings.TrimSuffix(string(b[:max(n, 0)]), "\x00"), "\x00")
		slices.Sort(names)
		_, short := unix.Listxattr(w[1], b[:size-1])
		return fmt.Sprint(strings.Join(names, " "), " ", short), err
	}
	return "", errNoCall
}

// callOnContent opens a file by its name for one thing.
func callOnContent(w []string, num func(int) int64) (string, error) {
	switch w[0] {
	case "cat":
		b, err := os.ReadFile(w[1])
		return string(b), err
	case "put": // NAME TEXT
		return "", os.WriteFile(w[1], []byte(w[2]), 0o644)
	case "overwrite", "allocate", "copy": // NAME ARG: without O_TRUNC, which counts as a write itself
		fd, err := unix.Open(w[1], unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		switch w[0] {
		case "overwrite": // TEXT
			_, err = unix.Write(fd, []byte(w[2]))
		case "allocate": // SIZE
			err = unix.Fallocate(fd, 0, 0, num(2))
		case "copy": // FROM
			var from int
			if from, err = unix.Open(w[2], unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
				_, err = unix.CopyFileRange(from, nil, fd, nil, 10, 0)
				unix.Close(from)
			}
		}
		return "", err
	}
	return "", errNoCall
}

var helperMap []byte
