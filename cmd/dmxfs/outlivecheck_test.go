package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tell tells what was done.
func (x *outliving) tell() {
	steps, doubts := map[string]uint64{}, map[string]uint64{}
	all := uint64(0)
	for _, o := range x.programs {
		steps[o.kind] += o.state.steps.Load()
		if o.kind != "probe" {
			all += o.state.steps.Load()
		}
		if n := o.state.doubts.Load(); n > 0 {
			doubts[o.kind] += n
		}
	}
	takeovers := 0
	for _, m := range x.c.mounts {
		if s, err := m.status(); err == nil && s.Takeover != nil {
			takeovers += s.Takeover.Count
		}
	}
	x.t.Logf("%d kills, %d takeovers, %d steps of programs: %v", len(x.kills), takeovers, all, steps)
	told, n := x.doubts()
	x.t.Logf("%d changes of which it was not known who had made them, %.2f for each kill; programs were told of %v", n, float64(n)/float64(max(len(x.kills), 1)), doubts)
	for i := range x.c.mounts {
		for kind, n := range doubtsOf(x.programs, i) {
			// A tool may be told of one, and say nothing; and it is told of none that is not logged.
			if n > told[i][kind] {
				x.t.Errorf("programs %q on host %d were told of %d errors, and the log of %d", kind, i, n, told[i][kind])
			}
		}
	}
	if x.numbers && doubts["probe"] > 0 {
		x.t.Errorf("%d writes of which it could be known whether they were made have failed", doubts["probe"])
	}
	if n > 0 && *outliveSure {
		x.t.Errorf("of %d changes it was not known who had made them", n)
	}
	x.tellPauses()
}

// doubts are the changes whose outcome was not known, by host and kind of program, and how
// many there are.
func (x *outliving) doubts() (by []map[string]int, all int) {
	for _, m := range x.c.mounts {
		found := m.unknownOutcomes()
		by = append(by, found)
		for _, n := range found {
			all += n
		}
	}
	return by, all
}

func doubtsOf(programs []*outlivingProgram, host int) map[string]int {
	found := map[string]int{}
	for _, o := range programs {
		if n := o.state.doubts.Load(); o.host == host && n > 0 {
			found[o.kind] += int(n)
		}
	}
	return found
}

// check looks at what the programs have left, past the mounts.
func (x *outliving) check() {
	x.t.Helper()
	same := func(kind, file string) {
		if !x.has(kind) {
			return
		}
		want := read(x.t, filepath.Join(x.local, "truth-"+kind))
		if got := x.content(filepath.Join(kind, file), want); got != want {
			x.t.Errorf("%s/%s: %v", kind, file, differ([]byte(got), []byte(want), 0))
		}
	}
	for _, kind := range []string{"counter-flock", "counter-fcntl", "counter-ofd", "counter-open", "queue", "shared", "append"} {
		same(kind, "data")
	}
	same("mkdir", "number")
	same("excl", "number")
	same("replace", "current")
	var sections []string
	for _, kind := range []string{"counter-flock", "counter-fcntl", "counter-ofd", "counter-open", "queue", "mkdir", "excl"} {
		if x.has(kind) {
			sections = append(sections, kind+" "+read(x.t, filepath.Join(x.local, "truth-"+kind)))
		}
	}
	x.t.Logf("sections: %s", strings.Join(sections, ", "))
	for i := range x.c.mounts {
		if !x.has("log") {
			continue
		}
		who := fmt.Sprintf("%d-log", i)
		// The last line may not be written yet.
		if got, want := read(x.t, filepath.Join(x.root, "log", who)), read(x.t, filepath.Join(x.local, "truth-"+who)); !x.t.Failed() && got != want {
			x.t.Errorf("%s: %v", who, differ([]byte(got), []byte(want), 0))
		}
	}
	if x.has("sqlite") {
		x.checkRows()
	}
	if x.has("git") {
		x.checkGit()
	}
	for _, m := range x.c.mounts {
		x.checkDaemon(m)
	}
}

// content is what is in a file. What another host has done without a lock may be seen a
// little later through clients.
func (x *outliving) content(file, want string) (got string) {
	for until := time.Now().Add(10 * time.Second); ; waitALittle() {
		got = read(x.t, filepath.Join(x.root, file))
		if got == want || x.root == x.c.src || time.Now().After(until) {
			return got
		}
	}
}

