package firsthour

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mistake is what somebody may do wrong, in a shell where src is shared by host a,
// with the daemon's port 7654, and b is another host's mount point.
type mistake struct {
	name    string
	command string
	code    int
	// says are words of what is printed: what has happened, to what, what to do.
	says []string
}

// asNobody runs a command as a user, below $U, with /dev/fuse as udev makes it.
func asNobody(command string) string {
	return `unshare --mount sh -c 'mount --bind $T/fuse /dev/fuse; exec setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_STATE_HOME=$U/home ` + command + `'`
}

var mistakes = []mistake{
	{"the storage is not mounted", "dmxfs --join empty b", 1, []string{"/empty: no cluster is here", "is the shared directory mounted? Nothing was made"}},
	{"the storage is not mounted any more", "dmxfs --state was-c empty b", 1, []string{"/empty: no cluster is here", "this mount was in one", "is the shared directory mounted?"}},
	{"the storage has another name", "dmxfs nothing b", 1, []string{"/nothing: no such file or directory", "is its storage mounted on this host?"}},
	{"no mount point", "dmxfs src nothing", 1, []string{"/nothing: no such file or directory", "make it first (mkdir /"}},
	{"the mount point is a file", "dmxfs src secret", 2, []string{"/secret is not a directory"}},
	{"the mount point is mounted", "dmxfs src a", 5, []string{"/a is already mounted by dmxfs", "unmount it first"}},
	{"a mount point inside", "dmxfs src src/sub", 2, []string{"/src/sub is inside the shared directory", "choose one outside"}},
	{"a part of the shared directory", "dmxfs src/sub b", 4, []string{"/src/sub is inside the shared directory", "use the directory below that mount"}},
	{"a mount of a mount", "dmxfs a b", 5, []string{"a dmxfs mount"}},
	{"a variable that is not set", `dmxfs "$UNSET" b`, 2, []string{"empty name", "is a variable of a script not set?"}},
	{"another secret", "dmxfs --secret secret src b", 4, []string{"wrong secret", "the secret given has", "dmxfs secret show MOUNTPOINT prints it on a member"}},
	{"a secret for all to read", "dmxfs --secret open-secret src b", 2, []string{"/open-secret", "chmod 600"}},
	{"the port is in use", "dmxfs --listen /ip4/127.0.0.1/tcp/7654 src b", 1, []string{"address already in use", "ss -ltnp", "--listen at another port"}},
	{"an address of another host", "dmxfs --listen /ip4/192.0.2.1/tcp/0 src b", 1, []string{"cannot assign requested address", "does not have that address", "ip addr"}},
	{"an address and a port", "dmxfs --listen 127.0.0.1:7654 src b", 2, []string{`"127.0.0.1:7654" is not a multiaddr like /ip4/0.0.0.0/tcp/7654`}},
	{"a firewall", "iptables -A INPUT -i lo -p tcp -j REJECT; dmxfs --state firewall src b; code=$?; iptables -F; (exit $code)", 1, []string{"none of them can be reached over the network", "/ip4/127.0.0.1/tcp/7654", "look for a firewall", "--listen"}},
	{"no FUSE", `unshare --mount sh -c 'mkdir dev; mount -t tmpfs none dev; cp -a /dev/null /dev/random /dev/urandom dev; mount --move dev /dev; dmxfs src b'`, 1, []string{"/b: open /dev/fuse: no device", "modprobe fuse", "container"}},
	{"no fusermount3", asNobody("env PATH=/nowhere $(command -v dmxfs) $U/src $U/m"), 1, []string{`"fusermount3": executable file not found`, "install the package fuse3"}},
	{"no user_allow_other", asNobody("dmxfs -o allow_other $U/src $U/m"), 1, []string{"user_allow_other", "/etc/fuse.conf", "write the line user_allow_other there, as root, or mount without allow_other"}},
	{"/dev/fuse for root alone", strings.Replace(asNobody("dmxfs $U/src $U/m"), "mount --bind", "chmod 600 $T/fuse; mount --bind", 1) + "; code=$?; chmod 666 $T/fuse; (exit $code)", 1, []string{"/dev/fuse: Permission denied", "chmod 666 /dev/fuse"}},
	{"the mount point of somebody else", asNobody("dmxfs $U/src $T/b"), 1, []string{"no write access to mountpoint", "mount at a directory that belongs to this user"}},
	{"storage that cannot be written", asNobody("dmxfs --state $U/home/other $T/empty $U/m"), 4, []string{"/empty", ".dmxfs", "permission denied"}},
	{"a command misspelt", "dmxfs stauts a", 2, []string{"stauts is neither a command nor a directory", `is "dmxfs status" meant?`}},
	{"a value of another type", "printf 'mountpoint = 5\\n' >type.toml; dmxfs --config type.toml", 2, []string{"type.toml: line 1: a value of type integer is here: it must be a string"}},
	{"an option misspelt", "dmxfs -o jion,ro src b", 2, []string{`unknown mount option "jion"`, "is join meant?"}},
	{"a flag misspelt", "dmxfs --lisen x src b", 2, []string{"unknown flag: --lisen", "is --listen meant?"}},
	{"an option of nothing", "dmxfs -o bogus src b", 2, []string{`unknown mount option "bogus"`, "dmxfs mount --help"}},
	{"a key misspelt", "dmxfs --config config.toml", 2, []string{"config.toml: line 1", `unknown key "montpoint"`}},
	{"a policy file that is none", "dmxfs --policy broken.toml src b", 2, []string{"/broken.toml: line 1", "expected ']]'"}},
	{"a policy with a key misspelt", "dmxfs --policy key.toml src b", 2, []string{"/key.toml: line 3", `unknown key "rule.algoritm"`}},
	{"an algorithm of nothing", "dmxfs --exclusive 'x/**=foo' src b", 2, []string{`algorithm "foo": must be rcv, maekawa or ring`}},
	{"two rules", "dmxfs --exclusive 'x/**=rcv' src b", 4, []string{"the cluster has another policy", "start with the same one or with none", "only here: x/**=rcv"}},
	{"two kinds of file IDs", "dmxfs --file-id path src b", 4, []string{"the cluster tells files apart by their inode numbers, this node by path", "mount with --file-id=inode"}},
	{"other times", "dmxfs --fast src b", 4, []string{"the cluster's times are", "start it with the same --heartbeat"}},
	{"the state of another mount", "dmxfs --state $(echo home/dmxfs/*-a) src b", 5, []string{"is in use by another dmxfs (process ", "give each mount its own with --state"}},
	{"the state of another host", "cp -a home/dmxfs/*-a copied; rm -r copied/journal; dmxfs --state copied src b", 4, []string{"the state directory was copied", "--state"}},
	{"the state on the storage", "dmxfs --state src/state src b", 2, []string{"/src/state is on the shared directory", "choose another one with --state"}},
	{"a question to no mount", "dmxfs status b", 3, []string{"/b", "not mounted", "mount it with: dmxfs"}},
	{"files in use", "(cd a && dmxfs unmount --timeout 1s .)", 5, []string{"/a: programs use the mount", "fuser -m"}},
	{"a lock in another place", "dmxfs run empty/f -- true", 125, []string{"/f is not below a dmxfs mount"}},
}

