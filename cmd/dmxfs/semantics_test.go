package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// TestSemantics runs the cases of testdata/semantics on a local file system,
// on one mount (if tests run in full) and on two mounts of one directory, and compares
// what programs see, line by line. See testdata/semantics/README for how a case is written.
//
// A difference must be named in the case, and the name explained in
// docs/semantics.md. It prints the table of cases and columns with -v.
func TestSemantics(t *testing.T) {
	t.Parallel()
	needMounts(t)
	cases := readCases(t, "testdata/semantics/*.txt")
	columns := newColumns(t)
	var mu sync.Mutex
	named := map[string]bool{} // guarded by mu
	rows := make([]string, len(cases))
	head := fmt.Sprintf("%-64s %-12s", "case", fileSystemOf(t, columns[0].src))
	for _, col := range columns[1:] {
		head += fmt.Sprintf(" %-20s", col.name)
	}
	table := []string{head}
	// Cases wait for most of their time: four at once.
	atOnce(4, len(cases), func(i int) {
		c := cases[i]
		row := fmt.Sprintf("%-64s", c.file+": "+c.name)
		if c.kernel != "" && !kernelIs(t, c.kernel) {
			rows[i] = row + " not run: needs Linux " + c.kernel
			return
		}
		t.Run(c.file+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			got := make([][]string, len(columns))
			var wg sync.WaitGroup
			for j, col := range columns {
				wg.Go(func() { got[j] = col.run(t, i, c) })
			}
			wg.Wait()
			var lines []string
			verdicts := make([]string, len(columns))
			for j := range columns {
				verdicts[j] = fmt.Sprintf("%d lines", len(c.steps))
				if j > 0 {
					verdicts[j] = "same"
				}
			}
			for s, step := range c.steps {
				line := fmt.Sprintf("%-52s", step.String())
				for j, col := range columns {
					want, name := step.wanted(col.kind)
					line += fmt.Sprintf(" %-24s", got[j][s])
					switch {
					case name != "":
						mu.Lock()
						named[name] = true
						mu.Unlock()
						verdicts[j] = name
						if got[j][s] == got[0][s] && momentary[name] {
							want = got[0][s]
						} else if got[j][s] == got[0][s] {
							t.Errorf("%s:%d: %s: %s sees no difference any more: %s", c.file, step.line, step, col.name, got[j][s])
						}
					case j > 0:
						want = got[0][s]
					}
					if got[j][s] != want {
						verdicts[j] = "DIFFERS"
						t.Errorf("%s:%d: %s: %s sees %s, want %s", c.file, step.line, step, col.name, got[j][s], want)
					}
				}
				lines = append(lines, line)
			}
			row += fmt.Sprintf(" %-12s", verdicts[0])
			for _, v := range verdicts[1:] {
				row += fmt.Sprintf(" %-20s", v)
			}
			t.Logf("\n%s", strings.Join(lines, "\n"))
		})
		rows[i] = row
	})
	table = append(table, rows...)
	t.Logf("\n%s", strings.Join(table, "\n"))
	if !long.Tests() {
		nameAll(named, cases, "one") // where they were not run
	}
	checkExplained(t, named)
}

// nameAll adds the differences that a kind of column sees.
func nameAll(named map[string]bool, cases []*semCase, kind string) {
	for _, c := range cases {
		for _, step := range c.steps {
			if _, name := step.wanted(kind); name != "" {
				named[name] = true
			}
		}
	}
}

// momentary are differences that do not show where a host has heard in time of what
// the other one did, as on a busy machine.
var momentary = map[string]bool{"seek-end": true}

// atOnce calls f with 0 to n-1, up to k calls at a time.
func atOnce(k, n int, f func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range k {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// checkExplained compares the differences that cases name with those that
// docs/semantics.md explains.
func checkExplained(t *testing.T, named map[string]bool) {
	t.Helper()
	doc := read(t, "../../docs/semantics.md")
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^### `([a-z-]+)`").FindAllStringSubmatch(doc, -1) {
		explained[m[1]] = true
	}
	for name := range named {
		if !explained[name] {
			t.Errorf("docs/semantics.md has no section on the difference %q", name)
		}
	}
	for name := range explained {
		if !named[name] {
			t.Errorf("docs/semantics.md explains the difference %q, which no case shows", name)
		}
	}
}

func fileSystemOf(t *testing.T, dir string) string {
	all, err := mountinfo.Read()
	if err != nil {
		t.Fatal(err)
	}
	best := mountinfo.Mount{Type: "local"}
	for _, m := range all {
		if (dir == m.Point || m.Point == "/" || strings.HasPrefix(dir, m.Point+"/")) && len(m.Point) >= len(best.Point) {
			best = m
		}
	}
	return best.Type
}

// semCase is a story of some actors, a call a line.
type semCase struct {
	file, name string
	kernel     string // it needs, as in "6.11"
	steps      []semStep
}

type semStep struct {
	line          int
	actor, thread string
	words         []string
	want          string
	differs       []difference
}

// difference is what another column than the local one is known to see.
type difference struct{ columns, want, name string }

func (s semStep) String() string {
	a := s.actor
	if s.thread != "" {
		a += "." + s.thread
	}
	return a + " " + strings.Join(s.words, " ")
}

// wanted is what a column of a kind should see, and the name of the difference if that
// is not what the local one sees.
func (s semStep) wanted(kind string) (want, name string) {
	for _, d := range s.differs {
		if d.columns == kind || d.columns == "mounts" && kind != "local" {
			return d.want, d.name
		}
	}
	return s.want, ""
}

var differenceForm = regexp.MustCompile(`^(one|two|mounts) (.*) \(([a-z-]+)\)$`)

// kernelForm is the name of a case that needs a kernel.
var kernelForm = regexp.MustCompile(`^(.*) \[linux (\d+\.\d+)\]$`)

// kernelIs reports whether the kernel is at least version.
func kernelIs(t *testing.T, version string) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var have, want [2]int
	for _, x := range []struct {
		s string
		v *[2]int
	}{{unix.ByteSliceToString(u.Release[:]), &have}, {version, &want}} {
		if _, err := fmt.Sscanf(x.s, "%d.%d", &x.v[0], &x.v[1]); err != nil {
			t.Fatalf("version %q: %v", x.s, err)
		}
	}
	return slices.Compare(have[:], want[:]) >= 0
}

