package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// Tests over Linux's NFS server and two clients, each of them in a network and
// with a name of its own, so that they share nothing. They are run in
// user-mode Linux only: see uml_test.go.

var storageNFS = flag.String("storage.nfs", "", "TestNFS runs the tests of this `name`, a regular expression, in user-mode Linux; "+
	"after a slash, which parts of them (TestOverNFS/counters/ofd_anew)")

// inUMLArgs let a host stand still for a minute and keep its locks, as others do
// for 5 s: all hosts are in one user-mode Linux, for which a busy machine has a
// twentieth of a processor, and one that loses its locks would have EIO there.
var inUMLArgs = []string{"--tenure=1m"}

var nfsKinds = []clientKind{
	{name: "nfs3", git: 3, args: inUMLArgs, serve: func(t testing.TB, dir string) func(string) { return serveNFS(t, dir, "vers=3,nolock") }},
	{name: "nfs4", git: 3, args: inUMLArgs, serve: func(t testing.TB, dir string) func(string) { return serveNFS(t, dir, "vers=4.2") }},
}

// nfsSeconds has times in whole seconds, as old file systems do: what a client
// knows by the time of a directory is wrong for as long.
var nfsSeconds = clientKind{name: "nfs3 in seconds", args: inUMLArgs, serve: func(t testing.TB, dir string) func(string) {
	return serveNFS(t, dir, "vers=3,nolock", "-I", "128")
}}

// TestNFS runs the tests below.
func TestNFS(t *testing.T) {
	if *storageNFS == "" {
		t.Skip("takes minutes: see make storage-nfs")
	}
	needUML(t)
	for _, kind := range append(nfsKinds, nfsSeconds) {
		t.Run(kind.name, func(t *testing.T) {
			tests, parts, _ := strings.Cut(*storageNFS, "/")
			runUML(t, fmt.Sprintf("^(%s)$/^%s$/%s", tests, strings.ReplaceAll(kind.name, " ", "_"), parts))
		})
	}
}

func TestOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) { runOverStorage(t, kind) })
	}
}

// Names that were changed under a lock are seen under the next one.
func TestNamesOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range append(nfsKinds, nfsSeconds) {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			n := size(2, 20) * len(nameSteps)
			if kind.name == nfsSeconds.name {
				n = size(1, 4) * len(nameSteps)
			}
			a, b := c.mounts[0], c.mounts[1]
			if out, code := a.helper("names", strconv.Itoa(n), a.dir, b.dir).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
}

// A name that one host has looked for, and another one makes then, is seen
// soon without a lock, too: clients know for 30 s that there is none.
func TestNewNamesOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			a, b := c.mounts[0], c.mounts[1]
			for i := range 5 {
				name := fmt.Sprintf("new-%d", i)
				if _, err := os.Lstat(b.path(name)); !os.IsNotExist(err) {
					t.Fatal(err)
				}
				if _, err := os.ReadDir(b.dir); err != nil {
					t.Fatal(err)
				}
				write(t, a.path(name), "")
				began := time.Now()
				await(t, "the name is found", func() bool { _, err := os.Lstat(b.path(name)); return err == nil })
				await(t, "the name is listed", func() bool {
					list, _ := os.ReadDir(b.dir)
					return slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == name })
				})
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("%s was seen after %v", name, took)
				}
			}
		})
	}
}

// A view that has just been linked is listed, although the directory was listed
// in the same tick of the server's clock: membership rests on it.
func TestViewsOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range append(nfsKinds, nfsSeconds) {
		t.Run(kind.name, func(t *testing.T) {
			clients := newCluster(t, 0).clientsOf(kind, 2)
			views := filepath.Join(clients[0], ".dmxfs/views")
			if err := os.MkdirAll(views, 0o700); err != nil {
				t.Fatal(err)
			}
			root, err := os.Open(clients[1])
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			r := register.NewDir(root, clients[1], "peer")
			late := 0
			for e := range locks.Epoch(50) {
				writeFile(t, views, member.ViewName(e+1), "")
				l, err := r.Look(member.LookOp{Known: 1000}) // who knows of later ones reads none
				if err != nil {
					t.Fatal(err)
				}
				if l.Newest != e+1 {
					late++
				}
			}
			if late > 0 {
				t.Errorf("%d of 50 views were not listed", late)
			}
		})
	}
}

// What another host has written under a lock is seen under the next one, also
// where advice does not drop the page: here it is mapped below dmxfs, by a
// program that has the file open for writing, so that the client takes the
// change for its own.
func TestPagesInUseOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			a, b := c.mounts[0], c.mounts[1]
			write(t, a.path("data"), "000")
			f, err := os.OpenFile(filepath.Join(b.src, "data"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			page, err := unix.Mmap(int(f.Fd()), 0, 3, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Munmap(page) }()
			for i := range 20 {
				kept := page[2] // which makes it one that is in use
				want := fmt.Sprintf("%03d", i+1)
				if out, code := a.sh("flock data sh -c 'printf " + want + " | dd of=data conv=notrunc status=none'"); code != 0 {
					t.Fatal(out)
				}
				if out, _ := b.sh("flock data cat data"); out != want {
					t.Errorf("read %q, want %q; the page had %c", out, want, kept)
				}
			}
		})
	}
}

