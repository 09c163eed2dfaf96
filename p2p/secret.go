package p2p

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
)

// Bounds of a secret, in bytes, without the white space around it.
const (
	minSecret = 32
	maxSecret = 4096
)

// Secret is what makes hosts one cluster: whoever knows it may connect.
// The zero Secret is not usable.
type Secret struct {
	psk    key
	parsed bool
}

// NewSecret makes the content of a secret file: one line of base64 that holds
// 256 random bits.
func NewSecret() []byte {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return append([]byte(base64.RawURLEncoding.EncodeToString(b[:])), '\n')
}

// ParseSecret reads the content of a secret file. White space around the
// secret does not count, so that an editor's newline at the end is harmless.
//
// A secret must be hard to guess, since what is on the wire, and the fingerprint
// on the shared directory, let anybody test a guess: it has at least 32 bytes,
// and it should come from a random source.
func ParseSecret(content []byte) (Secret, error) {
	b := bytes.TrimSpace(content)
	switch {
	case len(b) == 0:
		return Secret{}, fmt.Errorf("p2p: the cluster secret is empty")
	case len(b) < minSecret:
		return Secret{}, fmt.Errorf("p2p: the cluster secret has %d bytes, at least %d are needed (make one with: head -c 32 /dev/urandom | base64)", len(b), minSecret)
	case len(b) > maxSecret:
		return Secret{}, fmt.Errorf("p2p: the cluster secret has %d bytes, at most %d are allowed", len(b), maxSecret)
	}
	psk, err := derive(b, "private network key", 32)
	if err != nil {
		return Secret{}, err
	}
	s := Secret{parsed: true}
	copy(s.psk[:], psk)
	return s, nil
}

// ReadSecret reads a secret file.
func ReadSecret(name string) (Secret, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return Secret{}, fmt.Errorf("p2p: cluster secret: %w", err)
	}
	s, err := ParseSecret(b)
	if err != nil {
		return Secret{}, fmt.Errorf("%w, in %s", err, name)
	}
	return s, nil
}

// derive makes n bytes for one use of the secret, by HKDF (RFC 5869). What is
// derived for one use tells nothing of what is derived for another.
func derive(secret []byte, use string, n int) ([]byte, error) {
	b, err := hkdf.Key(sha256.New, secret, []byte("dmxfs cluster secret"), "dmxfs 1 "+use, n)
	if err != nil {
		return nil, fmt.Errorf("p2p: cluster secret: %w", err)
	}
	return b, nil
}

// IsZero reports whether s was never parsed.
func (s Secret) IsZero() bool { return !s.parsed }

// String tells nothing of the secret, so that one that gets into a log by
// mistake stays one. Package register has a fingerprint of it.
func (s Secret) String() string { return "secret (not shown)" }

// GoString hides the key from %#v.
func (s Secret) GoString() string { return s.String() }
