package p2p

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// proxy stands between two nodes on the way of one to the other. It can stop
// carrying, and break connections.
type proxy struct {
	l      net.Listener
	target net.Addr
	wg     sync.WaitGroup
	pace   int // bytes a second, of each direction; 0: as it comes. Set before it is used.

	mu      sync.Mutex
	stalled bool
	changed *sync.Cond
	conns   map[net.Conn]bool
	made    int
	left    int // bytes to carry until all breaks; 0 for ever
	closed  bool
}

// through is where n is, behind a new proxy.
func through(tb testing.TB, n *node) (*proxy, peer.AddrInfo) {
	tb.Helper()
	info := n.info(tb)
	target, err := manet.ToNetAddr(info.Addrs[0])
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	addr, err := manet.FromNetAddr(l.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{l: l, target: target, conns: make(map[net.Conn]bool)}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.changed.Broadcast()
		p.mu.Unlock()
		l.Close()
		p.breakAll()
		p.wg.Wait()
	})
	return p, peer.AddrInfo{ID: info.ID, Addrs: []ma.Multiaddr{addr}}
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		d, err := net.Dial("tcp", p.target.String())
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[d] = true, true
		p.made++
		p.mu.Unlock()
		p.wg.Go(func() { p.carry(c, d) })
		p.wg.Go(func() { p.carry(d, c) })
	}
}

func (p *proxy) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for p.stalled && !p.closed {
			p.changed.Wait()
		}
		breaks := p.left > 0 && p.left <= n
		p.left = max(p.left-n, 0)
		p.mu.Unlock()
		if breaks {
			p.breakAll()
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
			if p.pace > 0 {
				<-time.After(time.Duration(n) * time.Second / time.Duration(p.pace))
			}
		}
		if err != nil {
			return
		}
	}
}

// breakAll ends all connections, as a reset in the middle does.
func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		c.Close()
		delete(p.conns, c)
	}
}

// breakAfter breaks all connections, once, when n more bytes have come.
func (p *proxy) breakAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// stall holds everything back, in both directions, until it is called again.
func (p *proxy) stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	p.changed.Broadcast()
}

func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}
