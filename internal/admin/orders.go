package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"
)

// An order to a daemon that is stopped, or hangs, is given up by who gave it,
// by Ctrl-C or when its time is over. It must not be carried out when the daemon
// goes on: nobody expects it any more.

// connKey is the connection of a request, in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ordersOfThePresent refuses orders whose asker has gone.
func ordersOfThePresent(h http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && askerGone(r.Context()) {
			log.Warn("an order is not carried out: who gave it has gone", "order", r.URL.Path)
			Reply(w, nil, errors.New("who gave the order has gone"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// askerGone reports whether the other end of the connection was closed.
func askerGone(ctx context.Context) (gone bool) {
	c, ok := ctx.Value(connKey{}).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(p, 0); err == nil {
			gone = p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
		}
	})
	return gone || err != nil
}
