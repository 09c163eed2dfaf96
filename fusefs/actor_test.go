package fusefs

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func TestGroupsOfAProgram(t *testing.T) {
	for _, n := range []int{0, 1, 300, 65536} {
		var want []int
		var line strings.Builder
		for g := range n {
			want = append(want, 100_000+g)
			fmt.Fprint(&line, 100_000+g, " ")
		}
		got := groupsIn([]byte("Name:\tGroups:\nUid:\t1\nGroups:\t" + line.String() + "\nNStgid:\t1\n"))
		if !slices.Equal(got, want) {
			t.Errorf("%d groups of %d", len(got), n)
		}
	}
}

// A daemon that is not root, but has its capabilities, acts as root for programs
// that are, and has its capabilities afterwards.
func TestCapabilitiesComeBackFromRoot(t *testing.T) {
	needRoot(t)
	failed := make(chan string)
	go func() {
		defer close(failed)
		runtime.LockOSThread() // and never unlocked: the thread ends
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			failed <- err.Error()
			return
		}
		const user = 1234
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); e != 0 {
			failed <- e.Error()
			return
		}
		c := ownCredentials()
		c.raise()
		f := &actor{self: ownCredentials()}
		root := &fuse.InHeader{}
		for name, act := range map[string]func() error{
			"charged": func() error { return f.charged(root, func() error { return nil }) },
			"as":      func() error { return f.as(root, idsOnly, func() error { return nil }) },
		} {
			if err := act(); err != nil {
				failed <- err.Error()
			}
			if got := ownCredentials().effective(); got != *f.self.caps {
				failed <- fmt.Sprintf("after %s: %+v, of %+v", name, got, *f.self.caps)
			}
			f.self.raise()
		}
	}()
	for s := range failed {
		t.Error(s)
	}
}

// effective are the capabilities that this thread has in effect.
func (credentials) effective() (caps [2]unix.CapUserData) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_ = unix.Capget(&hdr, &caps[0])
	return caps
}
