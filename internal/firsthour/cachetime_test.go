package firsthour

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// With --cache-time a host that looks around keeps names, until another host changes
// something: then it sees that at once, and so do hosts that come later.
func TestCacheTime(t *testing.T) {
	t.Parallel()
	need(t, "unshare", "ip", "bash", "find")
	dir := t.TempDir()
	if !keepsNames(dir) {
		t.Skip("needs Linux 6.2, and ext4, xfs, btrfs or tmpfs for temporary files")
	}
	out, err := apart(t, `exec 2>&1; set -e
cd `+dir+`; mkdir raw a b
dmxfs --cache-time 11s raw a || echo "refused: $?"
dmxfs --cache-time 10s --listen /ip4/127.0.0.1/tcp/0 raw a
dmxfs --cache-time 10s --listen /ip4/127.0.0.1/tcp/0 raw b
mkdir a/d; touch a/d/{1,2,3,4,5,6,7,8,9}
keeps() { dmxfs locks --json $1 | tr -d ' \n' | grep -q '"path":".dmxfs/names"[^}]*"mode":"W"[^}]*"state":"held"'; }
look() { until keeps a; do find a -size +1000 >/dev/null; ls a/d/none 2>/dev/null || true; done; find a -ls >/dev/null; ls a/d/new 2>/dev/null || true; }
looks() { dmxfs metrics a | awk '/^dmxfs_fuse_request_seconds_count.*"(LOOKUP|GETATTR|READDIR|READDIRPLUS)"/ {n += $2} END {print n}'; }
seen() { for i in {1..200}; do "$@" >/dev/null 2>&1 && { echo "seen: $*"; return; }; sleep 0.01; done; echo "NOT SEEN: $*"; }
look
before=$(looks); for i in {1..20}; do find a -size +1000 >/dev/null; done; after=$(looks)
[ $((after - before)) -lt 100 ] && echo "kept" || echo "NOT KEPT: $before to $after"
echo text >b/d/new; seen test -s a/d/new; seen grep -q new <(ls a/d)
look; rm b/d/new; seen test ! -e a/d/new
look; chmod 600 b/d/1; seen bash -c '[ $(stat -c %a a/d/1) = 600 ]'
dmxfs unmount b; dmxfs unmount a
`, dir+"/home").Output()
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"--cache-time 11s: must be", "refused: 2", "\nkept", "seen: test -s a/d/new", "seen: grep -q new", "seen: test ! -e a/d/new"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in it:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "NOT SEEN") {
		t.Errorf("something is not seen:\n%s", out)
	}
}

// keepsNames reports whether names can be kept for long on this kernel and storage.
func keepsNames(dir string) bool {
	var name unix.Utsname
	var fs unix.Statfs_t
	if unix.Uname(&name) != nil || unix.Statfs(dir, &fs) != nil {
		return false
	}
	var major, minor int
	fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return major > 6 || major == 6 && minor >= 2
	}
	return false
}
