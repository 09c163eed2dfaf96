package firsthour

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// neighbour is the version beside which this one must work: the last release, or,
// before the first one, a commit some hundred before this. Whoever raises
// member.Protocol moves it here, since the two are then in no cluster together.
const neighbour = "9a289802dba016c9ea95faa36ab749c2826dc023"

// needBuild skips a test that builds a program for as long as others run.
func needBuild(t *testing.T) {
	t.Helper()
	if !long.Tests() {
		t.Skip("builds another version of the program: with " + long.Env + "=1")
	}
}

// build builds the program of the module in root.
func build(t *testing.T, root, out string, flags ...string) {
	t.Helper()
	c := exec.Command("go", append(append([]string{"build", "-buildvcs=false"}, flags...), "-o", out, "./cmd/dmxfs")...)
	c.Dir = root
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the program in %s: %v\n%s", root, err, b)
	}
}

// printed is what a script prints, which is ended when it has no end.
func printed(c *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	if err := c.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(2*time.Minute, func() { _ = c.Process.Kill() }) // an error: it has ended
	defer late.Stop()
	err := c.Wait()
	return out.Bytes(), err
}

// hasAll wants each of the words in what a script has printed.
func hasAll(t *testing.T, out []byte, err error, words ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("the script: %v", err)
	}
	for _, w := range words {
		if !bytes.Contains(out, []byte(w)) {
			t.Errorf("no %q in it:\n%s", w, out)
		}
	}
}

// TestNeighbouringVersions has two hosts with programs of two versions in a cluster,
// which each of them founds once. Counters under flock, fcntl and a rule are right, each
// shows both versions and the other's locks, and takes over when the other one dies.
func TestNeighbouringVersions(t *testing.T) {
	t.Parallel()
	needBuild(t)
	need(t, "unshare", "ip", "bash", "flock", "sqlite3", "pgrep", "git", "tar")
	source := t.TempDir()
	archive := exec.Command("git", "archive", "--output", filepath.Join(source, "source.tar"), neighbour)
	archive.Dir = filepath.Join("..", "..")
	if b, err := archive.CombinedOutput(); err != nil {
		t.Skipf("commit %s is not here (a shallow clone, or no repository): %v, %s", neighbour, err, bytes.TrimSpace(b))
	}
	if b, err := exec.Command("tar", "-xf", filepath.Join(source, "source.tar"), "-C", source).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v, %s", err, b)
	}
	// Where it has it: the linker passes over a name that is not there.
	build(t, source, filepath.Join(source, "dmxfs-old"),
		"-ldflags=-s -w -X main.commit="+neighbour+" -X github.com/dmxfs/dmxfs/internal/version.commit="+neighbour)

	for _, order := range []string{"old new", "new old"} {
		t.Run(strings.ReplaceAll(order, " ", " founds, joins "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, err := printed(apart(t, `exec 2>&1; set -e
cd `+dir+`; mkdir raw a b; ln -s $(command -v dmxfs) new; ln -s `+source+`/dmxfs-old old
set -- `+order+`
./$1 --fast --exclusive 'x/**=rcv' --listen /ip4/127.0.0.1/tcp/0 raw a
./$2 --fast --join --no-restart --listen /ip4/127.0.0.1/tcp/0 raw b
mkdir a/x; echo 0 >a/n; echo 0 >a/x/n; sqlite3 a/db 'CREATE TABLE t(host)'
count() { for i in {1..100}; do { flock -w 20 9 || return; n=$(cat <$1); echo $((n+1)) >$1; } 9>>$1.lock; done; }
rows() { for i in {1..5}; do sqlite3 -cmd '.timeout 60000' $1/db "INSERT INTO t VALUES('$1')"; done; }
for h in a b; do count $h/n & count $h/x/n & rows $h & done; wait
for h in a b; do echo "$h: $(cat $h/n) $(cat $h/x/n) $(sqlite3 $h/db 'SELECT count(*) FROM t; PRAGMA integrity_check' | tr '\n' ' ')"; done
v() { ./$1 version | cut -d' ' -f2; }
peers=$(./old peers $([ $1 = old ] && echo a || echo b); echo; ./new peers $([ $1 = new ] && echo a || echo b))
for p in old new; do echo "$p is shown $(grep -cF "  $(v $p)  " <<<"$peers") times"; done
exec 9>>b/held; flock -w 20 9
echo "a sees: $(./$1 locks a | grep -c '^held .* held ')"
kill -9 $(pgrep -f "serve-mount $PWD/b")
flock -w 20 a/held echo "a has it"
exec 9>&-
./$1 journal --explain held a | grep -q dropped && echo "explained"
./$2 --fast --join --listen /ip4/127.0.0.1/tcp/0 raw b
flock -n b/held echo "b is back"
./$2 unmount b; ./$1 unmount a
`, dir+"/home"))
			hasAll(t, out, err, "a: 200 200 10 ok", "b: 200 200 10 ok", "old is shown 2 times", "new is shown 2 times", "a sees: 1", "a has it", "explained", "b is back")
		})
	}
}

// TestOtherProtocol has a member of this version and one of the next generation of
// messages: whichever is there first refuses the other in words, and goes on.
func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	needBuild(t)
	need(t, "unshare", "ip", "bash", "flock")
	dir := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "p2p", "member", "version.go")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	next := strings.Replace(string(b), fmt.Sprintf("const Protocol = %d\n", member.Protocol), fmt.Sprintf("const Protocol = %d\n", member.Protocol+1), 1)
	if next == string(b) {
		t.Fatalf("%s does not say what the protocol is", file)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: filepath.Join(dir, "version.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"version.go": next, "overlay": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build(t, root, filepath.Join(dir, "next"), "-overlay="+filepath.Join(dir, "overlay"), "-ldflags=-s -w -X github.com/dmxfs/dmxfs/internal/version.commit=aaaabbbbccccdddd")
	out, err := printed(apart(t, `exec 2>&1; set -e
cd `+dir+`; ln -s $(command -v dmxfs) this
for order in "this next" "next this"; do
set -- $order; mkdir raw-$1 a-$1 b-$1
./$1 --listen /ip4/127.0.0.1/tcp/0 raw-$1 a-$1
./$2 --join --listen /ip4/127.0.0.1/tcp/0 raw-$1 b-$1 || echo "$2 is refused: $?"
flock -n a-$1/f echo "$1 goes on"
./$1 unmount a-$1
done
`, dir+"/home"))
	this := fmt.Sprint(member.Protocol)
	hasAll(t, out, err, "next is refused: 4", "this is refused: 4", "this goes on", "next goes on",
		"+aaaabbbbcccc. All hosts of a cluster run", "+aaaabbbbcccc here speaks "+fmt.Sprint(member.Protocol+1), "here speaks "+this)
}
