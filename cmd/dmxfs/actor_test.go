package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An actor is a program that makes the system calls which a case of
// TestSemantics tells it, one thread of it a time, and says how they went.
// It is told "NUMBER THREAD CALL..." over a unix socket, and answers
// "NUMBER OUTCOME". The Go runtime's own signals are off (see actorEnv), so
// that only those of the case interrupt a call.
type actor struct {
	name string
	dir  string // of the sockets
	conn net.Conn
	mail *net.UnixListener // where descriptors arrive

	out sync.Mutex

	mu      sync.Mutex
	fds     map[string]int
	maps    map[string][]byte
	threads map[string]chan []string
}

// actorEnv keeps the Go runtime from interrupting calls.
const actorEnv = "GODEBUG=asyncpreemptoff=1"

// openLocksEnv makes it a program that does not lock for itself at first.
const openLocksEnv = "DMXFS_TEST_OPEN_LOCKS"

// call makes a system call; what it says of success is "ok" if it is empty.
type call func(a *actor, w []string) (string, error)

func actorMain(args []string) error {
	a := &actor{
		name: args[0], dir: args[1], fds: map[string]int{}, maps: map[string][]byte{}, threads: map[string]chan []string{},
	}
	for _, w := range args[2:] {
		name, fd, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(fd)
		if err != nil {
			return err
		}
		a.fds[name] = n
	}
	if os.Getenv(openLocksEnv) == "" {
		if err := a.lockOnce(); err != nil {
			return fmt.Errorf("lock of its own: %w", err)
		}
	}
	var err error
	if a.mail, err = net.ListenUnix("unix", &net.UnixAddr{Name: a.mailbox(a.name), Net: "unix"}); err != nil {
		return err
	}
	if a.conn, err = net.Dial("unix", a.dir+"/runner"); err != nil {
		return err
	}
	fmt.Fprintf(a.conn, "%s %d\n", a.name, os.Getpid())
	in := bufio.NewScanner(a.conn)
	for in.Scan() {
		w := strings.Fields(in.Text())
		c := a.threads[w[1]]
		if c == nil {
			c = make(chan []string, 16)
			a.threads[w[1]] = c
			go a.thread(c)
		}
		c <- w
	}
	return nil
}

func (a *actor) mailbox(name string) string { return a.dir + "/mail-" + name }

// lockOnce locks a file of its own, so that what follows is about the locks
// that it asks for: a program that locks for itself takes no open locks.
func (a *actor) lockOnce() error {
	fd, err := unix.Open(".own-"+a.name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
}

// thread makes calls, all by one thread of the system.
func (a *actor) thread(c chan []string) {
	runtime.LockOSThread()
	for w := range c {
		a.say("%s tid %d", w[0], unix.Gettid())
		a.say("%s %s", w[0], a.outcome(w[2:]))
	}
}

func (a *actor) say(format string, args ...any) {
	a.out.Lock()
	defer a.out.Unlock()
	fmt.Fprintf(a.conn, format+"\n", args...)
}

func (a *actor) outcome(w []string) string {
	f := calls[w[0]]
	if f == nil {
		return "no call " + w[0]
	}
	s, err := f(a, w[1:])
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		if n := unix.ErrnoName(errno); n != "" {
			return n
		}
		return fmt.Sprintf("errno %d", int(errno))
	}
	if err != nil {
		return err.Error()
	}
	if s == "" {
		return "ok"
	}
	return s
}

func (a *actor) fd(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if fd, ok := a.fds[name]; ok {
		return fd
	}
	return 9999 // not open
}

func (a *actor) keep(name string, fd int, err error) (string, error) {
	if err == nil {
		a.mu.Lock()
		a.fds[name] = fd
		a.mu.Unlock()
	}
	return "", err
}

func num(s string) int64 {
	switch s {
	case "max":
		return 1<<63 - 1
	case "min":
		return -1 << 63
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic("actor: no number: " + s)
	}
	return n
}

