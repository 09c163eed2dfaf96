package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const contrib = "../../contrib/"

// metricNames are all names that a query can have: those of [collector], of Go, of
// the process, and up.
func metricNames(t *testing.T) map[string]string {
	t.Helper()
	reg, err := filled().registry(2)
	if err != nil {
		t.Fatal(err)
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"up": "gauge"}
	for _, f := range all {
		kind := strings.ToLower(f.GetType().String())
		names[f.GetName()] = kind
		if kind == "histogram" {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				names[f.GetName()+suffix] = "counter"
			}
		}
	}
	return names
}

// labelNames are the labels of all metrics, and those that Prometheus gives.
func labelNames() []string {
	out := []string{"job", "instance", "le", "alertname", "alertstate"}
	for _, desc := range d.all {
		for _, m := range regexp.MustCompile(`variableLabels: \{([^}]*)\}`).FindAllStringSubmatch(desc.String(), -1) {
			out = append(out, strings.Split(m[1], ",")...)
		}
	}
	return out
}

var (
	quoted   = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	matchers = regexp.MustCompile(`\{([^}]*)\}`)
	grouping = regexp.MustCompile(`\b(by|without|on|ignoring)\s*\(([^)]*)\)`)
	window   = regexp.MustCompile(`\[[^\]]*\]`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	call     = regexp.MustCompile(`([a-zA-Z_]+)\s*\(`)
)

// names takes a query of PromQL apart: the metrics and labels that it names.
func names(query string) (metrics, labels []string) {
	q := quoted.ReplaceAllString(query, `""`)
	for _, m := range matchers.FindAllStringSubmatch(q, -1) {
		labels = append(labels, word.FindAllString(m[1], -1)...)
	}
	q = matchers.ReplaceAllString(q, "")
	for _, m := range grouping.FindAllStringSubmatch(q, -1) {
		labels = append(labels, word.FindAllString(m[2], -1)...)
	}
	q = window.ReplaceAllString(grouping.ReplaceAllString(q, " "), "")
	keywords := []string{"and", "or", "unless", "bool", "offset"}
	for _, m := range call.FindAllStringSubmatch(q, -1) {
		keywords = append(keywords, m[1])
	}
	for _, w := range word.FindAllString(q, -1) {
		if !slices.Contains(keywords, w) && !slices.Contains([]string{"sum", "max", "min", "count", "changes"}, w) {
			metrics = append(metrics, w)
		}
	}
	return metrics, labels
}

// check says what is wrong with a query: it names what is not there, or has the
// rate of what is no counter.
func check(t *testing.T, where, query string, known map[string]string) {
	t.Helper()
	ms, ls := names(query)
	if len(ms) == 0 {
		t.Errorf("%s: %s names no metric", where, query)
	}
	for _, m := range ms {
		if known[m] == "" {
			t.Errorf("%s: %s: there is no metric %s", where, query, m)
		}
		isCounter := known[m] == "counter"
		if rated := regexp.MustCompile(`(rate|increase)\(` + m + `\b`).MatchString(query); rated && !isCounter {
			t.Errorf("%s: %s: %s is a %s", where, query, m, known[m])
		}
	}
	labels := labelNames()
	for _, l := range ls {
		if !slices.Contains(labels, l) {
			t.Errorf("%s: %s: there is no label %s", where, query, l)
		}
	}
}

// TestNames: the other tests here can fail.
func TestNames(t *testing.T) {
	t.Parallel()
	ms, ls := names(`histogram_quantile(0.99, sum by (le, a) (rate(x_bucket{job="$job",b=~"c|d"}[5m]))) > bool max(y) and z{e="f g"} or vector(0)`)
	if got, want := strings.Join(ms, " ")+"; "+strings.Join(ls, " "), "x_bucket y z; job b e le a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// rules reads the alerts' names, queries and annotations. The file has one
// key a line.
func rules(t *testing.T) (all []map[string]string) {
	t.Helper()
	b, err := os.ReadFile(contrib + "prometheus/dmxfs-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ": ")
		switch {
		case !ok:
		case key == "alert":
			all = append(all, map[string]string{key: value})
		case len(all) > 0:
			all[len(all)-1][key] = value
		}
	}
	return all
}

// TestAlerts: each alert asks for what there is, says what to do, and is explained.
func TestAlerts(t *testing.T) {
	t.Parallel()
	known := metricNames(t)
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Dmxfs\w+)\n\n(?:[^\n]+\n)+\n1\. `).FindAllStringSubmatch(string(doc), -1) {
		sections[m[1]] = true
	}
	all := rules(t)
	if len(all) < 10 {
		t.Fatalf("%d alerts were read", len(all))
	}
	for _, r := range all {
		name := r["alert"]
		check(t, name, r["expr"], known)
		for _, key := range []string{"summary", "action", "labels"} {
			if r[key] == "" {
				t.Errorf("%s has no %s", name, key)
			}
		}
		if want := "docs/operations.md#" + strings.ToLower(name); r["runbook"] != want || !sections[name] {
			t.Errorf("%s: runbook %q, want %q, and a section that says what to do", name, r["runbook"], want)
		}
		delete(sections, name)
	}
	for name := range sections {
		t.Errorf("docs/operations.md explains %s, which is no alert", name)
	}
}

// TestAlertsFire has promtool run the alerts over series in which all is well, and in
// which all is wrong.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "dmxfs-alerts.yml"}, {"test", "rules", "dmxfs-alerts-test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = contrib + "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	b, err := os.ReadFile(contrib + "prometheus/dmxfs-alerts-test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if !strings.Contains(string(b), `alertname="`+r["alert"]+`"`) {
			t.Errorf("no test has the alert %s fire", r["alert"])
		}
	}
}

// TestBoard: the board of Grafana is what that can import, and its queries ask for
// what there is.
func TestBoard(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(contrib + "grafana/dmxfs.json")
	if err != nil {
		t.Fatal(err)
	}
	type grid struct{ H, W, X, Y int }
	var board struct {
		Title, UID    string
		SchemaVersion int
		Panels        []struct {
			ID          int
			Type, Title string
			GridPos     grid
			Targets     []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion < 30 {
		t.Errorf("title %q, uid %q, schemaVersion %d", board.Title, board.UID, board.SchemaVersion)
	}
	known := metricNames(t)
	ids, tiles := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) {
			t.Errorf("panel %d %q of type %q: its ID is there twice, or what it is is not known", p.ID, p.Title, p.Type)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.H < 1 || g.W < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("panel %q is outside of the grid: %+v", p.Title, g)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := tiles[at]; other != "" {
					t.Fatalf("panel %q lies on %q", p.Title, other)
				}
				tiles[at] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q of type %s has %d queries", p.Title, p.Type, len(p.Targets))
		}
		for _, q := range p.Targets {
			check(t, p.Title, q.Expr, known)
		}
	}
	var vars []string
	for _, v := range board.Templating.List {
		vars = append(vars, v.Name)
		if v.Type == "query" {
			check(t, v.Name, strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ", "+v.Name+")"), known)
		}
	}
	for _, m := range regexp.MustCompile(`\$\{?([a-z]+)\b`).FindAllStringSubmatch(string(b), -1) {
		if !slices.Contains(vars, m[1]) {
			t.Errorf("there is no variable $%s", m[1])
		}
	}
}

// TestBoardByPromtool has promtool read the queries of the board, which knows
// PromQL as a whole.
func TestBoardByPromtool(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	b, err := os.ReadFile(contrib + "grafana/dmxfs.json")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("groups:\n- name: board\n  rules:\n")
	for _, m := range regexp.MustCompile(`(?m)"expr": ("(?:\\.|[^"\\])*")`).FindAllStringSubmatch(string(b), -1) {
		var q string
		if err := json.Unmarshal([]byte(m[1]), &q); err != nil {
			t.Fatal(err)
		}
		y, err := json.Marshal(strings.ReplaceAll(q, "$__rate_interval", "5m"))
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("  - record: x\n    expr: " + string(y) + "\n")
	}
	file := t.TempDir() + "/board.yml"
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}
