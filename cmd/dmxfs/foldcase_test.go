package main

import (
	"os"
	"os/exec"
	"testing"
)

// Where names that differ in case only are one file, locks cannot go by path:
// neither by what this host would do nor by what its cluster does.
func TestStorageThatFoldsCase(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	dir := c.dir + "/folds"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", c.src, dir, "fold")
	cmd.Env = append(os.Environ(), helperEnv+"=cachefs")
	startClient(t, cmd, dir)
	for _, option := range []string{"auto", "path"} {
		m := c.add("--file-id="+option, "--listing-age=0s")
		m.src = dir
		m.wantRefused("names that differ in case only", "--file-id=inode")
		if names, err := os.ReadDir(c.src); err != nil || len(names) != 0 {
			t.Errorf("--file-id=%s: left on the storage: %v %v", option, names, err)
		}
	}
	m := c.add("--file-id=inode", "--listing-age=0s")
	m.src = dir
	m.mount()
	write(t, c.src+"/file", "")
	hold := m.helper("hold", "flock", "file")
	m.held("file", 1)
	if out, code := m.helper("try", "flock", "FILE").wait(); code == 0 {
		t.Errorf("a second lock of one file: %s", out)
	}
	if hold.ended() {
		t.Errorf("the holder: %s", hold.out.String())
	}
	again := c.add("--file-id=path", "--listing-age=0s")
	again.src = dir
	again.wantRefused("names that differ in case only", "--file-id=inode")
}