const stage = `exec 2>&1
export T=$PWD U=$PWD/user
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
mkdir src src/sub empty a b c user user/src user/m user/home
chown -R 65534:65534 user
mknod -m 666 fuse c 10 229
head -c 40 /dev/urandom | base64 >secret; chmod 600 secret
cp secret open-secret; chmod 644 open-secret
echo 'montpoint = "/x"' >config.toml
echo '[[rule]' >broken.toml
printf '[[rule]]\npath = "x"\nalgoritm = "rcv"\n' >key.toml
dmxfs --listen /ip4/127.0.0.1/tcp/7654 src a || exit
dmxfs --listen /ip4/127.0.0.1/tcp/0 --state was-c src c && dmxfs unmount c || exit
`

// TestMistakes makes each mistake, and wants to be told what has happened, to
// what, and what to do. None may mount anything, or touch the mount that is there.
func TestMistakes(t *testing.T) {
	t.Parallel()
	need(t, "unshare", "ip", "bash", "setpriv", "iptables", "fusermount3")
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // for the other user
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const mark = "=== mistake "
	script := "cd " + dir + "\n" + stage
	for i, m := range mistakes {
		script += fmt.Sprintf("echo '%s%d'\n%s\necho \"=== ends with $?\"\n", mark, i, m.command)
	}
	script += "echo '" + mark + "'\ngrep \"$T.*fuse.dmxfs\" /proc/mounts\nflock -n a/f echo 'a has locks'\ndmxfs unmount a\n"
	out, err := apart(t, script, dir+"/home").Output()
	if err != nil {
		t.Errorf("%v", err)
	}
	parts := strings.Split(string(out), mark)[1:]
	if len(parts) != len(mistakes)+1 {
		t.Fatalf("%d of %d mistakes were made:\n%s", len(parts), len(mistakes), out)
	}
	for i, m := range mistakes {
		got := strings.TrimSpace(strings.TrimPrefix(parts[i], fmt.Sprint(i)))
		if !strings.HasSuffix(got, fmt.Sprintf("=== ends with %d", m.code)) {
			t.Errorf("%s: %s\n%s\nwant exit number %d", m.name, m.command, got, m.code)
		}
		for _, w := range m.says {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %s\n%s\nwant %q in it", m.name, m.command, got, w)
			}
		}
	}
	if end := parts[len(mistakes)]; strings.Count(end, "fuse.dmxfs") != 1 || !strings.Contains(end, "a has locks") {
		t.Errorf("what is mounted after the mistakes, and has locks:\n%s", end)
	}
}
