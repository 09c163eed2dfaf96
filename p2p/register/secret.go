package register

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	minSecret = 32 // bytes, as package p2p wants it: nothing may be founded by a secret that cannot be used
	maxSecret = 4096
)

// ReadSecret reads the file of --secret. White space around the secret does
// not count.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	if st.Mode().IsRegular() && st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("secret: %s can be read by everybody (mode %04o): chmod 600 %s", path, st.Mode().Perm(), path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	s, err := trimSecret(b)
	if err != nil {
		return nil, fmt.Errorf("secret: %s: %w", path, err)
	}
	return s, nil
}

func trimSecret(b []byte) ([]byte, error) {
	if len(b) > maxSecret {
		return nil, fmt.Errorf("over %d bytes", maxSecret)
	}
	s := bytes.TrimSpace(b)
	if len(s) == 0 {
		return nil, errors.New("it is empty")
	}
	if len(s) < minSecret {
		return nil, fmt.Errorf("%d bytes are too short for a secret: at least %d", len(s), minSecret)
	}
	return s, nil
}

// Fingerprint names a secret without telling it: 64 bits of a keyed hash, in
// four groups.
func Fingerprint(secret []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("dmxfs cluster secret, fingerprint"))
	x := hex.EncodeToString(h.Sum(nil)[:8])
	return x[0:4] + "-" + x[4:8] + "-" + x[8:12] + "-" + x[12:16]
}

func isFingerprint(s string) bool {
	if len(s) != 19 || s[4] != '-' || s[9] != '-' || s[14] != '-' {
		return false
	}
	return isHex(s[0:4]+s[5:9]+s[10:14]+s[15:19], 16)
}
