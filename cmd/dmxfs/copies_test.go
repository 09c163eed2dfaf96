package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// inCopy runs a shell command in a mount namespace of its own, which has a copy
// of the mount that nothing here takes away.
func (m *testMount) inCopy(command string) *proc {
	m.c.t.Helper()
	needTool(m.c.t, "unshare")
	p := &proc{t: m.c.t, cmd: exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "cd "+m.dir+" && "+command), done: make(chan struct{})}
	p.runIn("/")
	return p
}

// A mount ends with its daemon and its membership whoever has copies of it: by
// unmount, by SIGTERM of the daemon, and by SIGTERM when umount(8) has taken the
// mount away before. The copies fail from then on.
func TestUnmountEndsCopies(t *testing.T) {
	for what, end := range map[string]func(m *testMount){
		"unmount": func(m *testMount) { m.c.run("unmount", m.dir) },
		"SIGTERM": func(m *testMount) { m.signal(unix.SIGTERM) },
		"umount": func(m *testMount) {
			if err := unix.Unmount(m.dir, 0); err != nil {
				m.c.t.Error(err)
			}
			if _, err := m.c.try("unmount", m.dir); code(err) != exitcode.Busy || !strings.Contains(err.Error(), fmt.Sprint("process ", m.daemon())) {
				m.c.t.Errorf("unmount after umount: %v", err)
			}
			m.signal(unix.SIGTERM)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2)
			a, b := c.mounts[0], c.mounts[1]
			pids := []int{a.daemon(), a.watcher}
			p := a.inCopy("exec 3>f && flock 3 && echo has it && until ! echo more >&3; do sleep 0.1; done; ls f")
			a.held("f", 1)
			end(a)
			if !a.ended(pids) {
				t.Errorf("the processes %v have not ended", pids)
			}
			if a.mounted() {
				t.Error("the mount is there still")
			}
			if out, code := b.sh("flock f true"); code != 0 {
				t.Errorf("the lock of the copy: %d %s", code, out)
			}
			await(t, "the other host is alone", func() bool { return b.live(1) })
			p.ends("who uses the copy")
			if out := p.out.String(); !strings.Contains(out, "Transport endpoint is not connected") {
				t.Errorf("who uses the copy was told: %s", out)
			}
		})
	}
}