func readCases(t *testing.T, pattern string) []*semCase {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var cases []*semCase
	for _, f := range files {
		var c *semCase
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		for i, l := range strings.Split(read(t, f), "\n") {
			l = strings.TrimSpace(l)
			switch head, isCase := strings.CutPrefix(l, "== "); {
			case isCase:
				c = &semCase{file: name, name: head}
				if m := kernelForm.FindStringSubmatch(head); m != nil {
					c.name, c.kernel = m[1], m[2]
				}
				cases = append(cases, c)
			case l == "" || l[0] == '#':
			default:
				s, err := parseStep(l)
				if err != nil || c == nil {
					t.Fatalf("%s:%d: %v: %s", f, i+1, err, l)
				}
				s.line = i + 1
				c.steps = append(c.steps, s)
			}
		}
	}
	return cases
}

func parseStep(l string) (s semStep, err error) {
	parts := strings.Split(l, " | ")
	what, want, ok := strings.Cut(parts[0], "=>")
	w := strings.Fields(what)
	if !ok || len(w) < 2 {
		return s, fmt.Errorf("want ACTOR CALL => OUTCOME")
	}
	s.actor, s.thread, _ = strings.Cut(w[0], ".")
	s.words, s.want = w[1:], strings.TrimSpace(want)
	for _, p := range parts[1:] {
		m := differenceForm.FindStringSubmatch(strings.TrimSpace(p))
		if m == nil {
			return s, fmt.Errorf("want COLUMN OUTCOME (NAME) in %q", p)
		}
		s.differs = append(s.differs, difference{m[1], m[2], m[3]})
	}
	return s, nil
}

// column is one of the places where the cases are run. Actors are put into its
// directories in turn.
type column struct {
	kind string // in the cases
	name string
	src  string
	dirs []string
}

// newColumns are a local file system, a mount if tests run in full, and two mounts of one
// directory.
func newColumns(t *testing.T) []*column {
	local, two := t.TempDir(), newCluster(t, 2)
	list := []*column{{kind: "local", name: "local", src: local, dirs: []string{local}}}
	if long.Tests() {
		one := newCluster(t, 1)
		list = append(list, &column{kind: "one", name: "one mount", src: one.src, dirs: []string{one.mounts[0].dir}})
	}
	return append(list, &column{kind: "two", name: "two mounts", src: two.src, dirs: []string{two.mounts[0].dir, two.mounts[1].dir}})
}

// run makes the calls of a case and returns the outcomes.
func (col *column) run(t *testing.T, number int, c *semCase) []string {
	got := make([]string, len(c.steps))
	for i := range got {
		got[i] = "not reached"
	}
	name := fmt.Sprintf("case-%d", number)
	if err := os.Mkdir(filepath.Join(col.src, name), 0o755); err != nil {
		t.Error(err)
		return got
	}
	// A file of 100 bytes is there for every case.
	if err := os.WriteFile(filepath.Join(col.src, name, "f"), []byte(strings.Repeat("0123456789", 10)), 0o644); err != nil {
		t.Error(err)
		return got
	}
	st, err := col.cast(t, name, c)
	if err != nil {
		t.Error(err)
		return got
	}
	defer st.end()
	for i, s := range c.steps {
		out, err := st.do(&s)
		if err != nil {
			t.Errorf("%s: %s:%d: %s: %v", col.name, c.file, s.line, s, err)
			return got
		}
		got[i] = st.nameProcesses(out)
	}
	return got
}

// cast is a stage with the actors of a case, whose process IDs rise: of several locks in
// the way F_GETLK tells of the first one on Linux, and of the one with the lowest ID here.
func (col *column) cast(t *testing.T, name string, c *semCase) (*stage, error) {
	for {
		st, err := newStage(t)
		if err != nil {
			return nil, err
		}
		rise, last := true, 0
		for _, s := range c.steps {
			if !slices.Contains(st.order, s.actor) {
				st.order = append(st.order, s.actor)
				if !st.spawned[s.actor] {
					dir := filepath.Join(col.dirs[len(st.started)%len(col.dirs)], name)
					if err := st.start(s.actor, dir); err != nil {
						st.end()
						return nil, fmt.Errorf("%s: start actor %s: %w", col.name, s.actor, err)
					}
					st.mu.Lock()
					pid := st.actors[s.actor].pid
					st.mu.Unlock()
					rise, last = rise && pid > last, pid
				}
			}
			if s.words[0] == "spawn" {
				st.spawned[s.words[1]] = true
			}
		}
		if rise {
			return st, nil
		}
		st.end() // the numbers have begun from the first again
	}
}

var pidForm = regexp.MustCompile(`pid=(\d+)`)

// nameProcesses puts the names of actors for their process IDs.
func (st *stage) nameProcesses(s string) string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return pidForm.ReplaceAllStringFunc(s, func(m string) string {
		for name, p := range st.actors {
			if m == fmt.Sprintf("pid=%d", p.pid) {
				return "pid=" + name
			}
		}
		return m
	})
}

var signals = map[string]unix.Signal{"kill": unix.SIGKILL, "stop": unix.SIGSTOP, "cont": unix.SIGCONT}
