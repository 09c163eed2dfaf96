package metrics

import (
	"errors"
	"net"
	"testing"
)

// crowd is a listener at which clients always stand.
type crowd struct{ accepted int }

func (c *crowd) Accept() (net.Conn, error) {
	c.accepted++
	a, _ := net.Pipe()
	return a, nil
}
func (c *crowd) Close() error   { return nil }
func (c *crowd) Addr() net.Addr { return nil }

// A crowd gets no more connections than there is room for, and who leaves makes room for
// one, how often he says so.
func TestClientsAreBounded(t *testing.T) {
	t.Parallel()
	all := &crowd{}
	l := Listener(all)
	var last net.Conn
	for range MaxClients {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		last = c
	}
	next := make(chan error)
	accept := func() {
		_, err := l.Accept()
		next <- err
	}
	go accept()
	for range 2 {
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-next; err != nil || all.accepted != MaxClients+1 {
		t.Errorf("%v, %d connections after one has left", err, all.accepted)
	}
	go accept()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-next; !errors.Is(err, net.ErrClosed) || all.accepted != MaxClients+1 {
		t.Errorf("%v, %d connections at the end", err, all.accepted)
	}
}
