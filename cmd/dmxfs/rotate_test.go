package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/p2p"
)

// rotate changes the secret, and checks that all n members have the new one.
func (m *testMount) rotate(n int) admin.Rotated {
	m.c.t.Helper()
	var v admin.Rotated
	if err := json.Unmarshal([]byte(m.c.run("secret", "rotate", "--json", "--reason", "leaked", m.dir)), &v); err != nil {
		m.c.t.Fatal(err)
	}
	if len(v.Members) != n {
		m.c.t.Errorf("of %d members: %+v", n, v)
	}
	for _, x := range v.Members {
		if x.State != "changed" || x.Host == "" || strings.Contains(x.Host, x.ID) {
			m.c.t.Errorf("%+v", v)
		}
	}
	return v
}

func (m *testMount) secret() string {
	m.c.t.Helper()
	return strings.TrimSpace(m.c.run("secret", "show", m.dir))
}

// newStranger is a host that has a secret and is no member. It is there until
// the end of the test.
func newStranger(t testing.TB, secret string) (*p2p.Host, *p2p.Transport, context.Context) {
	t.Helper()
	s, err := p2p.ParseSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	id, err := p2p.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	h, err := p2p.NewHost(p2p.Options{Identity: id, Secret: s, Listen: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/0")}})
	if err != nil {
		t.Fatal(err)
	}
	network := p2p.NewTransport(h, p2p.Handlers{}, nil)
	done := make(chan error, 1)
	ctx, stop := contextWithStop()
	go func() { done <- network.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	<-h.Ready()
	return h, network, ctx
}

// reaches reports whether a stranger who has a secret can connect to the daemon
// of a mount.
func (m *testMount) reaches(secret string) bool {
	t := m.c.t
	t.Helper()
	h, _, ctx := newStranger(t, secret)
	v := m.peers()
	to, err := peer.Decode(v.Self)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range v.Members {
		if x.ID == v.Self {
			for _, a := range x.Addrs {
				h.SetAddrs(peer.AddrInfo{ID: to, Addrs: []ma.Multiaddr{ma.StringCast(a)}})
			}
		}
	}
	return h.Connect(ctx, to) == nil
}

// The secret is changed while locks are held. Who was revoked has the old one,
// and is out for good; members are not concerned; those that come later need
// the new one.
func TestRotateTheSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b, gone := c.mounts[0], c.mounts[1], c.mounts[2]
	old := strings.TrimSpace(read(t, c.src+"/.dmxfs/secret"))
	if got := a.secret(); got != old {
		t.Errorf("the secret is shown as %q", got)
	}
	var holds []*proc
	for i, m := range []*testMount{a, b} {
		file := string(rune('f' + i))
		holds = append(holds, m.helper("append", "flock", file, "x", "0"))
		await(t, "the holder has written", func() bool { return c.size(file) > 100 })
	}
	await(t, "who has the secret can connect", func() bool { return a.reaches(old) })
	c.run("peers", "revoke", gone.peers().Self, a.dir, "--reason", "stolen", "--yes")
	v := a.rotate(2) // the epoch of the view without that one need not have begun
	await(t, "it has gone", func() bool { return a.live(2) && b.live(2) && gone.daemon() == 0 && !alive(gone.watcher) })
	epoch := a.peers().Epoch
	if v.Generation != 1 || a.secret() != b.secret() || a.secret() == old || len(a.secret()) != 64 {
		t.Errorf("%+v: the secrets are %q and %q, after %q", v, a.secret(), b.secret(), old)
	}
	for i, file := range []string{"f", "g"} {
		size := c.size(file)
		await(t, "the holder writes on", func() bool { return c.size(file) > size+100 })
		if holds[i].ended() {
			t.Errorf("it has ended: %s", holds[i].out.String())
		}
	}
	if got := a.peers().Epoch; got != epoch {
		t.Errorf("epoch %d became %d", epoch, got)
	}
	for _, m := range []*testMount{a, b} {
		if rows := m.journal("--event", "lost,fenced"); len(rows) != 0 {
			t.Errorf("locks were lost: %+v", rows)
		}
		m.noted("note", "the secret of the cluster was changed")
		if m.reaches(old) {
			t.Error("the old secret is taken still")
		}
		if !m.reaches(a.secret()) {
			t.Error("the new secret is not taken")
		}
		if s, err := m.status(); err != nil || !s.Healthy {
			t.Errorf("status: %+v %v", s, err)
		}
		kept := filepath.Join(m.state, "secrets")
		if st, err := os.Stat(kept); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", kept, st, err)
		}
	}
	if out := c.grep(a.secret(), c.src); out != "" {
		t.Errorf("the new secret is on the storage, in %s", out)
	}

	for _, h := range holds {
		h.signal(unix.SIGKILL)
		h.ends("the holder")
	}
	c.staysOut(gone, old)
	c.comesBackAfterRotation(a, b)
}

// staysOut checks that a mount that was revoked cannot be made again, by no
// identity, with nothing but what its host knows.
func (c *testCluster) staysOut(gone *testMount, old string) {
	t := c.t
	t.Helper()
	file := filepath.Join(c.dir, "old-secret")
	write(t, file, old)
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(gone.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{gone.state, filepath.Join(c.dir, "state-of-a-thief")} {
		for _, args := range [][]string{nil, {"--secret", file}} {
			gone.state, gone.args = state, args
			if err := gone.tryMount(); code(err) != exitcode.Refused || !strings.Contains(err.Error(), "secret") {
				t.Errorf("%s %v: a revoked peer mounts: %v", state, args, err)
			}
		}
	}
}

// comesBackAfterRotation: members are found again by what they have kept, and
// another host by what it is given.
func (c *testCluster) comesBackAfterRotation(a, b *testMount) {
	t := c.t
	t.Helper()
	pid := a.daemon()
	a.signal(unix.SIGKILL)
	a.awaitNew(pid)
	c.run("unmount", b.dir)
	b.mount()
	c.awaitMembers(2)
	d := c.add()
	if err := d.tryMount(); code(err) != exitcode.Refused || !strings.Contains(err.Error(), "dmxfs secret show") {
		t.Errorf("without the new secret: %v", err)
	}
	file := filepath.Join(c.dir, "new-secret")
	write(t, file, a.secret()+"\n")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	d.args = []string{"--secret", file}
	d.mount()
	c.awaitMembers(3)
	// Once more: what is in the file is a former one now.
	if v := d.rotate(3); v.Generation != 2 {
		t.Errorf("%+v", v)
	}
	c.run("unmount", d.dir)
	d.mount()
	c.awaitMembers(3)
	if log := d.log(); !strings.Contains(log, "a former one of the cluster") {
		t.Error("the log does not say that the file of --secret is old")
	}
}

// If one member does not answer nothing is changed; and whatever is killed in
// between, the members find each other again, and the next try succeeds.
func TestRotateNeedsAllMembers(t *testing.T) {
	t.Parallel()
	long.NoTurn(t)
	c := newCluster(t, 3, "--tenure", "30s") // the one that stands still stays a member
	a, b, d := c.mounts[0], c.mounts[1], c.mounts[2]
	old := a.secret()
	// One is killed while it waits for the one that does not answer. That comes first:
	// when the connection has been given up, nobody waits any more.
	b.signal(unix.SIGSTOP)
	cmd := c.cmd("secret", "rotate", a.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "another one has the new secret", func() bool { k, err := nodestate.ReadSecrets(d.state); return err == nil && len(k.Next) > 0 })
	pid := a.daemon()
	a.signal(unix.SIGKILL)
	if err := cmd.Wait(); err == nil {
		t.Error("the order of a daemon that was killed succeeded")
	}
	b.signal(unix.SIGCONT)
	a.awaitNew(pid)
	c.awaitMembers(3)
	if got := a.secret(); got != old {
		t.Errorf("the secret is %q, and was %q", got, old)
	}
	dead := d.daemon()
	d.signal(unix.SIGKILL)
	d.awaitNew(dead)
	c.awaitMembers(3)
	b.rotate(3)
	for _, m := range c.mounts {
		if got := m.secret(); got == old || got != b.secret() {
			t.Errorf("%s has the secret %q, want %q", m.dir, got, b.secret())
		}
		if m.reaches(old) {
			t.Error("the old secret is taken still")
		}
	}
	now := a.secret()
	b.signal(unix.SIGSTOP)
	_, err := c.try("secret", "rotate", a.dir)
	b.signal(unix.SIGCONT)
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), b.identity()) {
		t.Errorf("without an answer of one: %v", err)
	}
	for _, m := range c.mounts {
		if got := m.secret(); got != now {
			t.Errorf("%s has the secret %q, want %q", m.dir, got, now)
		}
	}
}

func contextWithStop() (context.Context, func()) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// identity is the ID of the daemon, which need not answer.
func (m *testMount) identity() string {
	m.c.t.Helper()
	id, err := p2p.LoadIdentity(m.state)
	if err != nil {
		m.c.t.Fatal(err)
	}
	return id.ID().String()
}

// grep names a file below dir that has a text in it.
func (c *testCluster) grep(text, dir string) string {
	out, _ := exec.Command("grep", "-rl", text, dir).Output()
	return string(out)
}
