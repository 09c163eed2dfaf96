package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tree = `{"use": "dmxfs [flags] [SOURCE] MOUNTPOINT", "short": "Locks", "long": "One.\n\n  dmxfs /a_b   mount\n\nTwo *stars*.",
"flags": [{"name": "config", "shorthand": "", "value": "string", "default": "", "usage": "a file"},
          {"name": "wait", "shorthand": "", "value": "duration", "default": "10s", "usage": "how long"},
          {"name": "join", "shorthand": "", "value": "", "default": "false", "usage": "join only"}],
"commands": [
  {"use": "completion", "short": "x", "long": "", "flags": [], "commands": [{"use": "bash", "short": "x", "long": "", "flags": [], "commands": []}]},
  {"use": "locks [MOUNTPOINT]", "short": "Who", "long": "", "flags": [{"name": "json", "shorthand": "", "value": "", "default": "false", "usage": "JSON"}], "commands": [
    {"use": "break PATH", "short": "Take", "long": "", "flags": [{"name": "yes", "shorthand": "y", "value": "", "default": "false", "usage": "do not ask"}], "commands": []}]}]}`

func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := pages(strings.NewReader(tree), dir, "1.2", "2026-01-02"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"dmxfs.8.md": {`% "dmxfs" "8" "2026-01-02" "dmxfs 1.2" "dmxfs"`, "\n\n      dmxfs /a_b   mount\n", `Two \*stars\*.`,
			"**dmxfs-locks**(8)\n: Who\n", "**--wait** _duration_\n: how long (default 10s)\n", "# EXIT STATUS"},
		"dmxfs-locks.8.md":       {"**dmxfs locks** \\[MOUNTPOINT\\]", "**dmxfs-locks-break**(8)"},
		"dmxfs-locks-break.8.md": {"**-y**, **--yes**\n: do not ask\n", "**dmxfs-locks**(8), **dmxfs**(8)"},
		"mount.fuse.dmxfs.8.md":  {"**wait=**_duration_\n", "**join**\n: join only\n"},
		"dmxfs-policy.5.md":      {"# KEYS"},
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(b), w) {
				t.Errorf("%s has no %q:\n%s", name, w, b)
			}
		}
		// A mount takes no file of configuration, and nobody needs a page on completion.
		if strings.Contains(string(b), "completion") || name == "mount.fuse.dmxfs.8.md" && strings.Contains(string(b), "**config") {
			t.Errorf("%s has what it should not:\n%s", name, b)
		}
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 5 {
		t.Errorf("%d pages, %v", len(all), err)
	}
	if err := pages(strings.NewReader(`{"use": "dmxfs", "new": 1}`), dir, "", ""); err == nil {
		t.Error("a tree with something unknown is taken")
	}
}
