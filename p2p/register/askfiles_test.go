package register

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

func TestReadSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for _, c := range []struct {
		content string
		mode    os.FileMode
		want    string // part of the error; empty: none
	}{
		{"0123456789abcdef0123456789abcdef", 0o600, ""},
		{"  0123456789abcdef0123456789abcdef\r\n\n", 0o640, ""},
		{"0123456789abcdef0123456789abcdef", 0o644, "chmod 600"},
		{"short", 0o600, "too short"},
		{"\n", 0o600, "empty"},
		{strings.Repeat("x", maxSecret+1), 0o600, "over"},
	} {
		os.Remove(path)
		os.WriteFile(path, []byte(c.content), 0o600)
		os.Chmod(path, c.mode)
		s, err := ReadSecret(path)
		switch {
		case c.want == "" && (err != nil || string(s) != "0123456789abcdef0123456789abcdef"):
			t.Errorf("%q: %q, %v", c.content, s, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%.20q mode %v: error %v, want %q", c.content, c.mode, err, c.want)
		}
	}
	if _, err := ReadSecret(path + "x"); err == nil {
		t.Error("no error for a missing file")
	}
}

func TestFingerprint(t *testing.T) {
	a, b := Fingerprint([]byte("one secret of two")), Fingerprint([]byte("two secret of two"))
	if a == b || !isFingerprint(a) || !isFingerprint(b) {
		t.Errorf("fingerprints %s, %s", a, b)
	}
	if a != Fingerprint([]byte("one secret of two")) {
		t.Error("a fingerprint changes")
	}
}

func FuzzCluster(f *testing.F) {
	f.Add(encodeCluster(clusterRecord{Format: 1, Cluster: testCluster, Secret: "0011-2233-4455-6677", Made: "2026-01-01T00:00:00Z"}))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"cluster":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCluster(b)
		if err != nil {
			return
		}
		again, err := parseCluster(encodeCluster(c))
		if err != nil || again.Cluster != c.Cluster || again.Secret != c.Secret {
			t.Errorf("%+v was read again as %+v, %v", c, again, err)
		}
	})
}

func FuzzAsk(f *testing.F) {
	b, _ := encodeAsk(member.Challenge{Node: member.Node{Peer: "p", Inc: 1}, Host: "h", Addrs: []string{"/a"}, Base: 3, Nonce: 4})
	f.Add(b)
	f.Add([]byte(`{"node":{"peer":"p","inc":"0000000000000001"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseAsk(b)
		if err != nil {
			return
		}
		one, err := encodeAsk(c)
		if err != nil {
			t.Fatalf("%+v was read, and cannot be written: %v", c, err)
		}
		c, err = parseAsk(one)
		if err != nil {
			t.Fatal(err)
		}
		if two, _ := encodeAsk(c); !bytes.Equal(one, two) {
			t.Errorf("%s became %s", one, two)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	n := member.Node{Peer: "p", Inc: 1}
	b, _ := encodeAnswer(member.Answer{To: n, Node: n, Host: "h", Tried: []member.Tried{{Addr: "/a", Error: "no"}}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		one, err := encodeAnswer(a)
		if err != nil {
			t.Fatalf("%+v was read, and cannot be written: %v", a, err)
		}
		a, err = parseAnswer(one)
		if err != nil {
			t.Fatal(err)
		}
		if two, _ := encodeAnswer(a); !bytes.Equal(one, two) {
			t.Errorf("%s became %s", one, two)
		}
	})
}

// What another host has written gets into errors and logs: nothing that a terminal
// obeys comes from there.
func TestTextsOfOthersArePlain(t *testing.T) {
	for _, text := range []string{"\x1b[2J", "a\nb", "\x07", "\u009b31m", "\xff", strings.Repeat("x", maxText+1)} {
		if err := checkTexts(nil, text); err == nil {
			t.Errorf("%q is taken as a name", text)
		}
		if err := checkTexts([]string{text}); err == nil {
			t.Errorf("%q is taken as an address", text)
		}
		if got := clip(text); checkTexts(nil, got) != nil && strings.ToValidUTF8(got, "") == got {
			t.Errorf("%q becomes %q, which is not taken", text, got)
		}
	}
	if err := checkTexts([]string{"/ip4/192.0.2.1/tcp/1"}, "größe 東"); err != nil {
		t.Error(err)
	}
}
