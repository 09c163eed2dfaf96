package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p"
)

// Two nodes of one cluster: they learn of each other by their signed records,
// as they would through files on the shared storage, and one sends a frame to
// the other.
func Example() {
	secret, err := p2p.ParseSecret(p2p.NewSecret())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	got := make(chan string)
	start := func() (*p2p.Host, *p2p.Transport, error) {
		state, err := os.MkdirTemp("", "dmxfs-example-")
		if err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(state)
		id, err := p2p.LoadIdentity(state)
		if err != nil {
			return nil, nil, err
		}
		loopback, err := p2p.ParseListen("/ip4/127.0.0.1/tcp/0")
		if err != nil {
			return nil, nil, err
		}
		host, err := p2p.NewHost(p2p.Options{Identity: id, Secret: secret, Listen: []multiaddr.Multiaddr{loopback}})
		if err != nil {
			return nil, nil, err
		}
		tr := p2p.NewTransport(host, p2p.Handlers{
			Lock: func(from locks.NodeID, e locks.Epoch, frame []byte) {
				got <- fmt.Sprintf("epoch %d: %s", e, frame)
			},
		}, nil)
		failed := make(chan error, 1)
		wg.Go(func() { failed <- tr.Run(ctx) })
		select {
		case <-host.Ready():
			return host, tr, nil
		case err := <-failed:
			return nil, nil, err
		}
	}
	hostA, a, errA := start()
	hostB, b, errB := start()
	if err := errors.Join(errA, errB); err != nil {
		fmt.Println(err)
		return
	}

	record, err := hostB.Record()
	if err != nil {
		fmt.Println(err)
		return
	}
	idB, err := hostA.AddRecord(record)
	if err != nil {
		fmt.Println(err)
		return
	}
	a.SetWanted([]peer.AddrInfo{{ID: idB}})

	nodeA, nodeB := p2p.NodeID(hostA.ID(), 1), p2p.NodeID(hostB.ID(), 1)
	members := []locks.NodeID{nodeA, nodeB}
	errA, errB = a.SetView(1, nodeA, members), b.SetView(1, nodeB, members)
	if err := errors.Join(errA, errB, a.Send(1, nodeB, []byte("hello"))); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-got)
	// Output: epoch 1: hello
}