var actorFlags = map[string]int{
	"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR, "creat": unix.O_CREAT, "excl": unix.O_EXCL,
	"trunc": unix.O_TRUNC, "append": unix.O_APPEND, "nonblock": unix.O_NONBLOCK, "path": unix.O_PATH,
	"cloexec": unix.O_CLOEXEC, "dir": unix.O_DIRECTORY, "tmpfile": unix.O_TMPFILE,
}

func flagsOf(s string) (flags int) {
	for f := range strings.SplitSeq(s, ",") {
		n, ok := actorFlags[f]
		if !ok {
			panic("actor: no flag of open: " + f)
		}
		flags |= n
	}
	return flags
}

var lockCmds = map[string]int{
	"set": unix.F_SETLK, "setw": unix.F_SETLKW, "get": unix.F_GETLK,
	"ofdset": unix.F_OFD_SETLK, "ofdsetw": unix.F_OFD_SETLKW, "ofdget": unix.F_OFD_GETLK,
}

var lockTypes = map[string]int16{"r": unix.F_RDLCK, "w": unix.F_WRLCK, "u": unix.F_UNLCK}

var whences = map[string]int16{"set": 0, "cur": 1, "end": 2}

var flockOps = map[string]int{"sh": unix.LOCK_SH, "ex": unix.LOCK_EX, "un": unix.LOCK_UN, "nb": unix.LOCK_NB}

// number is one of names, or a number.
func number[T int | int16](names map[string]T, s string) T {
	if n, ok := names[s]; ok {
		return n
	}
	return T(num(s))
}

// showLock is a struct flock as F_GETLK filled it in.
func showLock(l *unix.Flock_t) string {
	t := fmt.Sprint(l.Type)
	for name, n := range lockTypes {
		if n == l.Type {
			t = name
		}
	}
	if l.Whence != 0 {
		t += fmt.Sprintf(" whence=%d", l.Whence)
	}
	return fmt.Sprintf("%s %d %d pid=%d", t, l.Start, l.Len, l.Pid)
}

