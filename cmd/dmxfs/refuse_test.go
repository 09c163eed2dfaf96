package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// A mount that can't be is refused before anything is left behind, with an
// exit number and a line that says what to do.
func TestRefusedMounts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	path := func(name string) string { return filepath.Join(c.dir, name) }
	if err := os.Mkdir(path("mnt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.src, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path("file"), "")
	write(t, path("open-secret"), strings.Repeat("x", 64))
	write(t, path("secret"), secretText())
	if err := os.Chmod(path("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	state := "--state=" + path("new-state")
	for _, x := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no source", []string{state, path("nothing"), path("mnt")}, exitcode.Failure, "no such file or directory"},
		{"no mount point", []string{state, c.src, path("nothing")}, exitcode.Failure, "no such file or directory"},
		{"a file", []string{state, c.src, path("file")}, exitcode.Usage, "is not a directory"},
		{"mounted already", []string{state, c.src, m.dir}, exitcode.Busy, "is already mounted by dmxfs"},
		{"in place over a mount", []string{state, m.dir}, exitcode.Busy, "is already mounted by dmxfs"},
		{"a mount as the source", []string{state, m.dir, path("mnt")}, exitcode.Busy, "is below a dmxfs mount already"},
		{"state in use", []string{"--state=" + m.state, c.src, path("mnt")}, exitcode.Busy, "is in use by another dmxfs (process "},
		{"state on the shared directory", []string{"--state=" + c.src + "/state", c.src, path("mnt")}, exitcode.Usage, "must be local to this host"},
		{"state below the mount point", []string{"--state=" + path("mnt") + "/state", c.src, path("mnt")}, exitcode.Usage, "is below a mount of dmxfs"},
		{"state on another mount", []string{"--state=" + m.dir + "/state", c.src, path("mnt")}, exitcode.Usage, "is below a mount of dmxfs"},
		{"mount point in the shared directory", []string{state, c.src, c.src + "/inner"}, exitcode.Usage, "is inside the shared directory"},
		{"empty source", []string{state, "", path("mnt")}, exitcode.Usage, "has an empty name"},
		{"state is a file", []string{"--state=" + path("file"), c.src, path("mnt")}, exitcode.Failure, "choose another one with --state"},
		{"secret for everybody", []string{state, "--secret=" + path("open-secret"), c.src, path("mnt")}, exitcode.Usage, "chmod 600"},
		{"no secret", []string{state, "--secret=" + path("nothing"), c.src, path("mnt")}, exitcode.Usage, "no such file"},
		{"wrong secret", []string{state, "--secret=" + path("secret"), c.src, path("mnt")}, exitcode.Refused, "wrong secret"},
		{"other times", []string{state, "--fast", c.src, path("mnt")}, exitcode.Refused, "the cluster's times are heartbeat 500 ms, hears 1500 ms, tenure 5000 ms, delta 250 ms, look tenure 5000 ms; this node's are heartbeat 200 ms"},
		{"no multiaddr", []string{state, "--peer=localhost:1", c.src, path("mnt")}, exitcode.Usage, "is not a multiaddr"},
		{"no multiaddr to listen on", []string{state, "--listen=localhost", c.src, path("mnt")}, exitcode.Usage, "is not a multiaddr"},
		{"port in use", []string{state, "--listen=/ip4/127.0.0.1/tcp/" + port, c.src, path("mnt")}, exitcode.Failure, "address already in use"},
		{"unknown mount option", []string{state, "-o", "bogus", c.src, path("mnt")}, exitcode.Usage, "unknown mount option"},
		{"no storage for files", []string{"--state=" + path("proc-state"), "/proc", path("mnt")}, exitcode.Refused, "make .dmxfs"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := c.try(x.args...)
			if err == nil {
				t.Fatal("it mounts")
			}
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != x.code {
				t.Errorf("want exit code %d", x.code)
			}
			if !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v\nwant %q in it", err, x.want)
			}
		})
	}
	if all, err := mountinfo.Read(); err != nil {
		t.Fatal(err)
	} else if _, ok := mountinfo.At(all, path("mnt")); ok {
		t.Error("a refused mount is left behind")
	}
	if _, err := os.Stat(c.src + "/state"); err == nil {
		t.Error("a refused state directory is left behind on the shared directory")
	}
	// The mount that was there before has noticed nothing.
	if out, code := m.sh("flock -n f true"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
}

func secretText() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// A journal that another cluster wrote is not mixed with this one's.
func TestJournalOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	c.run("unmount", m.dir)
	other := filepath.Join(c.dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := c.try("--state", m.state, "--listen", "/ip4/127.0.0.1/tcp/0", other, m.dir)
	if err == nil {
		t.Fatal("it mounts")
	}
	if want := "this mount was in"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %q in it", err, want)
	}
	m.mount()
}

// Whoever reaches the port without the secret disturbs nobody.
func TestGarbageFromTheNetwork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	for _, p := range c.mounts[0].peers().Members {
		for _, s := range p.Addrs {
			a, err := ma.NewMultiaddr(s)
			if err != nil {
				t.Fatal(err)
			}
			transport, _ := ma.SplitFunc(a, func(c ma.Component) bool { return c.Protocol().Code == ma.P_P2P })
			conn, err := manet.Dial(transport)
			if err != nil {
				t.Fatalf("%s: %v", s, err)
			}
			noise := make([]byte, 1<<16)
			_, _ = rand.Read(noise)
			for range 16 {
				if _, err := conn.Write(noise); err != nil {
					break // it was hung up on: as it should be
				}
			}
			conn.Close()
		}
	}
	before := c.mounts[0].peers().Epoch
	if out, code := c.mounts[1].sh("flock f true"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if after := c.mounts[0].peers().Epoch; after != before {
		t.Errorf("the epoch went from %d to %d", before, after)
	}
}

