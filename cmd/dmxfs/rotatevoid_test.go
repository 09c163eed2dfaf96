package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/rotation"
)

// A cluster whose members have no room for one more change gets one, also after
// the daemon that made the others void was killed directly after that.
func TestRotateAfterManyThatNeverEnded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--tenure", "30s") // the one that stands still stays a member
	a, b := c.mounts[0], c.mounts[1]
	old := a.secret()
	many := nodestate.Secrets{Current: nodestate.Secret{Generation: 0, Secret: old}}
	for i := range rotation.MaxNext {
		many.Next = append(many.Next, nodestate.Secret{Generation: 1, Secret: strings.Repeat(fmt.Sprint(i), 64)})
	}
	kept, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.mounts {
		c.run("unmount", m.dir)
		if err := os.WriteFile(filepath.Join(m.state, "secrets"), kept, 0o600); err != nil {
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
