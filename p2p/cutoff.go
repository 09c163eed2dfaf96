package p2p

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchEvery is how often connections are looked at.
	watchEvery = 500 * time.Millisecond
	// ackTimeout is how long the kernel of the other side may be silent. It is
	// asked at least every keepAlive, so that it is not silent because there is
	// nothing to say; and it must not be what was said last that got lost, so it
	// is asked again, and again.
	ackTimeout  = 2 * time.Second
	ackRetrials = 2
)

// cutOff reports whether the kernel at the other end of a connection has not
// answered for a while, although it should.
func cutOff(c net.Conn) (cut bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails only when it was closed
		i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		cut = err == nil && i.Unacked > 0 && i.Retransmits >= ackRetrials && time.Duration(i.Last_ack_recv)*time.Millisecond >= ackTimeout
	})
	return cut
}
