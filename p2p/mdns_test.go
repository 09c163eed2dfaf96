package p2p

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// mdnsEnv makes the test binary a pair of hosts, of two clusters, in a network
// namespace of its own: its value is the address of the interface.
const mdnsEnv = "DMXFS_P2P_MDNS"

var mdnsClusters = []string{"cluster-one", "cluster-two"}

// TestMDNSFindsNodesOfTheSameCluster never announces anything on the
// interfaces of this host: both processes live in namespaces that end with
// them.
func TestMDNSFindsNodesOfTheSameCluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip(8): ", err)
	}
	a, b := startMDNS(t, "10.123.0.1"), startMDNS(t, "10.123.0.2")
	a.say("link %d", b.pid)
	a.want("linked")
	for _, c := range []*mdnsChild{a, b} {
		c.say("up")
	}
	ids := make(map[*mdnsChild][]string)
	for _, c := range []*mdnsChild{a, b} {
		for range mdnsClusters {
			ids[c] = append(ids[c], c.want("id "))
		}
	}
	// Each finds its counterpart, and can connect to it.
	for i := range mdnsClusters {
		a.want(fmt.Sprintf("found %d %s", i, ids[b][i]))
		b.want(fmt.Sprintf("found %d %s", i, ids[a][i]))
	}
	// And nobody has seen a node of the other cluster.
	for _, c := range []*mdnsChild{a, b} {
		other := ids[a]
		if c == a {
			other = ids[b]
		}
		for i := range mdnsClusters {
			for _, line := range c.all() {
				if strings.HasPrefix(line, fmt.Sprintf("found %d ", i)) && !strings.Contains(line, other[i]) {
					t.Errorf("%s: %s", c.name, line)
				}
			}
		}
	}
}

type mdnsChild struct {
	t    *testing.T
	name string
	pid  int
	in   io.Writer

	mu    sync.Mutex
	lines []string
	next  map[string]int
	ended bool
}

func startMDNS(t *testing.T, addr string) *mdnsChild {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mdnsEnv+"="+addr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Skip("can't make a network namespace: ", err)
	}
	w.Close()
	c := &mdnsChild{t: t, name: addr, pid: cmd.Process.Pid, in: in, next: make(map[string]int)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := bufio.NewScanner(r)
		for s.Scan() {
			c.mu.Lock()
			c.lines = append(c.lines, s.Text())
			c.mu.Unlock()
		}
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
	}()
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
		<-done
		r.Close()
		if t.Failed() {
			t.Logf("%s said:\n%s", addr, strings.Join(c.all(), "\n"))
		}
	})
	return c
}

func (c *mdnsChild) say(format string, args ...any) { fmt.Fprintf(c.in, format+"\n", args...) }

func (c *mdnsChild) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.lines...)
}

// want waits for the next line with a prefix, and returns the rest of it.
func (c *mdnsChild) want(prefix string) (rest string) {
	c.t.Helper()
	poll(c.t, c.name+" to say "+prefix, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := c.next[prefix]; i < len(c.lines); i++ {
			if r, ok := strings.CutPrefix(c.lines[i], prefix); ok {
				c.next[prefix] = i + 1
				rest = r
				return true
			}
		}
		if c.ended {
			c.t.Fatalf("%s has ended", c.name)
		}
		return false
	})
	return rest
}

// mdnsMain is the main function of a child.
func mdnsMain(addr string) error {
	if err := mdnsLink(addr); err != nil {
		return err
	}
	secret, err := ParseSecret([]byte(strings.Repeat("mdns test ", 5)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, cluster := range mdnsClusters {
		if err := mdnsHost(ctx, &wg, secret, addr, i, cluster); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// mdnsLink has the network of this process linked with that of another one, by
// what it reads of them.
func mdnsLink(addr string) error {
	ip := func(args ...string) error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %q: %w: %s", args, err, out)
		}
		return nil
	}
	in := bufio.NewScanner(os.Stdin)
	dev := "veth1" // what the other process gives
	for in.Scan() {
		if pid, ok := strings.CutPrefix(in.Text(), "link "); ok {
			dev = "veth0"
			if err := ip("link", "add", dev, "type", "veth", "peer", "name", "veth1", "netns", pid); err != nil {
				return err
			}
			fmt.Println("linked")
			continue
		}
		for _, args := range [][]string{
			{"link", "set", "lo", "up"},
			{"addr", "add", addr + "/24", "dev", dev},
			{"link", "set", dev, "up"},
		} {
			if err := ip(args...); err != nil {
				return err
			}
		}
		return nil
	}
	return in.Err()
}

// mdnsHost starts a host of a cluster, and tells whom it finds.
func mdnsHost(ctx context.Context, wg *sync.WaitGroup, secret Secret, addr string, i int, cluster string) error {
	id, err := NewIdentity()
	if err != nil {
		return err
	}
	found := make(chan peer.ID, 100)
	h, err := NewHost(Options{
		Identity: id,
		Secret:   secret,
		Listen:   []ma.Multiaddr{ma.StringCast("/ip4/" + addr + "/tcp/0")},
		Cluster:  cluster,
		MDNS:     true,
		Found:    func(p peer.ID) { found <- p },
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fmt.Println("id " + h.ID().String())
	failed := make(chan error, 1)
	wg.Go(func() { failed <- h.Run(ctx, quiet{}) })
	select {
	case <-h.Ready():
	case err := <-failed:
		return err
	}
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case p := <-found:
				if err := h.Connect(ctx, p); err != nil {
					fmt.Println(err)
					continue
				}
				fmt.Printf("found %d %s\n", i, p)
			}
		}
	})
	return nil
}

func TestServiceNames(t *testing.T) {
	a, b := serviceName("a"), serviceName("b")
	label := strings.TrimSuffix(strings.TrimPrefix(a, "_"), "._udp")
	if a == b || a != serviceName("a") || len(label) > 15 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		t.Errorf("service names %q and %q", a, b)
	}
}

func TestMDNSHeedsTheGate(t *testing.T) {
	bad, good := peer.ID("bad"), peer.ID("good")
	var found []peer.ID
	n := startNode(t, func(o *Options) {
		o.Allow = func(p peer.ID) bool { return p != bad }
		o.Found = func(p peer.ID) { found = append(found, p) }
	})
	for _, p := range []peer.ID{bad, good, n.host.ID()} {
		(*notifee)(n.host).HandlePeerFound(peer.AddrInfo{ID: p, Addrs: DefaultListen()})
	}
	if len(found) != 1 || found[0] != good {
		t.Errorf("found %q, want only %q", found, good)
	}
}
