package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// A state directory that others can write to, or that is another user's, is
// not used; one that only the state is in is closed.
func TestTheStateDirectoryIsItsOwners(t *testing.T) {
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, x := range []struct {
		mode  os.FileMode
		owner int
		file  string
		want  string
	}{
		{0o700, -1, "", ""},
		{0o755, -1, "", ""},
		{0o755, -1, "lock", ""},
		{0o755, -1, "other", "has other things in it"},
		{0o777, -1, "", "can be changed by other users (mode 0777)"},
		{0o770, -1, "lock", "can be changed by other users (mode 0770)"},
		{0o777 | os.ModeSticky, -1, "", "can be changed by other users (mode 1777)"},
		{0o700, 65534, "", "belongs to user 65534"},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, x.mode)); err != nil {
			t.Fatal(err)
		}
		if x.file != "" {
			if err := os.WriteFile(filepath.Join(dir, x.file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if x.owner >= 0 {
			if os.Geteuid() != 0 {
				continue
			}
			if err := os.Chown(dir, x.owner, -1); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(dir, int(root.Fd()))
		if x.want != "" {
			if exitcode.Of(err) != exitcode.Usage || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%+v: %v", x, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", x, err)
			continue
		}
		s.Close()
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%+v: %v %v", x, st.Mode(), err)
		}
	}
}

// A shared directory that fails says nothing of the options.
func TestStorageThatFailsIsNoWrongOption(t *testing.T) {
	t.Parallel()
	if err := Make(t.TempDir(), -1); err == nil || exitcode.Of(err) != exitcode.Failure {
		t.Errorf("%v: %d", err, exitcode.Of(err))
	}
}
