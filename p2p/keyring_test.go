package p2p

import (
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
)

func newSecret(tb testing.TB) Secret {
	tb.Helper()
	s, err := ParseSecret(NewSecret())
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func withSecret(s Secret) nodeOption { return func(o *Options) { o.Secret = s } }

// While a secret changes, nodes that have both, or the old one only, or the new
// one only, reach each other, whoever dials; and in the end only the new one
// counts.
func TestSecretsChangeWhileConnected(t *testing.T) {
	former, next := newSecret(t), newSecret(t)
	a, b := startNode(t, withSecret(former)), startNode(t, withSecret(former))
	setView(t, 1, a, b)
	connect(t, a, b)
	first := a.host.Conns(b.host.ID())[0]
	a.host.SetSecrets(former, next)
	b.host.SetSecrets(former, next)
	sendNumber(t, a, b, 1, 0)
	b.wait(t, "a frame", func() bool { return len(b.frames[a.name]) == 1 })
	if now := a.host.Conns(b.host.ID()); len(now) != 1 || !now[0].Opened.Equal(first.Opened) {
		t.Errorf("a second secret has ended the connection: %v", now)
	}

	// Who has the old one only still gets in, and is reached by those that
	// dial with the new one first.
	late := startNode(t, withSecret(former))
	if err := connectOnce(t, late, a); err != nil {
		t.Errorf("with the old secret, during the change: %v", err)
	}
	b.host.SetSecrets(next, former)
	poll(t, "b to reach who has the old one", func() bool { return connectOnce(t, b, late) == nil })
	for range 3 { // and goes on to
		_ = b.host.swarm.ClosePeer(late.host.ID())
		poll(t, "b to reach it again", func() bool { return connectOnce(t, b, late) == nil })
	}

	// The end: connections with the old one are made anew, and nothing is lost.
	a.SetWanted([]peer.AddrInfo{b.info(t)})
	a.host.SetSecrets(next)
	for i := 1; i < 20; i++ {
		sendNumber(t, a, b, 1, i)
	}
	b.wait(t, "the frames", func() bool { return len(b.frames[a.name]) == 20 })
	b.inOrder(t, a.name, 1, 20)
	b.host.SetSecrets(next)
	poll(t, "a connection with the new secret", func() bool {
		c := a.host.Conns(b.host.ID())
		return len(c) > 0 && c[len(c)-1].Opened.After(first.Opened)
	})
	poll(t, "the old ones to be gone", func() bool { return !a.connectedTo(late) && !b.connectedTo(late) })
	for _, n := range []*node{a, b} {
		if err := connectOnce(t, late, n); err == nil {
			t.Error("the old secret is accepted still")
		}
		if err := connectOnce(t, n, late); err == nil {
			t.Error("a node with the old secret only is connected still")
		}
	}
	fresh := startNode(t, withSecret(next))
	if err := connectOnce(t, fresh, a); err != nil {
		t.Errorf("with the new secret: %v", err)
	}
}
