package long

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Directories of tests are in memory if they may be, for all users, and nothing is left.
func TestScratch(t *testing.T) {
	t.Setenv(Env, "1") // they are not, then
	t.Setenv("TMPDIR", "")
	Scratch()()
	if dir := os.Getenv("TMPDIR"); dir != "" {
		t.Errorf("in full they are in %s", dir)
	}
	t.Setenv(Env, "")
	t.Setenv("TMPDIR", "/elsewhere")
	Scratch()()
	if dir := os.Getenv("TMPDIR"); dir != "/elsewhere" {
		t.Errorf("they are in %s", dir)
	}
	t.Setenv("TMPDIR", "")
	remove := Scratch()
	dir := os.Getenv("TMPDIR")
	if dir == "" {
		t.Skip("memory is short")
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("%v, %v", st, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Errorf("%s: type %x, %v", dir, fs.Type, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "left"), nil, 0o600); err != nil {
		t.Error(err)
	}
	t.Run("on disk", func(t *testing.T) {
		OnDisk(t)
		if dir := t.TempDir(); strings.HasPrefix(dir, memory+"/") {
			t.Errorf("a directory that is to be on a disk is %s", dir)
		}
	})
	remove()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}
