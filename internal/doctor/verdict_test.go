package doctor

import (
	"slices"
	"strings"
	"testing"
)

// A storage without hard links, or with other defects, is refused: the verdict
// is made of findings alone.
func TestDoctorsVerdict(t *testing.T) {
	for _, x := range []struct {
		findings []Finding
		fit      bool
		text     string
	}{
		{[]Finding{{"link", "ok", ""}, {"data after reopen", "ok", ""}}, true, "sees at once"},
		{[]Finding{{"link", "ok", ""}, {"locks below", "note", ""}}, true, "sees at once"},
		{[]Finding{{"link", "ok", ""}, {"listings", "note", ""}}, true, "what the notes say"},
		{[]Finding{{"link", "bad", ""}, {"data after reopen", "ok", ""}}, false, "not fit"},
		{[]Finding{{"inode numbers", "bad", ""}}, true, "what the notes say"}, // with an option
		{[]Finding{{"inode numbers", "bad", ""}, {"listings", "bad", ""}}, false, "not fit"},
	} {
		d := doctor{findings: x.findings}
		if fit, text := d.verdict(); fit != x.fit || !strings.Contains(text, x.text) {
			t.Errorf("%v: %v %q", x.findings, fit, text)
		}
	}
	if !slices.Equal(both([]string{"a", "b", "c"}, []string{"c", "x", "a"}), []string{"a", "c"}) {
		t.Error("both")
	}
}
