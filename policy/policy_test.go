package policy

import (
	"strings"
	"testing"
)

func parse(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("p.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func flags(t *testing.T, rules ...string) *Policy {
	t.Helper()
	p, err := ParseFlags("--exclusive", rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		glob     string
		yes, not []string
	}{
		{"rcv/**", []string{"rcv/a", "rcv/a/b", "rcv/.x"}, []string{"rcv", "rcvx", "rcvx/a", "a/rcv/b", ""}},
		{"**", []string{"a", "a/b/c", ".x"}, []string{""}},
		{"**/*.db", []string{"a.db", "x/a.db", "x/y/.db"}, []string{"a.dbx", "a.db/x"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b", "a/b/b"}, []string{"a/b/c", "ab", "a/xb", "x/a/b"}},
		{"a/**/**/b", []string{"a/b", "a/x/y/b"}, []string{"a"}},
		{"**/a/**/b/**", []string{"a/b/c", "x/a/y/b/c/d", "a/a/b/b"}, []string{"a/b", "a/c"}},
		{"*.lock", []string{"x.lock", ".lock"}, []string{"d/x.lock"}},
		{"a**z/x", []string{"az/x", "abcz/x"}, []string{"a/z/x"}},
		{"{mail,spool}/*", []string{"mail/x", "spool/y"}, []string{"mail/x/y", "{mail,spool}/x"}},
		{"b***", []string{"b", "bcd"}, []string{"c", "b/c"}},
		{"b*{*,c}*", []string{"b", "bcd"}, []string{"c"}},
		{"b*{a,}", []string{"b", "ba", "bc"}, []string{"a"}},
		{`b\**[***]*`, []string{"b**", "b*a*"}, []string{"b*", "b*a"}},
		{"[a-c]?", []string{"ax", "cy"}, []string{"dx", "a"}},
		{"[!a]", []string{"b"}, []string{"a"}},
		{`\*/x`, []string{"*/x"}, []string{"a/x"}},
		{"Größe/*", []string{"Größe/ü"}, []string{"Groesse/u"}},
		{"a=b/**", []string{"a=b/c"}, nil},
	} {
		p := flags(t, c.glob+"=rcv")
		for _, path := range c.yes {
			if p.Algorithm(path) != "rcv" {
				t.Errorf("%s does not match %s", c.glob, path)
			}
		}
		for _, path := range c.not {
			if p.Algorithm(path) != "rw" {
				t.Errorf("%s matches %q", c.glob, path)
			}
		}
	}
}

func TestFirstMatchWins(t *testing.T) {
	p := parse(t, `
[[rule]]
path = "logs/audit"
algorithm = "maekawa"
[[rule]]
path = "logs/**"
algorithm = "rw"
open = "off"
[[rule]]
path = "**"
algorithm = "ring"
`)
	for path, want := range map[string]int{"logs/audit": 0, "logs/x": 1, "logs/x/y": 1, "logs": 2, "a": 2} {
		if r, i := p.Match(path); i != want || r.Algorithm != p.Rules[want].Algorithm {
			t.Errorf("%s: rule %d", path, i)
		}
	}
	if r, i := (*Policy)(nil).Match("x"); r != nil || i != -1 {
		t.Error("a nil policy has a rule")
	}
}

// The canonical text is a policy file that is read as the same policy, and has
// the same hash, however it was written.
func TestTOML(t *testing.T) {
	p := parse(t, `# a comment
rule = [
  { path = 'a "b"/\\x/*', algorithm = 'rcv', wait = "90s", yield = "never" },
  { path = "é\u00AD\u2028*", scope = "process", algorithm = "rw", open = "lock" },
  { path = "c", algorithm = "rw", wait = "none", yield = "1500ms" },
]`)
	text := p.TOML()
	again := parse(t, text)
	if again.TOML() != text || again.Hash() != p.Hash() || len(p.Diff("a", again, "b")) > 0 {
		t.Errorf("%s\nis read as\n%s", text, again.TOML())
	}
	for _, line := range []string{`wait = "1m30s"`, `yield = "never"`, `scope = "process"`, `wait = "none"`, `yield = "1.5s"`, `open = "lock"`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	if h := p.Hash(); len(h) != 32 || h == parse(t, "").Hash() {
		t.Errorf("hash %q", h)
	}
	if parse(t, "").TOML() != "" || parse(t, "").Hash() != "" || (*Policy)(nil).Hash() != "" {
		t.Error("no rules have a text or a hash")
	}
}

func TestBadFiles(t *testing.T) {
	rule := func(lines string) string { return "[[rule]]\n" + lines }
	good := "path = \"a/**\"\nalgorithm = \"rcv\"\n"
	for name, c := range map[string]struct{ text, want string }{
		"syntax":          {"[[rule]\n", "p.toml: line 1: "},
		"unknown key":     {rule(good + "lisen = 1\n"), `p.toml: line 4: unknown key "rule.lisen"`},
		"unknown table":   {"[[rules]]\n" + good, `line 1: unknown key "rules"`},
		"wrong type":      {rule("path = 3\nalgorithm = \"rw\""), "line 2: "},
		"algorithm":       {rule("path = \"a\"\nalgorithm = \"rvc\""), `p.toml: line 3: algorithm "rvc": must be rw, rcv, maekawa or ring`},
		"no algorithm":    {"\n" + rule(`path = "a"`), "line 2: a rule has no algorithm"},
		"no path":         {rule(`algorithm = "rw"`), "line 1: a rule has no path"},
		"open":            {rule(good + `open = "yes"`), `line 4: open "yes": must be lock or off`},
		"scope":           {rule(good + `scope = "host"`), `line 4: scope "host": must be node or process`},
		"exclusive scope": {rule(good + `scope = "node"`), `line 4: scope "node": with algorithm "rcv" open locks are between processes`},
		"yield":           {rule(good + `yield = "soon"`), `line 4: yield "soon": must be a duration like 10s or 1m30s, or never`},
		"no unit":         {rule(good + `wait = "10"`), `line 4: wait "10": must be a duration`},
		"zero":            {rule(good + `wait = "0s"`), `line 4: wait "0s": must be greater than zero, or none`},
		"negative":        {rule(good + `yield = "-1s"`), `must be greater than zero, or never`},
		"long":            {rule(good + `yield = "10001h"`), `must be 10000h0m0s at most`},
		"wait never":      {rule(good + `wait = "never"`), `line 4: wait "never": must be`},
		"twice":           {rule(good) + "\n" + rule(good), `p.toml: line 6: path "a/**" is there twice: it is the path of rule 1, too`},
		"twice, other":    {rule(good) + rule("path = \"a/**/**\"\nalgorithm = \"rw\""), `is there twice`},
		"covered":         {rule(good) + rule("path = \"a/b/*\"\nalgorithm = \"rw\""), `line 5: path "a/b/*" matches no file that rule 1, with path "a/**", does not match first`},
		"covered, name":   {rule("path = \"**/x\"\nalgorithm = \"rw\"\n") + rule("path = \"b/x\"\nalgorithm = \"rw\""), `matches no file that rule 1`},
		"two errors":      {rule("path = \"/a\"\nalgorithm = \"x\""), "line 3: algorithm \"x\""},
		"inline":          {`rule = [{path = "a", algorithm = "z"}]`, `p.toml: rule 1: algorithm "z"`},
	} {
		_, err := Parse("p.toml", c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	var long strings.Builder
	for i := range 1000 {
		long.WriteString(rule("algorithm = \"rw\"\npath = \"" + strings.Repeat("x", 50+i%100) + strings.Repeat("y", 1+i/100) + "\"\n"))
	}
	if _, err := Parse("p.toml", long.String()); err == nil || !strings.Contains(err.Error(), "bytes, over") {
		t.Errorf("a long policy: %v", err)
	}
}

func TestGlobsThatCannotMatch(t *testing.T) {
	for glob, want := range map[string]string{
		"":                             "is empty",
		"/rcv/**":                      `paths are relative to the root, write "rcv/**"`,
		"rcv/":                         `for all that is below write "rcv/**"`,
		"a//b":                         "empty name",
		"./a":                          `has the name "."`,
		"a/../b":                       `has the name ".."`,
		".dmxfs/views":                 "no program sees",
		".dmxfs/**":                    "no program sees",
		"a[b":                          "a [ has no ]",
		"a{b":                          "a { has no }",
		"{a/b,c}":                      "slash within { }",
		"[a/b]":                        "slash within [ ]",
		"[z-a]":                        "the range z-a, which is empty",
		`x\`:                           "backslash",
		`x\/y`:                         "backslash before a slash",
		"a\nb":                         "not text",
		"a\xffb":                       "not text",
		strings.Repeat("x", 256):       "over 255 bytes",
		strings.Repeat("a/", 63) + "x": "more than 63 parts",
	} {
		_, err := ParseFlags("--exclusive", []string{glob + "=rcv"})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--exclusive ") {
			t.Errorf("%q: %v, want %q", glob, err, want)
		}
	}
	for _, glob := range []string{"[]a]", "[a-]", "[!-a]", "[^]]", "a]", "a}", `\{a`, "[{]", "{[}],a}"} {
		if _, err := ParseFlags("--exclusive", []string{glob + "=rcv"}); err != nil && !strings.Contains(err.Error(), "malformed") {
			t.Errorf("%q: %v", glob, err)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"rcv/**":    `--exclusive "rcv/**": must be GLOB=ALGORITHM`,
		"a=rw":      `algorithm "rw": must be rcv, maekawa or ring`,
		"a=RCV":     `algorithm "RCV"`,
		"=rcv":      "is empty",
		"a=rcv,b=x": `algorithm "x"`,
	} {
		if _, err := ParseFlags("--exclusive", []string{flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
	if _, err := ParseFlags("--exclusive", []string{"a=rcv", "a=ring"}); err == nil || !strings.Contains(err.Error(), `path "a" is there twice`) {
		t.Errorf("twice: %v", err)
	}
	if _, err := flags(t, "a=rcv").Join(parse(t, "[[rule]]\npath='a'\nalgorithm='rw'")); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a flag and a file: %v", err)
	}
	p, err := flags(t, "a=rcv").Join(flags(t, "b=ring"))
	if err != nil || p.Algorithm("a") != "rcv" || p.Algorithm("b") != "ring" {
		t.Errorf("%v %v", p, err)
	}
}

func TestDiff(t *testing.T) {
	a := flags(t, "a=rcv", "b=rcv", "c=ring", "d=ring")
	b := flags(t, "d=ring", "b=maekawa", "e=rcv", "c=ring")
	got := strings.Join(a.Diff("asked", b, "cluster"), "\n")
	want := `only asked: a=rcv
asked: b=rcv; cluster: b=maekawa
only cluster: e=rcv
the order, and the first match wins: asked: b, c, d; cluster: d, b, c`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if d := a.Diff("x", nil, "y"); len(d) != 4 || d[0] != "only x: a=rcv" {
		t.Errorf("%q", d)
	}
	one := parse(t, "[[rule]]\npath='a'\nalgorithm='rw'\nwait='1s'\nopen='off'")
	if d := one.Diff("x", parse(t, "[[rule]]\npath='a'\nalgorithm='rw'"), "y"); len(d) != 1 || d[0] != "x: a=rw open=off wait=1s; y: a=rw" {
		t.Errorf("%q", d)
	}
}

func TestMovable(t *testing.T) {
	p := flags(t, "rcv/**=rcv", "also/rcv/**=rcv", "ring/**=ring", "**/*.db=maekawa")
	for _, c := range []struct {
		from, to string
		dir, ok  bool
	}{
		{"rcv/a", "rcv/b", false, true},
		{"rcv/a", "also/rcv/b", false, true},
		{"rcv/a", "a", false, false},
		{"a", "rcv/a", false, false},
		{"rcv/a", "ring/a", false, false},
		{"a", "b", false, true},
		{"a.db", "a", false, false},
		{"x/a.db", "y/b.db", false, true},
		{"rcv/a.db", "x/a.db", false, false},
		// Directories.
		{"a", "b", true, true},              // *.db in both
		{"x/a", "y/z/b", true, true},        //
		{"rcv/a", "rcv/b", true, true},      //
		{"rcv/a", "also/rcv/b", true, true}, // all that is below is rcv, by two rules
		{"rcv", "other", true, false},
		{"other", "rcv", true, false},
		{"also", "other", true, false}, // also/rcv
		{"a", "rcv/a", true, false},
		{"rcv/a", "ring/a", true, false},
	} {
		if got := p.Movable(c.from, c.to, c.dir); got != c.ok {
			t.Errorf("from %s to %s, dir %v: %v", c.from, c.to, c.dir, got)
		}
	}
	if !(*Policy)(nil).Movable("a", "b", true) {
		t.Error("without rules all is movable")
	}
}

func TestScope(t *testing.T) {
	for text, want := range map[string]bool{
		"algorithm='rcv'":                  true,
		"algorithm='rcv'\nscope='process'": true,
		"algorithm='rw'":                   false,
		"algorithm='rw'\nscope='process'":  true,
		"algorithm='rw'\nscope='node'":     false,
	} {
		if p := parse(t, "[[rule]]\npath='a'\n"+text); p.Rules[0].PerProcess() != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
