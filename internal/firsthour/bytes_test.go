package firsthour

import (
	"strings"
	"testing"
)

// Names are bytes, also where locks go by them: what another host has locked below a
// directory that is not UTF-8 keeps that from being renamed, can be asked for, and broken.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	need(t, "unshare", "ip", "bash", "flock")
	dir := t.TempDir()
	out, err := apart(t, `exec 2>&1; set -e
cd `+dir+`; mkdir raw a b
dmxfs --file-id path --listen /ip4/127.0.0.1/tcp/0 raw a
dmxfs --file-id path --listen /ip4/127.0.0.1/tcp/0 raw b
d=$'d\xff'; mkdir a/$d
exec 8>b/$d/f; flock 8
mv a/$d a/e || echo "not renamed"
(exec 9<a/$d/f; flock 9; echo "it is mine") & waiter=$!
until dmxfs locks --json a | grep -q '"waiting"'; do :; done
dmxfs why "$d/f" a | grep -q 'process .* waits' && echo "why: told"
dmxfs locks break --yes --class flock --reason test "$d/f" a
wait $waiter
dmxfs journal --explain "$d/f" a | grep -q broken && echo "explain: told"
exec 8>&-
dmxfs unmount b; dmxfs unmount a
`, dir+"/home").Output()
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"not renamed", "why: told", "broken: ", "it is mine", "explain: told"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in it:\n%s", want, out)
		}
	}
}
