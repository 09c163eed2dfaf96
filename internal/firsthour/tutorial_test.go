package firsthour

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// step is a command of a page, with what it prints there.
type step struct {
	line    int
	command string
	output  []string
}

// steps are the commands of a page in Markdown: the lines of its console blocks
// that begin with "$ ".
func steps(page string) (all []step) {
	in := false
	for i, line := range strings.Split(page, "\n") {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			in = line == "```console"
		case !in:
		case is:
			all = append(all, step{line: i + 1, command: command})
		case len(all) > 0:
			last := &all[len(all)-1]
			last.output = append(last.output, line)
		}
	}
	return all
}

// differs says where got is not as a page has it, or nothing. In a line, … is
// any text; a line of it alone is any number of lines. Spaces do not count.
func differs(want []string, got string) string {
	var re strings.Builder
	for _, w := range want {
		w = strings.Join(strings.Fields(w), " ")
		if w == "…" {
			re.WriteString("(.*\n)*?")
			continue
		}
		re.WriteString(strings.ReplaceAll(regexp.QuoteMeta(w), "…", ".*") + "\n")
	}
	var lines strings.Builder
	for line := range strings.Lines(got) {
		fmt.Fprintln(&lines, strings.Join(strings.Fields(line), " "))
	}
	if regexp.MustCompile("^" + re.String() + "$").MatchString(lines.String()) {
		return ""
	}
	return fmt.Sprintf("it prints\n%s\nand the page has\n%s", got, strings.Join(want, "\n"))
}

func TestDiffers(t *testing.T) {
	page := "text\n```console\n$ a\none  …\n…\nend\n$ b\n```\n$ no\n```\n$ no\n```\n"
	all := steps(page)
	if len(all) != 2 || all[0].command != "a" || all[1].command != "b" || len(all[0].output) != 3 || all[0].line != 3 {
		t.Fatalf("steps %+v", all)
	}
	for got, same := range map[string]bool{"one 1\nend\n": true, "one   2\nx\ny\nend\n": true, "two\nend\n": false, "one 1\nend\nmore\n": false, "": false} {
		if (differs(all[0].output, got) == "") != same {
			t.Errorf("%q: same %v, want %v", got, !same, same)
		}
	}
	if differs(nil, "") != "" || differs(nil, "x\n") == "" {
		t.Error("no output")
	}
}

// TestTutorial runs every command of docs/tutorial.md, in one shell, and
// compares what it prints.
func TestTutorial(t *testing.T) {
	t.Parallel()
	need(t, "unshare", "ip", "bash", "flock", "pgrep", "sqlite3")
	b, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	all := steps(strings.ReplaceAll(string(b), "/tmp/tutorial", dir+"/t"))
	if len(all) < 20 {
		t.Fatalf("the page has %d commands only", len(all))
	}
	const mark = "=== step "
	var script strings.Builder
	for i, s := range all {
		fmt.Fprintf(&script, "echo '%s%d'\n%s\n", mark, i, s.command)
	}
	c := apart(t, "exec 2>&1\n"+script.String(), dir+"/home")
	out, err := c.Output()
	if err != nil {
		t.Errorf("%v", err)
	}
	parts := strings.Split(string(out), mark)[1:]
	if len(parts) != len(all) {
		t.Fatalf("%d of %d commands were run:\n%s", len(parts), len(all), out)
	}
	for i, s := range all {
		_, got, _ := strings.Cut(parts[i], "\n")
		if d := differs(s.output, got); d != "" {
			t.Errorf("docs/tutorial.md:%d: %s\n%s", s.line, s.command, d)
		}
	}
}