// A line of fstab: mount(8) finds the program by the type fuse.dmxfs.
func TestFstab(t *testing.T) {
	t.Parallel()
	needTool(t, "mount", "unshare", "mount.fuse3")
	c := newCluster(t, 0)
	m := c.add()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(c.dir, "fstab"), c.src+" "+m.dir+" fuse.dmxfs noauto,nofail,_netdev,listen=/ip4/127.0.0.1/tcp/0,state="+m.state+" 0 0\n")
	write(t, c.src+"/f", "content")
	// In mount tables of its own the program can be installed without a trace.
	script := `set -e
mount -t tmpfs none /usr/local/bin
printf '#!/bin/sh\nexport %[1]s=1 XDG_STATE_HOME=$DIR\nexec $SELF "$@"\n' > /usr/local/bin/dmxfs
chmod +x /usr/local/bin/dmxfs
mount -T $DIR/fstab $MNT
grep " $MNT fuse.dmxfs " /proc/mounts
cat $MNT/f
umount $MNT
mount -t fuse.dmxfs -o ro,listen=/ip4/127.0.0.1/tcp/0,state=$STATE $SRC $MNT
if touch $MNT/f 2>/dev/null; then echo writable; fi
dmxfs unmount $MNT`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", strings.ReplaceAll(script, "%[1]s", asMain))
	cmd.Env = append(os.Environ(), "DIR="+c.dir, "SELF="+self, "MNT="+m.dir, "SRC="+c.src, "STATE="+m.state)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s := string(out); !strings.Contains(s, "content") || strings.Contains(s, "writable") {
		t.Errorf("output:\n%s", s)
	}
	var st unix.Stat_t
	if err := unix.Stat(c.src+"/f", &st); err != nil || st.Size != int64(len("content")) {
		t.Errorf("the file afterwards: %v, %d bytes", err, st.Size)
	}
}

// Another user than root mounts by fusermount3. When the daemon dies its mount
// is replaced, but one in place, which would uncover the shared directory for a
// moment, stays dead until the user has taken it away.
func TestMountAsAnotherUser(t *testing.T) {
	t.Parallel()
	out, _, err := asAnotherUser(t, `
echo content > $SRC/f
"$EXE" $L --takeover=false --state $HOME/state1 $SRC $HOME/m || fail cannot mount
flock -n $HOME/m/f true || fail no lock
kill -9 $(pid $HOME/m)
n=0; until [ "$(cat $HOME/m/f 2>/dev/null)" = content ]; do n=$((n+1)); [ $n -lt 600 ] || fail not replaced; sleep 0.1; done
"$EXE" unmount $HOME/m || fail cannot unmount
"$EXE" $L --takeover=false --state $HOME/state2 $SRC || fail cannot mount in place
kill -9 $(pid $SRC)
n=0; until grep -q 'not served any more' $HOME/state2/dmxfs.log; do n=$((n+1)); [ $n -lt 600 ] || fail still served; sleep 0.1; done
cat $SRC/f 2>&1 | grep -q 'not connected' || fail uncovered
"$EXE" $L --state $HOME/state2 $SRC 2>&1 | grep -q 'only root can mount in the place' || fail another error
"$EXE" unmount $SRC || fail cannot unmount the dead mount
[ "$(cat $SRC/f)" = content ] || fail content is gone
echo all well`)
	if err != nil || !strings.HasSuffix(out, "all well\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// asAnotherUser runs a script as a user who is not root: $EXE is the program, $SRC a shared
// directory of that user, $HOME/m a mount point, and $L says where to listen. The mount point
// is returned, too.
func asAnotherUser(t *testing.T, script string) (out string, m *testMount, err error) {
	t.Helper()
	needTool(t, "unshare", "setpriv", "fusermount3")
	c := newCluster(t, 0)
	exe := filepath.Join(c.dir, "exe")
	copyProgram(t, exe)
	const nobody = 65534
	for d := c.dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(c.dir, "home")
	for _, d := range []string{home, home + "/m"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{c.src, home, home + "/m"} {
		if err := os.Chown(d, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	// In mount tables of its own /dev/fuse is for everybody, as udev makes it.
	root := `set -e
mknod -m 666 $DIR/fuse c 10 229
mount --bind $DIR/fuse /dev/fuse
exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$USER_SCRIPT"`
	user := `
fail() { echo "$*"; cat $HOME/state*/dmxfs.log; "$EXE" unmount --lazy $HOME/m; "$EXE" unmount --lazy $SRC; exit 1; }
pid() { "$EXE" status --json $1 | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p'; }
L=--listen=/ip4/127.0.0.1/tcp/0
`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", root)
	cmd.Env = append(os.Environ(), "DIR="+c.dir, "SRC="+c.src, "HOME="+home, "XDG_STATE_HOME="+home, "EXE="+exe, asMain+"=1", "USER_SCRIPT="+user+script)
	b, err := cmd.CombinedOutput()
	return string(b), &testMount{c: c, dir: home + "/m"}, err
}
