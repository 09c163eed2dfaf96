package printing

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
)

// Names of files and texts of other hosts cannot drive a terminal.
func TestWhatIsPrintedIsEscaped(t *testing.T) {
	for s, want := range map[string]string{
		"plain ö":              "plain ö",
		"":                     "-",
		"\x1b]0;pwned\x07\nrm": `\x1b]0;pwned\a\nrm`,
		"\u009b31m":            `\u009b31m`,
		"a\tb":                 `a\tb`,
		"a\x9b31m":             `a\x9b31m`, // not UTF-8
		"a\u202efdp.exe":       `a\u202efdp.exe`,
		"\u2066a\u2069":        `\u2066a\u2069`,
		"a\u200f\u2028b":       `a\u200f\u2028b`,
	} {
		if got := Text(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	if got := Lines("/tmp/\x9b31m: gone\n"); got != `/tmp/\x9b31m: gone`+"\n" { // not UTF-8
		t.Errorf("%q", got)
	}
	if got := Lines("one\n\ttwo \x1b[2J \u009b31m\r\u202e"); got != "one\n\ttwo "+`\x1b[2J \x9b31m\x0d\u202e` {
		t.Errorf("%q", got)
	}
	in, out := map[string]string{"ö": "a\x7f\u009b31m\u202eb\x1b"}, new(bytes.Buffer)
	if err := JSON(out, in); err != nil || out.String() != "{\n  \"ö\": "+`"a\u007f\u009b31m\u202eb\u001b"`+"\n}\n" {
		t.Errorf("%q %v", out, err)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || !maps.Equal(back, in) {
		t.Errorf("%q %v", back, err)
	}
}
