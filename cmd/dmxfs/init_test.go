package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// What init writes into fstab is one line of six words, or nothing is written.
func TestInitRefusesWhatALineOfFstabCannotHave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		x    setup
		code int
	}{
		{"all is well", setup{fstab: true, listen: []string{"/ip4/0.0.0.0/tcp/7654"}}, 0},
		{"a state with a space", setup{fstab: true, state: dir + "/my state"}, exitcode.Usage},
		{"a state with a comma", setup{fstab: true, state: dir + "/a,join=false"}, exitcode.Usage},
		{"in a configuration it may", setup{state: dir + "/my state"}, 0},
		{"a mount point with a carriage return", setup{mountpoint: dir + "/a\rb"}, exitcode.Usage},
		{"an address that is none", setup{listen: []string{"0.0.0.0:7654"}}, exitcode.Usage},
	} {
		x := c.x
		x.first, x.source, x.etc = true, dir, filepath.Join(dir, "etc")
		if x.mountpoint == "" {
			x.mountpoint = filepath.Join(dir, "mnt")
		}
		if x.state == "" {
			x.state = filepath.Join(dir, "state")
		}
		err := x.check()
		if err != nil && exitcode.Of(err) != c.code || err == nil && c.code != 0 {
			t.Errorf("%s: %v, want exit number %d", c.name, err, c.code)
		}
	}
}

// A second line of fstab for a mount point would not count at boot.
func TestInitAddsNoSecondLineForAMountPoint(t *testing.T) {
	t.Parallel()
	fstab := filepath.Join(t.TempDir(), "fstab")
	const line = "/raw /mnt/shared fuse.dmxfs state=/s 0 0\n"
	for _, c := range []struct {
		name, there, want string
		refused           string
	}{
		{"nothing", "", line, ""},
		{"another mount point", "x:/ /mnt/other nfs nolock 0 0\n", line, ""},
		{"the storage is there", "x:/ /mnt/shared/ nfs nolock 0 0\n", "", "mounts something else at /mnt/shared"},
		{"it is a remark", "#x:/ /mnt/shared nfs nolock 0 0", "\n" + line, ""},
		{"it is there", line, "", ""},
		{"it is there, without a line break", strings.TrimSpace(line), "", ""},
		{"another mount point has its state", "/raw /mnt/other fuse.dmxfs _netdev,state=/s/ 0 0\n", "", "for /mnt/other with the same state directory, /s"},
		{"what has that state is no dmxfs", "/raw /mnt/other fuse.other state=/s 0 0\n", line, ""},
		{"another one of dmxfs is there", "/other /mnt/shared fuse.dmxfs state=/s 0 0\n", "", "which is another one"},
	} {
		if err := os.WriteFile(fstab, []byte(c.there), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := newFile{fstab, line, true}.missing("/mnt/shared")
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) || got != c.want {
			t.Errorf("%s: %q and %v, want %q", c.name, got, err, c.want)
		}
	}
}

// Each mount point has a name of its own, and one that has a name from before keeps
// it.
func TestInitNamesOneMountPoint(t *testing.T) {
	t.Parallel()
	points := []string{"/srv/a/b", "/srv/a-b", "/srv/a_b", "/srv/a b", "/srv/a_2db", "/srv/ä", "/srv/a.b"}
	seen := map[string]string{}
	for _, p := range points {
		n := unitName(p)
		if seen[n] != "" || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			t.Errorf("%s is called %s, as %q", p, n, seen[n])
		}
		seen[n] = p
	}
	if n := unitName("/srv/a/b"); n != "srv-a-b" {
		t.Errorf("/srv/a/b is called %s", n)
	}
	for _, c := range []struct{ name, fstab, toml, a, b string }{
		{"nothing is there", "", "", "srv-a_2db", "srv-a-b"},
		{"a line from before", "/raw /srv/a-b fuse.dmxfs join,state=/state/srv-a-b 0 0\n", "", "srv-a-b", "srv-a-b"},
		{"a line with a state of its own", "/raw /srv/a-b fuse.dmxfs state=/elsewhere 0 0\n", "", "srv-a_2db", "srv-a-b"},
		{"a configuration from before", "", "mountpoint = \"/srv/a-b\"\n", "srv-a-b", "srv-a-b"},
		{"a configuration of another one", "", "mountpoint = \"/srv/a/b\"\n", "srv-a_2db", "srv-a-b"},
	} {
		etc := t.TempDir()
		if err := os.Mkdir(filepath.Join(etc, "dmxfs"), 0o700); err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{"fstab": c.fstab, "dmxfs/srv-a-b.toml": c.toml} {
			if err := os.WriteFile(filepath.Join(etc, path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for p, want := range map[string]string{"/srv/a-b": c.a, "/srv/a/b": c.b} {
			if got := (&setup{mountpoint: p, etc: etc, state: "/state"}).name(); got != want {
				t.Errorf("%s: %s is called %s, want %s", c.name, p, got, want)
			}
		}
	}
}
