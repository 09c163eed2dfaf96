package p2p

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
	ma "github.com/multiformats/go-multiaddr"
)

func TestRecordsCarryAddresses(t *testing.T) {
	a, b := startNode(t), startNode(t)
	rec, err := b.host.Record()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.host.Record(); err != nil || !bytes.Equal(rec, again) {
		t.Errorf("the record changes although the addresses do not: %v", err)
	}
	p, err := a.host.AddRecord(rec)
	if err != nil || p != b.host.ID() {
		t.Fatalf("AddRecord: %s, %v", p, err)
	}
	// It is enough to connect.
	a.SetWanted([]peer.AddrInfo{{ID: p}})
	poll(t, "a connection", func() bool { return a.connectedTo(b) })
	// A record of one's own is no news.
	if p, err := b.host.AddRecord(rec); err != nil || p != b.host.ID() || len(b.host.Addrs(p)) != 0 {
		t.Errorf("own record: %s, %v", p, err)
	}
}

func TestRecordsThatAreRefused(t *testing.T) {
	h := startNode(t).host
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	seal := func(r peer.PeerRecord, by Identity) []byte {
		env, err := record.Seal(&r, by.key)
		if err != nil {
			t.Fatal(err)
		}
		b, err := env.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/tcp/1")}
	two := []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.2/tcp/2")}
	good := seal(peer.PeerRecord{PeerID: id.id, Addrs: two, Seq: 5}, id)
	if p, err := h.AddRecord(good); err != nil || p != id.id {
		t.Fatal(p, err)
	}
	bent := bytes.Clone(good)
	bent[len(bent)-1] ^= 1
	for name, tt := range map[string]struct {
		b    []byte
		want error
	}{
		"older":                {seal(peer.PeerRecord{PeerID: id.id, Addrs: one, Seq: 4}, id), ErrStaleRecord},
		"signed by another":    {seal(peer.PeerRecord{PeerID: id.id, Addrs: one, Seq: 6}, other), ErrBadRecord},
		"bit changed":          {bent, ErrBadRecord},
		"cut short":            {good[:len(good)-1], ErrBadRecord},
		"empty":                {nil, ErrBadRecord},
		"text":                 {[]byte("hello"), ErrBadRecord},
		"too long":             {make([]byte, maxRecord+1), ErrBadRecord},
		"another kind of seal": {sealOther(t, id), ErrBadRecord},
	} {
		if p, err := h.AddRecord(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %s, %v, want %v", name, p, err, tt.want)
		}
		if got := h.Addrs(id.id); !slices.Equal(got, []string{"/ip4/192.0.2.2/tcp/2"}) {
			t.Errorf("%s: addresses are now %v", name, got)
		}
	}
	// The same once more is no error; a newer one replaces it.
	if _, err := h.AddRecord(good); err != nil {
		t.Error(err)
	}
	if _, err := h.AddRecord(seal(peer.PeerRecord{PeerID: id.id, Addrs: one, Seq: 6}, id)); err != nil {
		t.Error(err)
	}
	if got := h.Addrs(id.id); !slices.Equal(got, []string{"/ip4/192.0.2.1/tcp/1"}) {
		t.Errorf("addresses are now %v", got)
	}
}

// sealOther is an envelope of the same key for something else.
func sealOther(t *testing.T, id Identity) []byte {
	env, err := record.Seal(otherRecord{}, id.key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := env.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type otherRecord struct{}

func (otherRecord) Domain() string                 { return "other" }
func (otherRecord) Codec() []byte                  { return []byte{1} }
func (otherRecord) MarshalRecord() ([]byte, error) { return []byte{}, nil }
func (otherRecord) UnmarshalRecord([]byte) error   { return nil }

func TestAddressesThatAreUsed(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	b := newAddrBook()
	var addrs []ma.Multiaddr
	for _, s := range []string{
		"/ip4/192.0.2.1/tcp/1",
		"/ip6/2001:db8::1/tcp/1",
		"/dns4/host.example/tcp/1",
		"/ip4/192.0.2.3/tcp/1/p2p/" + id.id.String(),
		// Not these:
		"/ip4/192.0.2.4/tcp/1/p2p/" + other.id.String(),
		"/ip4/0.0.0.0/tcp/1",
		"/ip6/::/tcp/1",
		"/ip6/fe80::1/tcp/1",
		"/ip4/192.0.2.1/udp/1/quic-v1",
		"/ip4/192.0.2.1/tcp/1/ws",
		"/ip4/192.0.2.1",
		"/p2p/" + id.id.String(),
		"/ip4/192.0.2.1/tcp/1/p2p/" + other.id.String() + "/p2p-circuit",
	} {
		addrs = append(addrs, ma.StringCast(s))
	}
	if err := b.set(id.id, fromCaller, addrs, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.set(id.id, fromMDNS, addrs[:1], 0); err != nil {
		t.Fatal(err)
	}
	want := []string{"/ip4/192.0.2.1/tcp/1", "/ip6/2001:db8::1/tcp/1", "/dns4/host.example/tcp/1", "/ip4/192.0.2.3/tcp/1"}
	if got := b.get(id.id); !slices.EqualFunc(got, want, func(a ma.Multiaddr, s string) bool { return a.String() == s }) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What is heard of addresses is bounded: of one peer, and of all.
func TestAddressesAreBounded(t *testing.T) {
	b, id := newAddrBook(), peer.ID("a peer")
	addrs := []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/tcp/1")}
	var many []ma.Multiaddr
	for i := range 10 * maxAddrs {
		many = append(many, ma.StringCast(fmt.Sprintf("/ip4/192.0.2.1/tcp/%d", i+1)))
	}
	if err := b.set(id, fromRecord, many, 1); err != nil {
		t.Fatal(err)
	}
	if n := len(b.get(id)); n > 2*maxAddrs {
		t.Errorf("%d addresses are kept", n)
	}
	for i := range 2 * maxBook {
		_ = b.set(peer.ID(fmt.Sprint(i)), fromMDNS, addrs, 0)
	}
	if n := len(b.peers); n > maxBook {
		t.Errorf("addresses of %d peers are kept", n)
	}
}

// When all places are taken a record takes that of the oldest; what the caller
// wants is always taken, and nothing takes its place.
func TestAddressesTakeThePlaceOfOthers(t *testing.T) {
	b := newAddrBook()
	addrs := []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/tcp/1")}
	for i := range maxBook {
		if err := b.set(peer.ID(fmt.Sprint(i)), fromMDNS, addrs, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.set(peer.ID("record 1"), fromRecord, addrs, 100); err != nil {
		t.Error(err)
	}
	for i := range 2 * maxBook {
		if err := b.set(peer.ID(fmt.Sprint("older ", i)), fromRecord, addrs, uint64(i%100)); err != nil {
			t.Error(err)
		}
	}
	if b.get(peer.ID("record 1")) == nil || len(b.peers) > maxBook {
		t.Errorf("a newer record had to go for older ones, or %d peers are kept", len(b.peers))
	}
	for i := range 2 * maxBook {
		if err := b.set(peer.ID(fmt.Sprint("wanted ", i)), fromCaller, addrs, 0); err != nil {
			t.Errorf("what the caller wants is refused: %v", err)
		}
	}
	if err := b.set(peer.ID("record 2"), fromRecord, addrs, 200); err == nil || !strings.Contains(err.Error(), "known already") {
		t.Errorf("one more: %v", err)
	}
	if b.get(peer.ID("wanted 0")) == nil {
		t.Error("a wanted peer had to go")
	}
}

func TestAddressesThatAreTyped(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"/ip4/0.0.0.0/tcp/7654", "/ip6/::/tcp/0"} {
		if a, err := ParseListen(s); err != nil || a.String() != s {
			t.Errorf("ParseListen(%q): %v, %v", s, a, err)
		}
	}
	for _, s := range []string{"", "7654", "0.0.0.0:7654", "/ip4/0.0.0.0", "/ip4/0.0.0.0/udp/1/quic-v1", "/ip4/0.0.0.0/tcp/99999"} {
		if a, err := ParseListen(s); err == nil || !strings.Contains(err.Error(), strconv.Quote(s)) || !strings.Contains(err.Error(), "/ip4/0.0.0.0/tcp/7654") {
			t.Errorf("ParseListen(%q): %v, %v", s, a, err)
		}
	}
	name := "/p2p/" + id.id.String()
	for _, s := range []string{"/ip4/192.0.2.1/tcp/1" + name, "/dns4/host.example/tcp/1" + name} {
		if p, err := ParsePeer(s); err != nil || p.ID != id.id || len(p.Addrs) != 1 || p.Addrs[0].String()+name != s {
			t.Errorf("ParsePeer(%q): %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "192.0.2.1:1", "/ip4/192.0.2.1/tcp/1", name, "/ip4/192.0.2.1/udp/1/quic-v1" + name, "/ip4/0.0.0.0/tcp/1" + name, "/ip4/192.0.2.1/tcp/1/p2p/x"} {
		if p, err := ParsePeer(s); err == nil || !strings.Contains(err.Error(), strconv.Quote(s)) {
			t.Errorf("ParsePeer(%q): %v, %v", s, p, err)
		}
	}
}
