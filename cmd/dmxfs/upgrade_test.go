package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/story"
)

// upgraded upgrades a mount and returns what that came to.
func (m *testMount) upgraded(args ...string) admin.Upgrade {
	m.c.t.Helper()
	daemon := m.daemon()
	var x []admin.Upgrade
	m.c.decode(&x, append([]string{"upgrade", "--json", m.dir}, args...)...)
	if m.daemon() != daemon {
		m.c.t.Errorf("the daemon is another process")
	}
	if len(x) != 1 || x[0].State != admin.UpgradeDone {
		m.c.t.Fatalf("%+v", x)
	}
	m.c.t.Logf("no call was answered for %d ms, no lock granted for %d ms", x[0].PauseMS, x[0].LocksMS)
	return x[0]
}

// decode runs the program and reads the JSON that it prints.
func (c *testCluster) decode(v any, args ...string) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.run(args...)), v); err != nil {
		c.t.Fatal(err)
	}
}

// Each of three hosts is upgraded once under programs that count under locks, hold
// one, wait for it, append, use SQLite, and replace files that are open.
func TestUpgradeUnderPrograms(t *testing.T) {
	t.Parallel()
	needTool(t, "sqlite3", "flock")
	c := newCluster(t, 3)
	a, b := c.mounts[0], c.mounts[1]
	const times = 40
	kinds := []string{"flock", "fcntl", "ofd"}
	var programs []*proc
	if out, code := a.sh("sqlite3 t.db 'create table t(x)'"); code != 0 {
		t.Fatal(out)
	}
	for _, kind := range kinds {
		if err := os.Mkdir(c.src+"/"+kind, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, c.src+"/"+kind+"/data", "0")
	}
	hold := a.helper("append", "flock", "held", "x", "0")
	await(t, "the holder has written", func() bool { return c.size("held") > 20 })
	wait := b.helper("take", "flock", "held")
	b.blocked("held", 1)
	begin := func(m *testMount, i int) {
		for j, kind := range kinds {
			how := []string{"kept", "anew"}[(i+j)%2]
			programs = append(programs, m.helperIn(kind, "counter", kind, how, "lockfile", fmt.Sprint(times)))
		}
		programs = append(programs, m.start("for i in 1 2 3; do sqlite3 -cmd '.timeout 60000' t.db 'insert into t values(1)' || exit 1; done"),
			m.start("for i in 1 2 3 4 5; do echo line >>log || exit 1; echo $i >new.$$ && mv new.$$ name && cat name >/dev/null || exit 1; done"))
	}
	for i, m := range c.mounts {
		begin(m, i)
		m.upgraded()
		size := c.size("held")
		await(t, "the holder writes on", func() bool { return c.size("held") > size+20 })
		if out, code := c.mounts[2].sh("flock -n held true"); code != 1 {
			t.Errorf("flock -n beside the holder: %d %s", code, out)
		}
	}
	for _, p := range programs {
		if out, code := p.wait(); code != 0 {
			t.Errorf("%v: %d %s", p.cmd.Args, code, out)
		}
	}
	for _, kind := range kinds {
		if got := read(t, c.src+"/"+kind+"/data"); got != fmt.Sprint(3*times) {
			t.Errorf("%s: counted to %s, want %d", kind, got, 3*times)
		}
	}
	if out, code := a.sh("sqlite3 t.db 'pragma integrity_check; select count(*) from t'; wc -l <log"); code != 0 || out != "ok\n9\n15\n" {
		t.Errorf("%d %s", code, out)
	}
	if wait.ended() || hold.ended() {
		t.Errorf("%s%s", wait.out.String(), hold.out.String())
	}
	hold.signal(unix.SIGKILL)
	if out, code := wait.wait(); code != 0 {
		t.Errorf("who waited: %d %s", code, out)
	}
	for _, m := range c.mounts {
		if n := len(m.journal("--event", "upgraded")); n != 1 {
			t.Errorf("%d records of an upgrade", n)
		}
		if r := m.journal("--event", "lost,fenced,recovered"); len(r) > 0 {
			t.Errorf("lost: %+v", r)
		}
	}
}