var calls = map[string]call{
	"open": func(a *actor, w []string) (string, error) { // FD NAME FLAGS
		fd, err := unix.Open(w[1], flagsOf(w[2]), 0o644)
		return a.keep(w[0], fd, err)
	},
	"insist": func(a *actor, w []string) (string, error) { // to open, also when a signal interrupts it: FD NAME FLAGS
		fd := -1
		err := retry(func() (err error) {
			fd, err = unix.Open(w[1], flagsOf(w[2]), 0o644)
			return err
		})
		return a.keep(w[0], fd, err)
	},
	"reopen": func(a *actor, w []string) (string, error) { // FD OLD FLAGS
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", a.fd(w[1])), flagsOf(w[2]), 0)
		return a.keep(w[0], fd, err)
	},
	"close": func(a *actor, w []string) (string, error) {
		fd := a.fd(w[0])
		a.mu.Lock()
		delete(a.fds, w[0])
		a.mu.Unlock()
		return "", unix.Close(fd)
	},
	"dup": func(a *actor, w []string) (string, error) { // FD OLD
		fd, err := unix.Dup(a.fd(w[1]))
		return a.keep(w[0], fd, err)
	},
	"dup3": func(a *actor, w []string) (string, error) { // onto FD, which is open: OLD
		return "", unix.Dup3(a.fd(w[1]), a.fd(w[0]), 0)
	},
	"lk": func(a *actor, w []string) (string, error) { // FD CMD TYPE START LEN [WHENCE [PID]]
		l := unix.Flock_t{Type: number(lockTypes, w[2]), Start: num(w[3]), Len: num(w[4])}
		if len(w) > 5 {
			l.Whence = number(whences, w[5])
		}
		if len(w) > 6 {
			l.Pid = int32(num(w[6]))
		}
		err := unix.FcntlFlock(uintptr(a.fd(w[0])), number(lockCmds, w[1]), &l)
		if err == nil && strings.HasSuffix(w[1], "get") {
			return showLock(&l), nil
		}
		return "", err
	},
	"lockf": func(a *actor, w []string) (string, error) { // FD lock|tlock|ulock|test LEN; lockf(3) is made of fcntl(2)
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: 1, Len: num(w[2])}
		cmd := unix.F_SETLK
		switch w[1] {
		case "lock":
			cmd = unix.F_SETLKW
		case "ulock":
			l.Type = unix.F_UNLCK
		case "test":
			cmd, l.Type = unix.F_GETLK, unix.F_RDLCK
		}
		err := unix.FcntlFlock(uintptr(a.fd(w[0])), cmd, &l)
		if w[1] == "test" && err == nil && l.Type != unix.F_UNLCK && int(l.Pid) != os.Getpid() {
			err = unix.EACCES
		}
		return "", err
	},
	"flock": func(a *actor, w []string) (string, error) { // FD OP,OP
		op := 0
		for s := range strings.SplitSeq(w[1], ",") {
			op |= number(flockOps, s)
		}
		return "", unix.Flock(a.fd(w[0]), op)
	},
	"walk": func(a *actor, w []string) (string, error) { // FD TYPE: all locks in the way, by F_GETLK
		var all []string
		for off := int64(0); ; {
			l := unix.Flock_t{Type: number(lockTypes, w[1]), Start: off}
			if err := unix.FcntlFlock(uintptr(a.fd(w[0])), unix.F_GETLK, &l); err != nil {
				return "", err
			}
			if l.Type == unix.F_UNLCK {
				return strings.Join(all, ", "), nil
			}
			l.Pid = 0
			all = append(all, strings.TrimSuffix(showLock(&l), " pid=0"))
			if l.Len == 0 {
				return strings.Join(all, ", "), nil
			}
			off = l.Start + l.Len
		}
	},
	"many": func(a *actor, w []string) (string, error) { // FD TYPE COUNT: every other byte
		for i := range num(w[2]) {
			l := unix.Flock_t{Type: number(lockTypes, w[1]), Start: 2 * i, Len: 1}
			if err := unix.FcntlFlock(uintptr(a.fd(w[0])), unix.F_SETLK, &l); err != nil {
				return "", err
			}
		}
		return "", nil
	},
	"write": func(a *actor, w []string) (string, error) { // FD TEXT
		_, err := unix.Write(a.fd(w[0]), []byte(w[1]))
		return "", err
	},
	"pread": func(a *actor, w []string) (string, error) { // FD OFFSET LEN
		b := make([]byte, num(w[2]))
		n, err := unix.Pread(a.fd(w[0]), b, num(w[1]))
		return fmt.Sprintf("%q", b[:max(n, 0)]), err
	},
	"pwrite": func(a *actor, w []string) (string, error) { // FD OFFSET TEXT
		_, err := unix.Pwrite(a.fd(w[0]), []byte(w[2]), num(w[1]))
		return "", err
	},
	"seek": func(a *actor, w []string) (string, error) { // FD OFFSET WHENCE
		n, err := unix.Seek(a.fd(w[0]), num(w[1]), int(number(whences, w[2])))
		return fmt.Sprint(n), err
	},
	"size": func(a *actor, w []string) (string, error) {
		var st unix.Stat_t
		err := unix.Fstat(a.fd(w[0]), &st)
		return fmt.Sprint(st.Size), err
	},
	"truncate": func(a *actor, w []string) (string, error) { return "", unix.Ftruncate(a.fd(w[0]), num(w[1])) },
	"nonblock": func(a *actor, w []string) (string, error) { return "", unix.SetNonblock(a.fd(w[0]), true) },
	"map": func(a *actor, w []string) (string, error) { // MAP FD
		m, err := unix.Mmap(a.fd(w[1]), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		a.mu.Lock()
		a.maps[w[0]] = m
		a.mu.Unlock()
		return "", err
	},
	"unmap":   func(a *actor, w []string) (string, error) { return "", unix.Munmap(a.maps[w[0]]) },
	"unlink":  func(a *actor, w []string) (string, error) { return "", unix.Unlink(w[0]) },
	"rename":  func(a *actor, w []string) (string, error) { return "", unix.Rename(w[0], w[1]) },
	"link":    func(a *actor, w []string) (string, error) { return "", unix.Link(w[0], w[1]) },
	"symlink": func(a *actor, w []string) (string, error) { return "", unix.Symlink(w[0], w[1]) },
	"mkdir":   func(a *actor, w []string) (string, error) { return "", unix.Mkdir(w[0], 0o755) },
	"mkfifo":  func(a *actor, w []string) (string, error) { return "", unix.Mkfifo(w[0], 0o644) },
	"getxattr": func(a *actor, w []string) (string, error) { // FD NAME
		b := make([]byte, 4096)
		n, err := unix.Fgetxattr(a.fd(w[0]), w[1], b)
		return string(b[:max(n, 0)]), err
	},
	"setxattr": func(a *actor, w []string) (string, error) {
		return "", unix.Fsetxattr(a.fd(w[0]), w[1], []byte(w[2]), 0)
	},
	"removexattr": func(a *actor, w []string) (string, error) { return "", unix.Fremovexattr(a.fd(w[0]), w[1]) },
	"listxattr": func(a *actor, w []string) (string, error) {
		b := make([]byte, 4096)
		n, err := unix.Flistxattr(a.fd(w[0]), b)
		return strings.ReplaceAll(string(b[:max(n, 0)]), "\x00", " "), err
	},
	"send":  (*actor).send,
	"recv":  (*actor).recv,
	"spawn": (*actor).spawn,
	"exec":  (*actor).exec,
	"catch": (*actor).catch,
	"exit":  func(*actor, []string) (string, error) { os.Exit(0); return "", nil },
}

