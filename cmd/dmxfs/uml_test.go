package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// Most machines that run tests have a kernel without NFS, or must not serve
// it. User-mode Linux is a kernel that is a process, and has it: Debian's
// package user-mode-linux. These tests are run in one by its process 1, which
// is this binary. Its root is that of this machine, which it can only read, and
// all that it writes is in its memory: so nothing of it is left, however it ends.

const (
	umlEnv     = "DMXFS_TEST_UML" // set for the tests in user-mode Linux
	umlModules = "/usr/lib/uml/modules"
	umlSays    = "dmxfs-test exit code: " // the last line of process 1
)

// umlParams are the modules that the tests need, with their parameters. The
// disk of the server is in memory.
var umlParams = map[string]string{
	"fuse": "", "veth": "", "bridge": "", "nfsv3": "", "nfsv4": "", "nfsd": "", "brd": "rd_nr=1 rd_size=524288",
}

// umlPackages are Debian's packages that the tests need, by a program of each.
var umlPackages = map[string]string{
	"linux": "user-mode-linux", "rpc.mountd": "nfs-kernel-server", "mount.nfs": "nfs-common", "rpcbind": "rpcbind",
	"ip": "iproute2", "iptables": "iptables", "mkfs.ext4": "e2fsprogs", "sqlite3": "sqlite3",
}

// needUML skips a test where user-mode Linux is not installed, or not all that
// its tests use. What is root's on this machine is root's in there only for root.
func needUML(t *testing.T) {
	t.Helper()
	if long.Race {
		t.Skip("user-mode Linux has no room for what the race detector maps")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	var missing []string
	for program, pkg := range umlPackages {
		_, err := exec.LookPath(program)
		if _, e := os.Stat("/usr/sbin/" + program); err != nil && e != nil { // not in everybody's PATH
			missing = append(missing, pkg)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Skipf("needs the Debian packages %s", strings.Join(missing, " "))
	}
}

// inUML skips a test outside of user-mode Linux, which is slow: on a machine that
// does much else a part may have a twentieth of a processor.
func inUML(t *testing.T) {
	t.Helper()
	if !isUML() {
		t.Skip("is run in user-mode Linux")
	}
	patienceOfTests = 15 * time.Minute
}

func isUML() bool { return os.Getenv(umlEnv) != "" }

// umlTime is how long the tests in one user-mode Linux may take; a minute later
// it is ended. On a machine that does much else the counters alone take 24 minutes.
const umlTime = 2 * time.Hour

// runUML runs tests in user-mode Linux, and shows what they print.
func runUML(t *testing.T, pattern string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("linux",
		"mem=3G", "umid=dmxfs", "uml_dir="+t.TempDir(), "quiet", "loglevel=1", "con=null", "con0=null,fd:1",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init="+self, helperEnv+"=uml",
		"--", "-test.run="+pattern, "-test.v", "-test.timeout="+umlTime.String(), fmt.Sprintf("-storage.full=%v", *storageFull))
	if unix.Access("/dev/shm", unix.W_OK) == nil {
		cmd.Env = append(os.Environ(), "TMPDIR=/dev/shm") // its memory is a file
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	// Each of its programs is a process of this machine, which its kernel traces:
	// without that one it would stay, stopped. So that is the first process of a
	// namespace of processes, with which the kernel here ends all others.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, Cloneflags: unix.CLONE_NEWPID}
	runtime.LockOSThread() // the end of which is what Pdeathsig means
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = cmd.Process.Kill() }
	defer end()
	late := time.AfterFunc(umlTime+time.Minute, end)
	defer late.Stop()
	code := "none"
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		if _, c, ok := strings.Cut(line, umlSays); ok {
			code = c
		} else {
			t.Log(line)
		}
	}
	_ = cmd.Wait() // what process 1 said counts
	if code != "0" {
		t.Errorf("the exit code of the tests is %s", code)
	}
}

// umlInit is process 1 of user-mode Linux: it runs this binary with args, and
// stops the machine.
func umlInit(args []string) error {
	for k, v := range map[string]string{"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/run"} {
		os.Setenv(k, v)
	}
	code, err := umlTests(args)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s%d\n", umlSays, code)
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func umlTests(args []string) (code int, err error) {
	const self = "/run/dmxfs.test"
	for _, dir := range []string{"/proc", "/sys", "/run", "/tmp", "/var/lib/nfs", "/dev/shm"} {
		kind := "tmpfs"
		switch dir {
		case "/proc":
			kind = "proc"
		case "/sys":
			kind = "sysfs"
		case "/tmp": // which hides this binary, perhaps
			if err := copyFile("/proc/self/exe", self); err != nil {
				return 1, err
			}
		case "/dev/shm":
			if err := os.Mkdir(dir, 0o777); err != nil {
				return 1, err
			}
		}
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
			return 1, fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := errors.Join(unix.Sethostname([]byte("uml")), os.Chdir("/tmp"), loadModules(umlParams)); err != nil {
		return 1, err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("ip: %w: %s", err, out)
	}
	os.Unsetenv(helperEnv)
	for _, v := range []string{umlEnv, "DMXFS_TEST_REQUIRE_MOUNTS"} {
		os.Setenv(v, "1")
	}
	p, err := os.StartProcess(self, append([]string{self}, args...), &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	for {
		var ws unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &ws, 0, nil); {
		case err != nil && err != unix.EINTR:
			return 1, err
		case err == nil && pid == p.Pid && ws.Exited():
			return ws.ExitStatus(), nil
		case err == nil && pid == p.Pid:
			return 1, fmt.Errorf("the tests were ended by %v", ws.Signal())
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// loadModules loads modules of the kernel, with what they need, and these
// parameters.
func loadModules(params map[string]string) error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	dir := filepath.Join(umlModules, unix.ByteSliceToString(uts.Release[:]))
	b, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	loaded, have := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(b)) {
		file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		name := moduleName(file)
		if _, ok := params[name]; !ok {
			continue
		}
		// The last one is needed by those before.
		files := append([]string{file}, strings.Fields(needs)...)
		for _, f := range slices.Backward(files) {
			if loaded[f] {
				continue
			}
			if err := loadModule(filepath.Join(dir, f), params[moduleName(f)]); err != nil {
				return err
			}
			loaded[f], have[moduleName(f)] = true, true
		}
	}
	for name := range params {
		if !have[name] {
			return fmt.Errorf("no module %s in %s: %w", name, dir, fs.ErrNotExist)
		}
	}
	return nil
}

func moduleName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".ko") }

func loadModule(path, params string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), params, 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
