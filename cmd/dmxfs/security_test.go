package main

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/nodestate"
)

// Strangers keep as many connections open as they get, to all hosts: another host
// joins, and locks are had, as if there were none.
func TestFloodOfStrangers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
	for _, p := range c.mounts[0].peers().Members {
		addr, err := manet.ToNetAddr(ma.StringCast(p.Addrs[0]))
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			s, err := from.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			_, _ = s.Write([]byte("GET / HTTP/1.0\r\n")) // or it is closed at once
		}
	}
	d := c.add()
	d.mount()
	c.awaitMembers(3)
	for _, m := range c.mounts {
		if out, code := m.sh("flock f true"); code != 0 {
			t.Errorf("a lock: %d %s", code, out)
		}
	}
	await(t, "the log tells of them", func() bool {
		return strings.Contains(c.mounts[0].log(), "a connection failed in its handshake") ||
			strings.Contains(c.mounts[0].log(), "too many from this address")
	})
}

// A node that knows the secret, but is no member, gets nothing from those that are:
// no lock broken, no part in the secret, no answer that changes anything.
func TestWhoIsNoMemberGivesNoOrders(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	hold := m.helper("hold", "flock", "f")
	m.held("f", 1)
	_, network, ctx := newStranger(t, m.secret())
	v := m.peers()
	to, err := peer.Decode(v.Self)
	if err != nil {
		t.Fatal(err)
	}
	network.SetWanted([]peer.AddrInfo{{ID: to, Addrs: []ma.Multiaddr{ma.StringCast(v.Members[0].Addrs[0])}}})
	await(t, "it is connected", func() bool {
		p := network.Peers()
		return len(p) == 1 && p[0].Connected
	})
	for _, q := range []string{
		`{"what":"break","break":{"locks":[{"path":"f","class":"flock"}],"reason":"x"}}`,
		`{"what":"secret","secret":{"step":"prepare","generation":1,"secret":"` + strings.Repeat("x", 64) + `"}}`,
		`{"what":"secret","secret":{"step":"finish","generation":1}}`,
	} {
		if b, err := network.Ask(ctx, to, []byte(q)); err == nil && !strings.Contains(string(b), "only members") || err != nil && !strings.Contains(err.Error(), "only members") {
			t.Errorf("%s: %s %v", q, b, err)
		}
	}
	if m.count("f", "held") != 1 {
		t.Error("the lock is gone")
	}
	if k, err := nodestate.ReadSecrets(m.state); err != nil || len(k.Next) != 0 {
		t.Errorf("%+v %v", k, err)
	}
	hold.signal(unix.SIGKILL)
}

// SECURITY.md says by which tests its claims are tried. They are there.
func TestSecurityIsTried(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(read(t, filepath.Join(root, "SECURITY.md")), -1)
	if len(names) < 15 {
		t.Errorf("SECURITY.md names only %q", names)
	}
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(b, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !there[n] {
			t.Errorf("there is no %s", n)
		}
	}
}
