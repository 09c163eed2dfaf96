package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// abandoned is what daemons leave in a state directory that were killed in the
// middle of a change of the secret, as often as there is room for.
func abandoned(current string) nodestate.Secrets {
	k := nodestate.Secrets{Current: nodestate.Secret{Generation: 0, Secret: current}}
	for i := range maxNext {
		k.Next = append(k.Next, nodestate.Secret{Generation: 1, Secret: strings.Repeat(fmt.Sprint(i), 64)})
	}
	return k
}

// Changes that were begun and not ended become void when the present secret counts
// in their generation. A node that was killed meanwhile comes to the same.
func TestChangesBecomeVoid(t *testing.T) {
	old := strings.Repeat("o", 64)
	state := t.TempDir()
	begin := func(number uint64) (*clusterSecret, *[][]byte) {
		t.Helper()
		k, err := nodestate.ReadSecrets(state)
		if err != nil {
			t.Fatal(err)
		}
		used := new([][]byte)
		s := newClusterSecret(state, &register.Cluster{Generation: number, Secret: []byte(old)}, k)
		if err := s.keep(k); err != nil {
			t.Fatal(err)
		}
		s.bind(func(list [][]byte) { *used = list })
		return s, used
	}
	for _, killed := range []bool{false, true} {
		b, err := json.Marshal(abandoned(old))
		if err == nil {
			err = os.WriteFile(filepath.Join(state, nodestate.SecretsFile), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, used := begin(0)
		if err := s.prepare(1, strings.Repeat("n", 64)); err == nil || len(*used) != 1+maxNext {
			t.Errorf("one more than there is room for: %v, with %d", err, len(*used))
		}
		if killed {
			s, used = begin(1) // the storage says so when it starts
		} else if changed, err := s.counts(register.Generation{Number: 1, Fingerprint: register.Fingerprint([]byte(old))}); changed || err != nil {
			t.Errorf("void: %v %v", changed, err)
		}
		if n, f, pending := s.state(); n != 1 || f != register.Fingerprint([]byte(old)) || pending != 0 || len(*used) != 1 {
			t.Errorf("generation %d with %s, %d begun, %d used", n, f, pending, len(*used))
		}
		if k, err := nodestate.ReadSecrets(state); err != nil || k.Current != (nodestate.Secret{Generation: 1, Secret: old}) || len(k.Next) != 0 {
			t.Errorf("%+v %v", k, err)
		}
		if s.prepare(1, strings.Repeat("0", 64)) == nil || s.problem(time.Now().Add(time.Hour)) != nil {
			t.Error("one that is void goes on")
		}
		if err := s.prepare(2, strings.Repeat("n", 64)); err != nil {
			t.Error(err)
		}
	}
}

// Others become void within the time that the former secret counts, too: that
// has its end all the same.
func TestVoidEndsTheFormerSecret(t *testing.T) {
	s := &clusterSecret{dir: t.TempDir(), current: []byte(strings.Repeat("o", 64)), use: func([][]byte) {}}
	now := strings.Repeat("n", 64)
	err := errors.Join(s.prepare(1, now))
	_, err1 := s.counts(generation(1, "n"))
	_, err2 := s.counts(generation(2, "n"))
	if err := errors.Join(err, err1, err2); err != nil || s.former == nil {
		t.Fatalf("%v, the former one is %q", err, s.former)
	}
	s.finish(1)
	if n, secret := s.text(); n != 2 || secret != now || s.former != nil {
		t.Errorf("generation %d with %q; the former one is %q", n, secret, s.former)
	}
}

// A cluster whose members have no room for one more change gets one, also after
// the daemon that made the others void was killed directly after that.
func TestRotateAfterManyThatNeverEnded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--tenure", "30s") // the one that stands still stays a member
	a, b := c.mounts[0], c.mounts[1]
	old := a.secret()
	kept, err := json.Marshal(abandoned(old))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.mounts {
		c.run("unmount", m.dir)
		if err := os.WriteFile(filepath.Join(m.state, nodestate.SecretsFile), kept, 0o600); err != nil {
			t.Fatal(err)
		}
		m.mount()
	}
	c.awaitMembers(2)
	if one := strings.Repeat("0", 64); !a.reaches(one) {
		t.Fatal("a secret that may come to count is not taken")
	}
	b.signal(unix.SIGSTOP)
	cmd := c.cmd("secret", "rotate", a.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the others are void", func() bool {
		_, err := os.Stat(c.src + "/.dmxfs/secrets/0000000001")
		return err == nil
	})
	pid := a.daemon()
	a.signal(unix.SIGKILL)
	if err := cmd.Wait(); err == nil {
		t.Error("the order of a daemon that was killed succeeded")
	}
	b.signal(unix.SIGCONT)
	a.awaitNew(pid)
	c.awaitMembers(2)
	for _, m := range c.mounts {
		await(t, "nothing is begun", func() bool {
			k, err := nodestate.ReadSecrets(m.state)
			return err == nil && len(k.Next) == 0 && k.Current == nodestate.Secret{Generation: 1, Secret: old}
		})
		if m.secret() != old || m.reaches(strings.Repeat("0", 64)) || !m.reaches(old) {
			t.Errorf("%s does not go on with the secret before", m.dir)
		}
	}
	if v := b.rotate(2); v.Generation != 2 || a.secret() != b.secret() || a.secret() == old || a.reaches(old) {
		t.Errorf("%+v: %q, %q after %q", v, a.secret(), b.secret(), old)
	}
}
