package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What systemd sees of a mount in the foreground: it is told when the mount is
// usable, and that it ends; SIGTERM ends it in good order.
func TestNotifiesSystemd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	m := c.add()
	sock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(c.dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	next := func() string {
		t.Helper()
		if err := sock.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := sock.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	cmd := c.cmd("mount", "--foreground", "--takeover=false", "--state", m.state, "--listen", "/ip4/127.0.0.1/tcp/0", c.src, m.dir)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+sock.LocalAddr().String())
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.watcher = cmd.Process.Pid
	if got := next(); !strings.HasPrefix(got, "READY=1\nSTATUS=serving ") {
		t.Errorf("the first message: %q", got)
	}
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("when it is ready: %d %s", code, out)
	}
	old := m.daemon()
	m.signal(unix.SIGKILL)
	if got := next(); !strings.HasPrefix(got, "STATUS=the daemon has died") {
		t.Errorf("after the daemon was killed: %q", got)
	}
	m.awaitNew(old)
	if got := next(); !strings.HasPrefix(got, "STATUS=serving ") {
		t.Errorf("when the daemon was started anew: %q", got)
	}
	// What systemd has started is another program after an upgrade, and what it was.
	fresh := successorFile(t, "fresh")
	c.run("upgrade", "--program", fresh, m.dir)
	runs(t, "the watcher", m.watcher, fresh)
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "STOPPING=1" {
		t.Errorf("after SIGTERM: %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v\n%s", err, read(t, log.Name()))
	}
	if m.mounted() {
		t.Error("the mount is there still")
	}
}

// The units are such as systemd understands.
func TestSystemdUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs the program systemd-analyze")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, args := t.TempDir(), []string{"verify", "--man=no"}
	for name, as := range map[string]string{"dmxfs@.service": "dmxfs@test.service", "dmxfs.target": "dmxfs.target"} {
		unit := filepath.Join(dir, as)
		write(t, unit, strings.ReplaceAll(read(t, "../../contrib/systemd/"+name), "/usr/local/bin/dmxfs", self))
		args = append(args, unit)
	}
	out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "dmxfs@test.service:") || strings.Contains(string(out), "dmxfs.target:") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// One that is not to be mounted at boot any more takes no other with it.
	root := t.TempDir()
	units := filepath.Join(root, "usr/lib/systemd/system")
	if err := os.MkdirAll(units, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dmxfs@.service", "dmxfs.target"} {
		write(t, filepath.Join(units, name), read(t, "../../contrib/systemd/"+name))
	}
	for _, do := range [][]string{{"enable", "dmxfs@one"}, {"enable", "dmxfs@two"}, {"disable", "dmxfs@one"}} {
		if out, err := exec.Command("systemctl", append([]string{"--root=" + root}, do...)...).CombinedOutput(); err != nil {
			t.Fatalf("systemctl %v: %v\n%s", do, err, out)
		}
	}
	for _, target := range []string{"multi-user.target", "dmxfs.target"} {
		wants, err := os.ReadDir(filepath.Join(root, "etc/systemd/system", target+".wants"))
		if err != nil || len(wants) != 1 || wants[0].Name() != "dmxfs@two.service" {
			t.Errorf("%s wants %v (%v), and should want dmxfs@two.service", target, wants, err)
		}
	}
}
