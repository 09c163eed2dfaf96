package p2p

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

func TestMailboxKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mailbox{wake: make(chan struct{}, 1)}
		for i := range 10 {
			m.put(fmt.Append(nil, i), time.Now())
		}
		take := func() (got []string) {
			for _, l := range m.take(nil, time.Now()) {
				got = append(got, string(l.msg))
			}
			return got
		}
		if got, want := take(), []string{"6", "7", "8", "9"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want the last %d, %q", got, mailboxLen, want)
		}
		if got := take(); got != nil {
			t.Errorf("taken twice: %q", got)
		}
		m.put([]byte("old"), time.Now())
		time.Sleep(mailAge)
		m.put([]byte("new"), time.Now())
		time.Sleep(time.Millisecond)
		if got, want := take(), []string{"new"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q: a message waited too long", got, want)
		}
	})
}

func TestRoundTripIsMeasured(t *testing.T) {
	r := new(remote)
	tr := NewTransport(nil, Handlers{}, nil)
	at := tr.member.made.Add(time.Hour)
	sent := tr.member.clock(at)
	r.received(memberHead{Sent: 1}, at, tr.member.clock(at))
	if r.rtt != 0 || r.echo != 1 || !r.heard.Equal(at) {
		t.Errorf("after a message without echo: %v, echo %d", r.rtt, r.echo)
	}
	at = at.Add(30 * time.Millisecond)
	r.received(memberHead{Sent: 2, Echo: sent, Held: 20_000}, at, tr.member.clock(at))
	if want := 10 * time.Millisecond; r.rtt != want {
		t.Errorf("round trip %v, want %v", r.rtt, want)
	}
	r.received(memberHead{Sent: 3, Echo: sent, Held: 12_000}, at, tr.member.clock(at))
	if want := 11 * time.Millisecond; r.rtt != want {
		t.Errorf("smoothed round trip %v, want %v", r.rtt, want)
	}
	// Nonsense changes nothing: an echo from the future, a hold longer than the
	// time since, an echo from long ago.
	for _, h := range []memberHead{
		{Echo: sent + 1e6}, {Echo: sent, Held: 1e9}, {Echo: 1}, {Echo: ^uint64(0), Held: ^uint64(0)},
	} {
		r.received(h, at, tr.member.clock(at))
		if want := 11 * time.Millisecond; r.rtt != want {
			t.Errorf("%+v: round trip %v, want %v", h, r.rtt, want)
		}
	}
}

func TestPeersTellsOfTheConnection(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	start := time.Now()
	poll(t, "a round trip time", func() bool {
		a.SendMember(b.host.ID(), []byte("x"))
		b.SendMember(a.host.ID(), []byte("y"))
		return a.Peers()[0].RTT > 0
	})
	p := a.Peers()[0]
	if p.ID != b.host.ID() || !p.Wanted || !p.Connected || p.RTT > time.Since(start) || p.Heard.Before(start) || p.Since.After(start) ||
		len(p.Conns) == 0 || !strings.HasPrefix(p.Conns[0].Remote, "/ip4/127.0.0.1/tcp/") || !slices.Contains(p.Addrs, b.info(t).Addrs[0].String()) {
		t.Errorf("%+v", p)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	poll(t, "the end of the connection, and failed dials", func() bool {
		p := a.Peers()[0]
		return !p.Connected && p.DialErr != nil && strings.Contains(p.DialErr.Error(), "connection refused") && p.Dialed.After(start)
	})
	a.SetWanted(nil)
	if got := a.Peers(); len(got) != 0 {
		t.Errorf("a peer that nobody needs is still there: %+v", got)
	}
}

func TestMessagesThatCanNotBeSentAreDropped(t *testing.T) {
	a, b := startNode(t), startNode(t)
	if a.SendMember(b.host.ID(), []byte("x")) {
		t.Error("a message to an unknown peer was taken")
	}
	connect(t, a, b)
	if a.SendMember(b.host.ID(), make([]byte, MaxMember+1)) {
		t.Error("a message that is too long was taken")
	}
	wantLog(t, a, "WARN", "too long", fmt.Sprintf("bytes=%d", MaxMember+1))
	a.tell(t, b, strings.Repeat("x", MaxMember))
	if a.SendMember(a.host.ID(), []byte("x")) {
		t.Error("a message to this node was taken")
	}
}

// A peer that does not read costs a few messages, and its handler that blocks
// does not hold up its other channels.
func TestMessagesToADeafPeerAreDropped(t *testing.T) {
	a, b := startNode(t), startNode(t)
	connect(t, a, b)
	setView(t, 1, a, b)
	gate := make(chan struct{})
	b.mu.Lock()
	b.onMail = func(peer.ID) { <-gate }
	b.mu.Unlock()
	msg := make([]byte, MaxMember/2)
	const count = 100
	for range count {
		a.SendMember(b.host.ID(), msg) // must not block
	}
	sendNumber(t, a, b, 1, 0)
	b.wait(t, "a frame", func() bool { return len(b.frames[a.name]) == 1 })
	close(gate)
	b.wait(t, "a message", func() bool { return len(b.member) > 0 })
	// New ones come, over a new stream if need be.
	poll(t, "a new message", func() bool {
		a.SendMember(b.host.ID(), []byte("new"))
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.member[len(b.member)-1].text == "new"
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	old := 0
	for _, m := range b.member {
		if m.text != "new" {
			old++
		}
	}
	if old > count/2 {
		t.Errorf("%d of %d messages were kept for a peer that did not read", old, count)
	}
}

// The channel goes on by itself after the connection broke.
func TestMessagesGoOnAfterABreak(t *testing.T) {
	a, b := startNode(t), startNode(t)
	p, info := through(t, b)
	a.SetWanted([]peer.AddrInfo{info})
	for i := range 5 {
		a.tell(t, b, fmt.Sprint(i))
		p.breakAll()
	}
}

func TestPausesBetweenDials(t *testing.T) {
	if pause(0) != firstPause || pause(10) != fastPause || pause(59) != fastPause || pause(1000) != slowPause {
		t.Errorf("pauses %v, %v, %v, %v", pause(0), pause(10), pause(59), pause(1000))
	}
	for n := range 100 {
		if pause(n+1) < pause(n) || pause(n) <= 0 {
			t.Errorf("pause %d is %v, the next %v", n, pause(n), pause(n+1))
		}
	}
}

func TestLogIsLimited(t *testing.T) {
	l := newLimitedLog(nil)
	at := time.Unix(0, 0)
	if n, ok := l.due("a", at); n != 0 || !ok {
		t.Errorf("first: %d, %v", n, ok)
	}
	for range 5 {
		if _, ok := l.due("a", at.Add(logEvery-1)); ok {
			t.Error("again within the minute")
		}
	}
	if _, ok := l.due("b", at); !ok {
		t.Error("another cause was suppressed")
	}
	if n, ok := l.due("a", at.Add(logEvery)); n != 5 || !ok {
		t.Errorf("after a minute: %d, %v; want 5 suppressed", n, ok)
	}
	for i := range 2 * logKeys {
		l.due(fmt.Sprint(i), at.Add(logEvery))
	}
	if len(l.last) > logKeys {
		t.Errorf("%d causes are kept", len(l.last))
	}
	if _, ok := l.due("new", at.Add(3*logEvery)); !ok {
		t.Error("old causes keep new ones out for ever")
	}
}
