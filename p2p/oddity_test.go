package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
)

// A peer that knows the secret but speaks other versions, or nonsense.
type oddity struct{ *Host }

type quiet struct{ serve func(Stream) }

func (quiet) Opened(peer.ID) {}
func (quiet) Closed(peer.ID) {}
func (q quiet) Accept(_ peer.ID, _ protocol.ID, s Stream) {
	if q.serve != nil {
		q.serve(s)
	}
}

func startOddity(t *testing.T, protocols []protocol.ID, serve func(Stream)) *oddity {
	t.Helper()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHost(Options{Identity: id, Secret: testSecret(), Listen: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}})
	if err != nil {
		t.Fatal(err)
	}
	h.muxer = multistream.NewMultistreamMuxer[protocol.ID]()
	for _, p := range protocols {
		h.muxer.AddHandler(p, nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, quiet{serve}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-h.Ready()
	return &oddity{Host: h}
}

func (o *oddity) info(t *testing.T) peer.AddrInfo {
	addrs, err := o.OwnAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return peer.AddrInfo{ID: o.ID(), Addrs: addrs}
}

func TestPeerWithOtherProtocolVersions(t *testing.T) {
	a := startNode(t)
	o := startOddity(t, []protocol.ID{"/dmxfs/lock/2", "/dmxfs/member/1"}, nil)
	a.SetWanted([]peer.AddrInfo{o.info(t)})
	poll(t, "a connection", func() bool { return a.SendMember(o.ID(), []byte("x")) })
	wantLog(t, a, "WARN", "another version of dmxfs", o.ID().String(), "/dmxfs/member/2", o.info(t).Addrs[0].String())
	if _, err := a.Ask(t.Context(), o.ID(), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("Ask: %v", err)
	}
	// And the other way round.
	_, err := o.Open(t.Context(), a.host.ID(), "/dmxfs/lock/2")
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("Open: %v", err)
	}
	wantLog(t, a, "WARN", "refused a stream of a peer", o.ID().String(), "no protocol of this version")
}

func TestGarbageOnStreamsIsRefusedWithAReason(t *testing.T) {
	a := startNode(t)
	setView(t, 1, a)
	tests := []struct {
		name  string
		proto protocol.ID
		send  []byte
		log   string
	}{
		{"text", lockProtocol, []byte("GET / HTTP/1.1\r\n"), `begins with \"GET / H\"`},
		{"other version", lockProtocol, []byte("dmxfsL\x02" + strings.Repeat("\x00", helloLen)), "version 2 of the wire format"},
		{"other kind", memberProtocol, []byte("dmxfsL\x01"), "a stream of kind"},
		{"long message", memberProtocol, memberHead{Len: MaxMember + 1}.append(appendPreamble(nil, kindMember)), fmt.Sprintf("a message of %d bytes", MaxMember+1)},
		{"long state", syncProtocol, append(hello{Epoch: 1}.append(appendPreamble(nil, kindSync)), "\xff\xff\xff\xff\xff\xff\xff\xff"...), "a state of"},
		{"long question", askProtocol, append(appendPreamble(nil, kindAsk), "\x00\x00\x10\x00\xff\xff\xff\xff"...), "a question of"},
		{"stranger", lockProtocol, hello{Epoch: 1, From: 7}.append(appendPreamble(nil, kindLock)), "is not a member of epoch 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := startOddity(t, nil, nil)
			o.SetAddrs(a.info(t))
			if err := o.Connect(t.Context(), a.host.ID()); err != nil {
				t.Fatal(err)
			}
			s, err := o.Open(t.Context(), a.host.ID(), tt.proto)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Reset()
			if _, err := s.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, s); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the stream was left open")
			}
			wantLog(t, a, "WARN", "refused a stream of a peer", o.ID().String(), "addr=/ip4/127.0.0.1/tcp/", string(tt.proto), tt.log)
		})
	}
	b := startNode(t)
	connect(t, a, b)
}

// A node that does not serve a channel says so, and goes on.
func TestChannelsWithoutHandlerAreRefused(t *testing.T) {
	a, b := startNode(t), startNode(t)
	b.Transport.h = Handlers{}
	connect(t, a, b)
	if _, err := a.Ask(t.Context(), b.host.ID(), nil); err == nil {
		t.Error("Ask: no error")
	}
	poll(t, "a message to be sent", func() bool {
		a.SendMember(b.host.ID(), []byte("x"))
		return strings.Contains(b.log.String(), "/dmxfs/member/2")
	})
	wantLog(t, b, "WARN", "refused a stream", a.host.ID().String(), "nothing here serves", "/dmxfs/ask/1")
	wantLog(t, b, "WARN", "refused a stream", a.host.ID().String(), "nothing here serves", "/dmxfs/member/2")
}

// What a peer answers can be nonsense as well.
func TestGarbageAsAnswerIsAnError(t *testing.T) {
	a := startNode(t)
	for name, reply := range map[string][]byte{
		"text":           []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"status":         append(appendPreamble(nil, kindAsk), 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"length":         verdict{Value: MaxAnswer + 1}.append(appendPreamble(nil, kindAsk)),
		"cut short":      verdict{Value: 100}.append(appendPreamble(nil, kindAsk)),
		"nothing at all": nil,
	} {
		t.Run(name, func(t *testing.T) {
			o := startOddity(t, []protocol.ID{askProtocol, memberProtocol}, func(s Stream) {
				_, _ = s.Read(make([]byte, 100))
				_, _ = s.Write(reply)
			})
			a.host.SetAddrs(o.info(t))
			if err := a.host.Connect(t.Context(), o.ID()); err != nil {
				t.Fatal(err)
			}
			if got, err := a.Ask(t.Context(), o.ID(), []byte("?")); err == nil {
				t.Errorf("Ask: %q", got)
			}
		})
	}
}