// What another host writes for the second time within one step of the server's
// clock is seen by who opens the file then, though it was read between the two.
func TestStepsOfTimeOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range append(nfsKinds, nfsSeconds) {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			a, b := c.mounts[0], c.mounts[1]
			// Who locks for itself on its host has no open lock to hand over.
			guard, err := os.Create(a.path("guard"))
			if err != nil {
				t.Fatal(err)
			}
			defer guard.Close()
			if err := unix.Flock(int(guard.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(a.path("data"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			stale := 0
			const n = 60
			for i := range n {
				want := fmt.Sprintf("%03d", i)
				if _, err := f.WriteAt([]byte(want), 0); err != nil {
					t.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				if got := read(t, b.path("data")); got != want {
					stale++
				}
			}
			if stale > 0 {
				t.Errorf("%d of %d writes were not seen", stale, n)
			}
		})
	}
}

// A directory that another host has removed and made anew is the new one, though
// the client knows the old one, and the server may have given both one number.
func TestRemadeDirsOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			a, b := c.mounts[0], c.mounts[1]
			for i := range 20 {
				if err := os.MkdirAll(a.path("x/y"), 0o755); err != nil {
					t.Fatal(err)
				}
				name, want := fmt.Sprint("x/y/f", i%2), fmt.Sprint(i)
				write(t, a.path(name), want)
				if got, err := os.ReadFile(b.path(name)); err != nil || string(got) != want {
					t.Errorf("round %d: read %q, want %q: %v", i, got, want, err)
				}
				if err := os.Mkdir(b.path("x/y/d"), 0o755); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
				list, err := os.ReadDir(b.path("x/y"))
				if err != nil || len(list) != 2 {
					t.Errorf("round %d: listed %v: %v", i, list, err)
				}
				await(t, "it is removed", func() bool { return os.RemoveAll(a.path("x")) == nil })
			}
		})
	}
}

// A directory can be removed, or replaced, as soon as the last of its files was
// removed and closed, by the host that did it and by another one: dmxfs has files
// open a little longer, and the client keeps them for it.
func TestEmptiedDirsOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			a, b := c.mounts[0], c.mounts[1]
			for i := range 30 {
				dir := fmt.Sprint("d", i)
				if err := os.Mkdir(a.path(dir), 0o755); err != nil {
					t.Fatal(err)
				}
				f, err := os.Create(a.path(dir + "/f"))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(f.Name()); err != nil {
					t.Fatal(err)
				}
				f.Close()
				switch i % 3 {
				case 0:
					err = unix.Rmdir(a.path(dir))
				case 1:
					err = unix.Rmdir(b.path(dir))
				case 2:
					if err := os.Mkdir(a.path("e"), 0o755); err != nil {
						t.Fatal(err)
					}
					err = unix.Rename(a.path("e"), a.path(dir))
					_ = os.Remove(a.path("e"))
				}
				if err != nil {
					t.Errorf("round %d: %v", i, err)
				}
			}
		})
	}
}

// There is always a file of a name that is given to another one by rename(2): the
// client does not move one out of the way first that dmxfs merely knows, as it does
// with one that is open.
func TestReplacedOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 1)
			a := c.mounts[0]
			seen, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(seen)
			export := filepath.Join(c.dir, "export")
			if _, err := unix.InotifyAddWatch(seen, export, unix.IN_MOVED_FROM); err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				name := fmt.Sprint("f", i)
				writeFile(t, export, name, "old")
				if _, err := os.Stat(a.path(name)); err != nil {
					t.Fatal(err)
				}
				write(t, a.path("new"), "new")
				if err := os.Rename(a.path("new"), a.path(name)); err != nil {
					t.Fatal(err)
				}
			}
			b := make([]byte, 1<<16)
			k, err := unix.Read(seen, b)
			if err != nil {
				t.Fatal(err)
			}
			var moved []string
			for b = b[:k]; len(b) > 0; {
				size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
				moved = append(moved, strings.TrimRight(string(b[unix.SizeofInotifyEvent:size]), "\x00"))
				b = b[size:]
			}
			// Those that are alike are told once.
			if want := []string{"new"}; !slices.Equal(slices.Compact(moved), want) {
				t.Errorf("on the server lost their names %v, want %v", moved, want)
			}
		})
	}
}

