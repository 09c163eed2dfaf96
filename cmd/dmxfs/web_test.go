package main

import (
	"os"
	"strings"
	"testing"
)

// The way through ssh is told alike where it is told: without that option, what
// listens on the port here already gets the URL.
func TestWayThroughSSH(t *testing.T) {
	t.Parallel()
	for _, line := range strings.Split(newWebCommand(streams{}).Long, "\n") {
		if _, recipe, ok := strings.Cut(line, "ssh "); ok && strings.Contains(line, "-L") {
			doc, err := os.ReadFile("../../docs/web.md")
			if err != nil || !strings.Contains(string(doc), "ssh "+recipe+"\n") || !strings.Contains(recipe, "-o ExitOnForwardFailure=yes") {
				t.Errorf("%q is not as in docs/web.md (%v)", recipe, err)
			}
			return
		}
	}
	t.Error("the help has no way through ssh")
}