// Who waits when its host is upgraded keeps its place, can be interrupted, and files
// that are open stay open. The journal calls nothing lost, and knows what is open.
func TestUpgradeKeepsPlacesAndFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	st := newActors(t, false, a, b, a, b) // a, c on host a; b, d on host b
	st.want("ok", "a.t open f f rw,creat")
	st.want("ok", "a.t open gone gone rw,creat")
	st.want("ok", "a.t write gone unlinked")
	st.want("ok", "a.t unlink gone")
	st.want("ok", "a.t open log log w,creat,append")
	st.want("ok", "a.t mkdir d")
	st.want("ok", "b.t open f f rw")
	st.want("ok", "c.t open f f rw")
	st.want("ok", "d.t open f f rw")
	st.want("ok", "b.t flock f ex")
	st.want("ok", "c.t lk f set w 0 10")
	first := st.begin("a.t flock f ex").waits() // before d, across hosts and upgrades
	second := st.begin("d.t flock f ex").waits()
	withdrawn := st.begin("c.u flock f sh").waits()
	for range 2 {
		a.upgraded()
		b.upgraded()
	}
	if first.ended() || second.ended() {
		t.Fatal("somebody does not wait any more")
	}
	want := "waiting"
	var open []story.Request
	c.decode(&open, "journal", "--requests", "--json", a.dir)
	states := map[string]int{}
	for _, r := range open {
		states[r.Class+" "+r.State]++
	}
	if states["flock "+want] != 2 || states["posix held"] != 1 {
		t.Errorf("open requests: %+v", open)
	}
	st.want("ok", "c.t catch norestart")
	if s, err := parseStep("c.u signal => ok"); err != nil {
		t.Fatal(err)
	} else if _, err := st.do(&s); err != nil {
		t.Fatal(err)
	}
	if got := withdrawn.outcome(); got != "EINTR" {
		t.Errorf("interrupted: %s", got)
	}
	st.want("EAGAIN", "d.v lk f set w 5 1")
	st.want("ok", "b.t flock f un")
	if got := first.outcome(); got != "ok" {
		t.Errorf("who waited first: %s", got)
	}
	second.waits()
	st.want(`"unlinked"`, "a.t pread gone 0 8")
	st.want("ok", "a.t write log more")
	st.want("ok", "a.t flock f un")
	if got := second.outcome(); got != "ok" {
		t.Errorf("who waited last: %s", got)
	}
	for _, m := range c.mounts {
		if r := m.journal("--event", "lost,recovered,fenced"); len(r) > 0 {
			t.Errorf("lost: %+v", r)
		}
		if r := m.journal("--event", "resumed"); len(r) < 2 {
			t.Errorf("resumed: %+v", r)
		}
		log := m.log()
		if strings.Contains(log, "level=ERROR") {
			t.Errorf("the log of %s has errors", m.dir)
		}
	}
}

// Over clients with caches each lock that comes opens files anew, and each that goes
// writes them out, also just when a host is upgraded.
func TestUpgradeOverSeparateClients(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for _, kind := range kindsOfClients() {
		side.run(t, kind.name, func(t *testing.T) {
			runUpgrades(t, newClientCluster(t, kind, 2), 30)
		})
	}
}

// runUpgrades upgrades both hosts twice, while programs on both count times times
// under locks, and new names are seen on the other one.
func runUpgrades(t *testing.T, c *testCluster, times int) {
	t.Helper()
	var programs []*proc
	kinds := []string{"flock", "fcntl", "ofd"}
	for i, kind := range kinds {
		if err := os.Mkdir(c.mounts[0].path("upgraded-"+kind), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, c.mounts[0].path("upgraded-"+kind+"/data"), "0")
		for _, m := range c.mounts {
			programs = append(programs, m.helperIn("upgraded-"+kind, "counter", kind, []string{"kept", "anew"}[i%2], []string{"self", "lockfile"}[i/2], fmt.Sprint(times)))
		}
	}
	for _, m := range c.mounts {
		if _, err := os.ReadDir(m.path("upgraded-flock")); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		for _, m := range c.mounts {
			m.upgraded()
		}
		name := fmt.Sprint("new", round)
		write(t, c.mounts[round].path("upgraded-flock/"+name), "")
		if list, err := os.ReadDir(c.mounts[1-round].path("upgraded-flock")); err != nil || !strings.Contains(fmt.Sprint(list), name) {
			t.Errorf("the other host lists %v, %v: %s is missing", list, err, name)
		}
	}
	for _, p := range programs {
		if out, code := p.wait(); code != 0 {
			t.Errorf("%v: %d %s", p.cmd.Args, code, out)
		}
	}
	for _, m := range c.mounts {
		for _, kind := range kinds {
			if got := read(t, m.path("upgraded-"+kind+"/data")); got != fmt.Sprint(2*times) {
				t.Errorf("%s: counted to %s, want %d", kind, got, 2*times)
			}
		}
		if r := m.journal("--event", "lost,fenced,recovered"); len(r) > 0 {
			t.Errorf("lost: %+v", r)
		}
	}
}
