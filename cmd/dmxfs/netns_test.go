package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// network is a switch with a network namespace for each host, so that a test
// can cut any of them off, and nothing outside sees anything of it.
type network struct {
	t      testing.TB
	prefix string
	hosts  int
}

var networks atomic.Int32

// newNetwork makes a network. It is taken away at the end of the test.
func newNetwork(t testing.TB) *network {
	t.Helper()
	needMounts(t)
	needTool(t, "ip", "iptables", "nsenter")
	n := &network{t: t, prefix: fmt.Sprintf("dmxfs-%d-%d-", os.Getpid(), networks.Add(1))}
	n.namespace("switch")
	n.ip("-n", n.prefix+"switch", "link", "add", "br0", "type", "bridge")
	n.ip("-n", n.prefix+"switch", "link", "set", "br0", "up")
	return n
}

// namespace makes a network namespace and returns its name.
func (n *network) namespace(name string) string {
	n.t.Helper()
	n.ip("netns", "add", n.prefix+name)
	n.t.Cleanup(func() { n.ip("netns", "del", n.prefix+name) })
	return n.prefix + name
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// host makes a namespace with an interface on the switch.
func (n *network) host() (ns, addr string) {
	n.t.Helper()
	n.hosts++
	addr = fmt.Sprintf("10.77.0.%d", n.hosts)
	ns = n.namespace(fmt.Sprint(n.hosts))
	port := fmt.Sprintf("port%d", n.hosts)
	n.ip("-n", n.prefix+"switch", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
	n.ip("-n", n.prefix+"switch", "link", "set", port, "master", "br0", "up")
	n.ip("-n", ns, "addr", "add", addr+"/24", "dev", "eth0")
	n.ip("-n", ns, "link", "set", "eth0", "up")
	n.ip("-n", ns, "link", "set", "lo", "up")
	return ns, addr
}

// newNetCluster is newCluster with each daemon on a host of its own.
func newNetCluster(t testing.TB, n int, args ...string) *testCluster {
	t.Helper()
	c := newCluster(t, 0)
	c.net = newNetwork(t)
	for range n {
		c.addHost(args...).mount()
	}
	c.awaitMembers(n)
	return c
}

// addHost prepares one more mount, on a host of its own.
func (c *testCluster) addHost(args ...string) *testMount {
	c.t.Helper()
	ns, addr := c.net.host()
	m := c.add(append(slices.Clone(args), "--listen", "/ip4/"+addr+"/tcp/0")...)
	m.ns, m.addr = ns, addr
	return m
}

// deaf makes m hear nothing of the others, nor them of what it says if both.
func (m *testMount) deaf(both bool, others ...*testMount) {
	m.c.t.Helper()
	for _, o := range others {
		m.iptables("-A", "INPUT", "-s", o.addr, "-j", "DROP")
		if both {
			m.iptables("-A", "OUTPUT", "-d", o.addr, "-j", "DROP")
		}
	}
}

// cut parts m from others.
func (m *testMount) cut(others ...*testMount) { m.deaf(true, others...) }

// heal ends what deaf and cut did to m.
func (m *testMount) heal() { m.iptables("-F") }

func (m *testMount) iptables(args ...string) {
	m.c.t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + m.ns, "iptables", "-w"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.c.t.Fatalf("iptables %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
