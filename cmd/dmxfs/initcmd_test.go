package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		{"a state with a space", setup{fstab: true, state: dir + "/my state"}, exitUsage},
		{"a state with a comma", setup{fstab: true, state: dir + "/a,join=false"}, exitUsage},
		{"in a configuration it may", setup{state: dir + "/my state"}, 0},
		{"a mount point with a carriage return", setup{mountpoint: dir + "/a\rb"}, exitUsage},
		{"an address that is none", setup{listen: []string{"0.0.0.0:7654"}}, exitUsage},
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
		if err != nil && exitCode(err) != c.code || err == nil && c.code != 0 {
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
