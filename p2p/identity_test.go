package p2p

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	a, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadIdentity(dir)
	if err != nil || a.ID() != b.ID() {
		t.Errorf("second time: %v, %v; the first time it was %v", b.ID(), err, a.ID())
	}
	st, err := os.Stat(filepath.Join(dir, identityFile))
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("key file: mode %v, %v", st.Mode(), err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	other, err := LoadIdentity(t.TempDir())
	if err != nil || other.ID() == a.ID() {
		t.Errorf("another directory: %v, %v", other.ID(), err)
	}
}

func TestIdentityIsMadeByOneOfMany(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	ids := make([]string, 20)
	for i := range ids {
		wg.Go(func() {
			id, err := LoadIdentity(dir)
			if err != nil {
				t.Error(err)
			}
			ids[i] = id.ID().String()
		})
	}
	wg.Wait()
	if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != 1 {
		t.Errorf("%d identities were made", n)
	}
}

func TestBadIdentityFiles(t *testing.T) {
	rsa, _, err := crypto.GenerateKeyPairWithReader(crypto.ECDSA, 0, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherType, err := crypto.MarshalPrivateKey(rsa)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte, mode os.FileMode) func(name string) error {
		return func(name string) error {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				return err
			}
			return os.Chmod(name, mode)
		}
	}
	for want, prepare := range map[string]func(name string) error{
		"is corrupt":           write([]byte("garbage"), 0o600),
		"is corrupt: the key":  write(otherType, 0o600),
		"is corrupt: ":         write(nil, 0o600),
		"has mode 0644":        write([]byte("garbage"), 0o644),
		"has mode 0620":        write([]byte("garbage"), 0o620),
		"has 5000 bytes":       write(make([]byte, 5000), 0o600),
		"is not a regular":     func(name string) error { return unix.Mkfifo(name, 0o600) },
		"levels of symbolic":   func(name string) error { return os.Symlink("/dev/null", name) },
		"is not a regular fil": func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		t.Run(want, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, identityFile)
			if err := prepare(name); err != nil {
				t.Fatal(err)
			}
			_, err := LoadIdentity(dir)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(name); err != nil {
				t.Errorf("the file was touched: %v", err)
			}
		})
	}
	if _, err := LoadIdentity(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a state directory that is not there was made")
	}
}

func TestSecrets(t *testing.T) {
	a, err := ParseSecret(NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseSecret(NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Error("two new secrets are the same")
	}
	// Never written: another derivation would split every cluster at its update.
	fixed, err := ParseSecret([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%x", fixed.psk[:4]), "20508333"; got != want {
		t.Errorf("key %s…, want %s…", got, want)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, fixed); got != "secret (not shown)" {
			t.Errorf("printed by %s: %s", format, got)
		}
	}
	for want, content := range map[string]string{
		"is empty":                " \n",
		"has 31 bytes":            strings.Repeat("x", 31) + "\n",
		"has 5000 bytes, at most": strings.Repeat("x", 5000),
	} {
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := ReadSecret(filepath.Join(t.TempDir(), "secret")); err == nil {
		t.Error("a secret file that is not there was read")
	}
}

func TestNodeIDs(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, inc := range []uint64{0, 1, 0xdeadbeef, ^uint64(0)} {
		n := NodeID(id.ID(), inc)
		if p, i, err := SplitNodeID(n); err != nil || p != id.ID() || i != inc {
			t.Errorf("%s is split into %s and %d, %v", n, p, i, err)
		}
	}
	if NodeID(id.ID(), 1) >= NodeID(id.ID(), 0x10) {
		t.Error("incarnations are not in order")
	}
	name := id.ID().String()
	for _, bad := range []string{"", name, name + ".", name + ".1", name + ".000000000000000G", name + ".00000000000000AB", "." + strings.Repeat("0", 16), name + ".+00000000000001", name + ".0000000000000001.2"} {
		if _, _, err := SplitNodeID(locks.NodeID(bad)); err == nil {
			t.Errorf("accepted: %q", bad)
		}
	}
}