// A file that loses one of its names leaves nothing in the place of that, and a
// directory whose files are removed is empty.
func TestRemovedOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2, "--listing-age=0s")
			a, b := c.mounts[0], c.mounts[1]
			if out, code := a.sh("mkdir d && cd d && for i in $(seq 20); do echo $i >tmp; ln tmp f$i; rm tmp; echo $i >tmp; ln tmp g$i; mv f$i tmp; done"); code != 0 {
				t.Fatal(out)
			}
			await(t, "nothing is in the place of names that were removed", func() bool {
				left, err := filepath.Glob(filepath.Join(a.src, "d", ".nfs*"))
				return err == nil && len(left) == 0
			})
			for i := range 5 {
				if out, code := b.sh("test $(cat d/g7) = 7 && cp -r d e && mkdir e/h && echo >e/h/i && cat e/* >/dev/null 2>&1; rm -r e"); code != 0 {
					t.Errorf("time %d: %s", i, out)
				}
			}
		})
	}
}

func TestDoctorOverNFS(t *testing.T) {
	inUML(t)
	for _, kind := range nfsKinds {
		t.Run(kind.name, func(t *testing.T) { runDoctorOverStorage(t, kind) })
	}
}

// nfsState is where the programs of the server keep what they know. It is
// empty at the start, so that the server knows of no client that it would have
// to wait for.
const nfsState = "/var/lib/nfs"

// serveNFS serves a file system on a disk of its own; the result mounts it.
func serveNFS(t testing.TB, dir, options string, mkfs ...string) (client func(mountpoint string)) {
	t.Helper()
	const disk = "/dev/ram0"
	export, pipes := filepath.Join(dir, "export"), nfsState+"/rpc_pipefs"
	n := newNetwork(t)
	ns, addr := n.host()
	inside := func(args ...string) []string { return append([]string{"nsenter", "--net=/run/netns/" + ns}, args...) }
	mounted := func(args ...string) {
		t.Helper()
		// Those of the server are of the network in which they are mounted.
		command(t, inside(append([]string{"mount"}, args...)...)...)
		t.Cleanup(func() { unmountIdle(t, args[len(args)-1]) })
	}
	command(t, append([]string{"mkfs.ext4", "-q", "-F", disk}, mkfs...)...)
	makeDirs(t, dir, "export")
	mounted(disk, export)
	mounted("-t", "tmpfs", "state", nfsState)
	makeDirs(t, nfsState, "nfsdcld", "rpc_pipefs")
	makeDirs(t, "/run", "rpcbind")
	for _, name := range []string{"etab", "rmtab"} {
		writeFile(t, nfsState, name, "")
	}
	mounted("-t", "nfsd", "nfsd", "/proc/fs/nfsd")
	mounted("-t", "rpc_pipefs", "pipes", pipes)

	runs := func(args ...string) { runServer(t, filepath.Join(dir, args[0]+".log"), inside(args...)...) }
	runs("rpcbind", "-f", "-w")
	runs("nfsdcld", "-F", "-p", pipes)
	asks := inside("rpcinfo")
	await(t, "rpcbind answers", func() bool { return exec.Command(asks[0], asks[1:]...).Run() == nil })
	await(t, "nfsdcld is ready", func() bool { _, err := os.Stat(nfsState + "/nfsdcld/main.sqlite"); return err == nil })
	command(t, inside("exportfs", "-o", "rw,sync,no_root_squash,no_subtree_check,fsid=0,insecure", "*:"+export)...)
	runs("rpc.mountd", "-F")
	serves := []string{"rpc.nfsd", "8"}
	if strings.HasPrefix(options, "vers=4") {
		// With NFS 3 comes a lock manager, which lets nobody lock for its first 50 s.
		serves = []string{"rpc.nfsd", "--no-nfs-version", "3", "8"}
	}
	command(t, inside(serves...)...)
	t.Cleanup(func() {
		command(t, inside("rpc.nfsd", "0")...)
		command(t, inside("exportfs", "-ua")...)
	})
	path := export
	if strings.HasPrefix(options, "vers=4") {
		path = "/"
	}
	return func(mountpoint string) {
		t.Helper()
		ns, _ := n.host()
		// The name of its host is what an NFS 4 client is known by.
		command(t, "nsenter", "--net=/run/netns/"+ns, "unshare", "--uts", "sh", "-c", `hostname "$1" && shift && exec "$@"`, "sh", ns,
			"mount", "-t", "nfs", "-o", options, addr+":"+path, mountpoint)
		t.Cleanup(func() { unmountIdle(t, mountpoint) })
	}
}

// unmountIdle unmounts what may still be in use for a moment.
func unmountIdle(t testing.TB, mountpoint string) {
	t.Helper()
	await(t, mountpoint+" is unmounted", func() bool { return unix.Unmount(mountpoint, 0) != unix.EBUSY })
}

// command runs a program, which must succeed.
func command(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out))
	}
}