// checkRows looks at the database.
func (x *outliving) checkRows() {
	m := x.c.mounts[0]
	out, code := m.sh("sqlite3 sqlite/t.db 'pragma integrity_check; select n from n; select id from t'")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) < 2 || lines[0] != "ok" {
		x.t.Errorf("the database: %d %s", code, out)
		return
	}
	rows := map[string]bool{}
	for _, id := range lines[2:] {
		rows[id] = true
	}
	if lines[1] != fmt.Sprint(len(rows)) {
		x.t.Errorf("the database has %d rows, and counted %s", len(rows), lines[1])
	}
	sure, maybe := 0, 0
	for _, o := range x.programs {
		if o.kind != "sqlite" {
			continue
		}
		for _, mark := range []string{"Q", "M"} {
			ids, err := readMarks(filepath.Join(x.local, "log-"+o.who), mark)
			if err != nil {
				x.t.Error(err)
			}
			for _, id := range ids {
				if mark == "Q" && !rows[id] {
					x.t.Errorf("row %s is LOST", id)
				}
				if mark == "Q" {
					sure++
				} else if rows[id] {
					maybe++
				}
			}
		}
	}
	if len(rows) != sure+maybe {
		x.t.Errorf("the database has %d rows, of %d that were inserted and %d that may have been", len(rows), sure, maybe)
	}
	x.t.Logf("%d rows", len(rows))
}

// checkGit looks at the repository.
func (x *outliving) checkGit() {
	truth := read(x.t, filepath.Join(x.local, "truth-git"))
	for _, q := range []struct{ what, want string }{
		{"git log -1 --format=%s", truth},
		{"git log --format=%s | sort | uniq -d", ""},
		{"git fsck --full --strict --no-dangling 2>&1", ""},
	} {
		out, code := x.c.mounts[1].sh("export " + gitEnds + "; cd git/repo; " + q.what)
		if out = strings.TrimSpace(out); code != 0 || out != q.want {
			x.t.Errorf("%s: %d %q, want %q", q.what, code, out, q.want)
		}
	}
	out, _ := x.c.mounts[len(x.c.mounts)-1].sh("cd git/repo; git rev-list --count HEAD")
	x.t.Logf("%s commits", strings.TrimSpace(out))
}

// checkDaemon looks at what the daemons of a mount say: nothing was lost, and nothing went
// wrong.
func (x *outliving) checkDaemon(m *testMount) {
	if r := m.journal("--event", "lost,fenced,recovered,late_write"); len(r) > 0 {
		x.t.Errorf("LOST on %s: %d, as %+v", m.dir, len(r), r[0])
	}
	told := 0
	for line := range strings.Lines(m.log()) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "another one goes on") && !strings.Contains(line, unknownOutcome) {
			if told++; told < 20 {
				x.t.Errorf("the log of %s: %s", m.dir, line)
			}
		}
	}
}

// files counts the files that the kernel may remember.
func (x *outliving) files() (n int) {
	err := filepath.WalkDir(x.root, func(string, fs.DirEntry, error) error { n++; return nil })
	if err != nil {
		x.t.Error(err)
	}
	return n
}

// nothingIsLeft unmounts, and looks for what is left.
func (x *outliving) nothingIsLeft() {
	for _, m := range x.c.mounts {
		await(x.t, "there is one keeper", func() bool { return m.keepers() == 1 })
		x.c.run("unmount", m.dir)
		await(x.t, "no keeper is left", func() bool { return m.keepers() == 0 })
		await(x.t, "no process is left", func() bool { return !alive(m.watcher) && m.daemon() == 0 })
	}
	for i, m := range x.c.mounts {
		hidden, err := filepath.Glob(filepath.Join(m.src, "*", ".fuse_hidden*"))
		if err != nil || len(hidden) > 0 {
			x.t.Errorf("left over: %v %v", hidden, err)
		}
		if m.mounted() {
			x.t.Errorf("host %d is mounted still", i)
		}
	}
}

// keep copies what the programs and the daemons wrote down.
func (x *outliving) keep(dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		x.t.Fatal(err)
	}
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			x.t.Error(err)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(x.local, "*"))
	for _, name := range logs {
		put(filepath.Base(name), []byte(read(x.t, name)))
	}
	for i, m := range x.c.mounts {
		journal, err := x.c.try("journal", "--json", m.dir)
		if err != nil {
			x.t.Log(err)
		}
		put(fmt.Sprintf("%d-journal.json", i), []byte(journal))
		put(fmt.Sprintf("%d-daemon.log", i), []byte(m.log()))
	}
	var kills strings.Builder
	for _, k := range slices.SortedFunc(slices.Values(x.kills), func(a, b killing) int { return int(a.at - b.at) }) {
		fmt.Fprintf(&kills, "%d %d\n", k.host, k.at)
	}
	put("kills", []byte(kills.String()))
}
