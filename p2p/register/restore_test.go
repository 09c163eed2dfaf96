package register

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// Somebody has removed the directory of a cluster while its members wrote in it:
// what they left does not keep it from being made anew. Anything else does.
func TestRestoreWhereMembersHaveLeftSomething(t *testing.T) {
	elsewhere := founded(t, t.TempDir(), "a")
	secret := []byte("0123456789abcdef0123456789abcdef")
	for name, c := range map[string]struct {
		left []string // files
		dirs []string
		ok   bool
	}{
		"nothing":           {ok: true},
		"an empty one":      {dirs: []string{"."}, ok: true},
		"directories":       {dirs: []string{"views", "peers", "room"}, ok: true},
		"records":           {left: []string{"peers/a", "peers/new-b-1", "room/0", "views/new-a-1", "views/ask-a", "views/answer-a"}, ok: true},
		"a view":            {left: []string{"peers/a", "views/" + member.ViewName(1)}},
		"a secret":          {left: []string{"peers/a", "secret"}},
		"something unknown": {left: []string{"peers/a", "room/0", "notes.txt"}},
		"a directory":       {left: []string{"peers/a"}, dirs: []string{"peers/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := newDir(t, dir, "a")
			for _, x := range c.dirs {
				mustMake(t, filepath.Join(dir, Name, x))
			}
			for _, x := range c.left {
				file := filepath.Join(dir, Name, x)
				mustMake(t, filepath.Dir(file))
				if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			v, _ := testView(elsewhere, 1000, "a")
			err := d.Restore(Lost{Cluster: v.Cluster, Secret: secret, Stored: true, View: v})
			if c.ok {
				if err != nil {
					t.Fatal(err)
				}
				if !d.HasCluster() || mustLook(t, d, member.LookOp{Known: 1000}).Newest != 1000 {
					t.Error("it is not there")
				}
				if err := d.Restore(Lost{Cluster: v.Cluster, Secret: secret, Stored: true, View: v}); !errors.Is(err, ErrThere) {
					t.Errorf("once more: %v", err)
				}
				return
			}
			if err == nil || d.HasCluster() {
				t.Errorf("it was made: %v", err)
			}
			if name == "a directory" {
				return
			}
			for _, x := range c.left {
				if _, err := os.Lstat(filepath.Join(dir, Name, x)); err != nil {
					t.Errorf("%v", err)
				}
			}
			if got := list(t, dir); len(got) != 1 {
				t.Errorf("there is %q", got)
			}
		})
	}
}

func mustMake(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}