// send passes a descriptor to another actor: send FD ACTOR.
func (a *actor) send(w []string) (string, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.mailbox(w[1]), Net: "unix"})
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, _, err = c.WriteMsgUnix([]byte("x"), unix.UnixRights(a.fd(w[0])), nil)
	return "", err
}

// recv takes a descriptor that was sent: recv FD.
func (a *actor) recv(w []string) (string, error) {
	c, err := a.mail.AcceptUnix()
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return "", err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return "", fmt.Errorf("%d messages: %w", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return "", err
	}
	return a.keep(w[0], fds[0], nil)
}

// spawn is fork(2) and execve(2): another actor, with descriptors of this one.
func (a *actor) spawn(w []string) (string, error) { // ACTOR FD...
	// Not by os/exec: it would close copies of the descriptors here, which ends
	// the POSIX locks of this process.
	args, files := []string{"dmxfs.test", w[0], a.dir}, []uintptr{0, 1, 2}
	for _, name := range w[1:] {
		args = append(args, fmt.Sprintf("%s=%d", name, len(files)))
		files = append(files, uintptr(a.fd(name)))
	}
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{Env: os.Environ(), Files: files})
	if err != nil {
		return "", err
	}
	go unix.Wait4(pid, nil, 0, nil)
	return "", nil
}

// exec replaces this program by itself. Descriptors keep their numbers, those
// with close-on-exec are gone.
func (a *actor) exec([]string) (string, error) {
	a.mail.Close() // which removes the socket
	args := []string{"dmxfs.test", a.name, a.dir}
	for name, fd := range a.fds {
		if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && f&unix.FD_CLOEXEC == 0 {
			args = append(args, fmt.Sprintf("%s=%d", name, fd))
		}
	}
	return "", unix.Exec("/proc/self/exe", args, os.Environ())
}

// catch installs a handler for SIGUSR1: catch restart|norestart.
func (a *actor) catch(w []string) (string, error) {
	signal.Notify(make(chan os.Signal, 100), unix.SIGUSR1)
	if w[0] == "restart" {
		return "", nil
	}
	// The Go runtime knows only handlers with SA_RESTART.
	var act struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	const restart = 0x10000000
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGUSR1), 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0); e != 0 {
		return "", e
	}
	act.flags &^= restart
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGUSR1), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0); e != 0 {
		return "", e
	}
	return "", nil
}
