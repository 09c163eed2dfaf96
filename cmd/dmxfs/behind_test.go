package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/long"
)

// changeLater is a helper that writes FILE through a handle, and when the file
// GO is there, makes a CALL.
func changeLater(args []string) error {
	name, begin, call := args[0], args[1], args[2]
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("a"); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(begin); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		waitALittle()
	}
	switch call {
	case "truncate":
		return os.Truncate(name, 5)
	case "ftruncate":
		return f.Truncate(5)
	default:
		_, err := f.WriteString("b")
		return err
	}
}

// A host keeps writing a file, and a program of another host waits for it in a
// call for which Linux holds the lock of the inode. Who removes the file there, or
// puts another one in its place, does not wait as long; nor does who lists the
// directory, and SIGKILL ends all of them.
func TestNobodyStandsBehindAWait(t *testing.T) {
	t.Parallel()
	needMounts(t)
	// Longer than the other host's program rests on a busy machine.
	c := newCluster(t, 2, "--yield", "1s", "--hold", "500ms")
	a, b := c.mounts[0], c.mounts[1]
	for i, call := range []string{"truncate", "ftruncate", "write"} {
		for j, other := range []string{"rm d/f", "mv d/g d/f", "killed"} {
			if i != j && !long.Tests() {
				continue // each of both at least once
			}
			t.Run(call+"/"+other, func(t *testing.T) {
				a.sh("mkdir d; echo content > d/f; echo g > d/g")
				defer a.sh("rm -r d")
				begin := filepath.Join(t.TempDir(), "go")
				waits := a.helper("change-later", "d/f", begin, call)
				a.held("d/f", 1)
				writer := b.start("exec 3>>d/f; while :; do echo x >&3; done")
				await(t, "the other host has the file", func() bool {
					return slices.ContainsFunc(b.locks(), func(l admin.Lock) bool { return l.Path == "d/f" && l.State == "held" && l.Command == "sh" })
				})
				await(t, "it writes: one that has not yet gives way at once", func() bool {
					b, err := os.ReadFile(filepath.Join(c.src, "d/f"))
					return err == nil && bytes.Contains(b, []byte("x\n"))
				})
				if err := os.WriteFile(begin, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				a.blocked("d/f", 1)
				behind := a.start(map[bool]string{false: other, true: "rm d/f"}[other == "killed"])
				if other == "killed" {
					behind.signal(unix.SIGKILL)
				}
				behind.ends(other + " does not wait for the other host")
				a.start("ls -l d").ends("ls does not")
				waits.signal(unix.SIGKILL)
				waits.ends("who waits is killed")
				if writer.ended() {
					t.Error("the other host does not write any more")
				}
				writer.signal(unix.SIGKILL)
				writer.ends("the other host's program")
			})
		}
	}
}
