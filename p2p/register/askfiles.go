package register

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dmxfs/dmxfs/p2p/member"
)

const (
	clusterFormat  = 1
	maxClusterSize = 4096
	maxAskSize     = 64 << 10
)

// clusterRecord is the content of the file cluster.
type clusterRecord struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // 32 hexadecimal digits
	Secret  string `json:"secret"`  // fingerprint
	Made    string `json:"made"`    // RFC 3339, for people
}

func encodeCluster(c clusterRecord) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // numbers and strings
	}
	return append(b, '\n')
}

func parseCluster(b []byte) (clusterRecord, error) {
	var c clusterRecord
	if len(b) > maxClusterSize {
		return c, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return clusterRecord{}, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if c.Format > clusterFormat {
		return clusterRecord{}, fmt.Errorf("%w: format %d, this version knows %d", ErrFormat, c.Format, clusterFormat)
	}
	if c.Format < 1 || !isHex(c.Cluster, 32) || !isFingerprint(c.Secret) {
		return clusterRecord{}, fmt.Errorf("%w: it says neither format, cluster nor secret", ErrDamaged)
	}
	return c, nil
}

func isHex(s string, n int) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == n
}

func encodeAsk(c member.Challenge) ([]byte, error) {
	c.Addrs = bounded(c.Addrs)
	return encode(&c, c.Node, checkAsk(&c))
}

func parseAsk(b []byte) (member.Challenge, error) {
	var c member.Challenge
	if err := decode(b, &c); err != nil {
		return member.Challenge{}, err
	}
	if err := checkAsk(&c); err != nil {
		return member.Challenge{}, err
	}
	return c, nil
}

func checkAsk(c *member.Challenge) error {
	if !member.ValidPeer(c.Node.Peer) || c.Node.Inc == 0 {
		return errors.New("ask without a node")
	}
	return checkTexts(c.Addrs, c.Host)
}

func encodeAnswer(a member.Answer) ([]byte, error) {
	a.Addrs = bounded(a.Addrs)
	tried := make([]member.Tried, 0, len(a.Tried))
	for _, t := range a.Tried[:min(len(a.Tried), member.MaxAddrs)] {
		tried = append(tried, member.Tried{Addr: clip(t.Addr), Error: clip(t.Error)})
	}
	a.Tried = tried
	return encode(&a, a.Node, checkAnswer(&a))
}

func parseAnswer(b []byte) (member.Answer, error) {
	var a member.Answer
	if err := decode(b, &a); err != nil {
		return member.Answer{}, err
	}
	if err := checkAnswer(&a); err != nil {
		return member.Answer{}, err
	}
	return a, nil
}

func checkAnswer(a *member.Answer) error {
	if !member.ValidPeer(a.Node.Peer) || a.Node.Inc == 0 || !member.ValidPeer(a.To.Peer) || a.To.Inc == 0 {
		return errors.New("answer without nodes")
	}
	if len(a.Tried) > member.MaxAddrs {
		return fmt.Errorf("answer with %d addresses that were tried", len(a.Tried))
	}
	for _, t := range a.Tried {
		if err := checkTexts(nil, t.Addr, t.Error); err != nil {
			return err
		}
	}
	return checkTexts(a.Addrs, a.Host)
}

func checkTexts(addrs []string, more ...string) error {
	if len(addrs) > member.MaxAddrs {
		return fmt.Errorf("%d addresses", len(addrs))
	}
	for _, s := range append(more, addrs...) {
		if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return fmt.Errorf("text of %d bytes, or not a plain one", len(s))
		}
	}
	return nil
}

// maxText bounds a text in an ask or an answer.
const maxText = 512

// clip makes a text fit: errors can be of several lines, and long.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	for len(s) > maxText {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

func bounded(addrs []string) []string {
	return append([]string{}, addrs[:min(len(addrs), member.MaxAddrs)]...)
}

func encode(v any, n member.Node, err error) ([]byte, error) {
	if err == nil {
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			return append(b, '\n'), nil
		}
	}
	return nil, fmt.Errorf("%v: %w", n, err)
}

// decode reads one JSON value. Unknown fields are left alone: what a newer
// version says besides is of no interest here.
func decode(b []byte, v any) error {
	if len(b) > maxAskSize {
		return fmt.Errorf("%d bytes", len(b))
	}
	return json.NewDecoder(bytes.NewReader(b)).Decode(v)
}
