package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// A secret that members cannot use founds nothing: the register takes what the
// network takes.
func TestSecretsHaveOneRule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for _, n := range []int{0, 1, 15, 16, 31, 32, 33, 4096, 4097} {
		text := strings.Repeat("x", n)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, here := register.ReadSecret(path)
		_, there := p2p.ParseSecret([]byte(text))
		if n != 4096 && (here == nil) != (there == nil) || n == 32 && here != nil {
			t.Errorf("%d bytes: %v for the register, %v for the network", n, here, there)
		}
	}
}

func TestShortSecretFoundsNothing(t *testing.T) {
	needMounts(t)
	c := emptyCluster(t)
	c.src = filepath.Join(c.dir, "src")
	if err := os.Mkdir(c.src, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(c.dir, "secret")
	if err := os.WriteFile(secret, []byte("sixteen bytes ok"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := c.add("--secret", secret)
	if err := m.tryMount(); err == nil || !strings.Contains(err.Error(), "at least 32") {
		t.Errorf("a secret of 16 bytes: %v", err)
	}
	if list, err := os.ReadDir(c.src); err != nil || len(list) != 0 {
		t.Errorf("%v %v is left behind", list, err)
	}
	if err := os.WriteFile(secret, []byte(secretText()), 0o600); err != nil {
		t.Fatal(err)
	}
	m.mount()
}

// Who gives the secret by a file may remove the file: a daemon in place of one that
// died has what the state directory keeps. A first mount needs it.
func TestFileOfTheSecretIsRemoved(t *testing.T) {
	t.Parallel()
	needMounts(t)
	c := emptyCluster(t)
	c.src = filepath.Join(c.dir, "src")
	if err := os.Mkdir(c.src, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(c.dir, "secret")
	m := c.add("--secret", secret)
	if err := m.tryMount(); err == nil || !strings.Contains(err.Error(), secret) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(secret, []byte(secretText()), 0o600); err != nil {
		t.Fatal(err)
	}
	m.mount()
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	old := m.daemon()
	m.signal(unix.SIGKILL)
	m.awaitNew(old)
	if log := m.log(); !strings.Contains(log, "the file of the secret is gone") {
		t.Errorf("the log does not tell of it:\n%s", log)
	}
}
