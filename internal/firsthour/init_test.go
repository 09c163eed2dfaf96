package firsthour

import (
	"strings"
	"testing"
)

// What `dmxfs init` writes is mounted by, on a first host that has asked the
// doctor, and on one that joins it.
func TestInit(t *testing.T) {
	t.Parallel()
	need(t, "unshare", "ip", "bash", "awk")
	dir := t.TempDir()
	out, err := apart(t, `exec 2>&1; set -e
cd `+dir+`; mkdir raw
dmxfs init --etc etc --state state --first --exclusive 'jobs/**=rcv' raw a
dmxfs --config etc/dmxfs/*-a.toml
dmxfs init --no-doctor --etc etc --state state --fstab raw b
dmxfs -o "$(awk '/\/b / {print $4}' etc/fstab)" raw b
dmxfs policy check jobs/x b
mkdir b/jobs; flock b/jobs/x echo 'a lock'
dmxfs init --no-doctor --etc etc a c || echo "refused: $?"
dmxfs unmount b; dmxfs unmount a
`, dir+"/home").Output()
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"The doctor: This storage is fit for dmxfs.", "enable --now 'dmxfs@", "fuse.dmxfs", "rcv", "a lock", "/a is a mount of dmxfs", "refused: 5"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in it:\n%s", want, out)
		}
	}
}
