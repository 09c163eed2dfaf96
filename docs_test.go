package dmxfs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumn is how wide prose in documents is at most, in characters.
const maxColumn = 100

// TestDocsWrap holds documents to lines that fit beside each other in a diff.
// Tables, code, and what has no blank to break at, such as a URL, may be wider.
// Man pages are made of those in cmd/dmxfs-man.
func TestDocsWrap(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("what belongs to the project is not known: %v", err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "cmd/dmxfs-man/") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for i, line := range strings.Split(string(b), "\n") {
			text := strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(text, "```"):
				code = !code
			case code, strings.HasPrefix(line, "    "), strings.HasPrefix(text, "|"), strings.HasPrefix(text, "<"):
			case utf8.RuneCountInString(line) <= maxColumn:
			case !strings.Contains(breakable(text), " "):
			default:
				t.Errorf("%s:%d is %d wide, %d at most", name, i+1, utf8.RuneCountInString(line), maxColumn)
			}
		}
	}
}

// breakable is the text without a mark of a list, which is no place to break.
func breakable(text string) string {
	for _, mark := range []string{"- ", "* ", "> ", "# ", "## ", "### "} {
		if rest, ok := strings.CutPrefix(text, mark); ok {
			return rest
		}
	}
	return text
}
