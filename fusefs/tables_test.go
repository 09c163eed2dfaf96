package fusefs

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

func TestLockErrno(t *testing.T) {
	open := make(chan struct{})
	wrapped := func(err error) error { return fmt.Errorf("key open:i7: %w", err) }
	for _, c := range []struct {
		err    error
		cancel <-chan struct{}
		want   unix.Errno
	}{
		{nil, open, 0},
		{locks.ErrWouldBlock, open, unix.EAGAIN},
		{locks.ErrInterrupted, closedChan, unix.EINTR},
		{locks.ErrInterrupted, open, unix.EIO}, // the kernel did not ask for it
		{locks.ErrInterrupted, nil, unix.EIO},
		{locks.ErrTimeout, open, unix.ETIMEDOUT},
		{locks.ErrDeadlock, open, unix.EDEADLK},
		{locks.ErrUnavailable, open, unix.ENOLCK},
		{locks.ErrLost, open, unix.EIO},
		{locks.ErrLost, closedChan, unix.EIO},
		{fmt.Errorf("anything"), open, unix.EIO},
	} {
		err := c.err
		if err != nil {
			err = wrapped(err)
		}
		if got := lockErrno(err, c.cancel); got != fuse.Status(c.want) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestStatusIsWhatTheKernelTakes(t *testing.T) {
	for errno := range 5000 {
		st := status(unix.Errno(errno))
		if st < 0 || st >= maxErrno || st == fuse.ENOSYS || st == fuse.EINTR {
			t.Errorf("errno %d becomes %v", errno, st)
		}
		if ordinary := errno > 0 && errno < 134; ordinary && st != fuse.Status(errno) &&
			errno != int(unix.ENOSYS) && errno != int(unix.EINTR) {
			t.Errorf("errno %d becomes %v", errno, st)
		}
	}
	if st := status(fmt.Errorf("wrapped: %w", unix.ENOSPC)); st != fuse.Status(unix.ENOSPC) {
		t.Error(st)
	}
	if st := status(fmt.Errorf("no number")); st != fuse.EIO {
		t.Error(st)
	}
	if status(nil) != fuse.OK {
		t.Error("nil is an error")
	}
}

func TestParseMountOptions(t *testing.T) {
	for _, c := range []struct {
		in    string
		flags uintptr
		words string
		other MountOptions
	}{
		{"", unix.MS_NOSUID | unix.MS_NODEV, "", MountOptions{}},
		{"ro,noatime", unix.MS_RDONLY | unix.MS_NOATIME | unix.MS_NOSUID | unix.MS_NODEV, "noatime ro", MountOptions{}},
		{"ro,rw", unix.MS_NOSUID | unix.MS_NODEV, "rw", MountOptions{}},
		{"suid,dev,noexec", unix.MS_NOEXEC, "dev noexec suid", MountOptions{}},
		{"defaults,_netdev,nofail,x-systemd.automount,x-foo=bar,noauto,user,comment=hi,default_permissions",
			unix.MS_NOSUID | unix.MS_NODEV, "", MountOptions{}},
		{"allow_other,fsname=a=b,subtype=x", unix.MS_NOSUID | unix.MS_NODEV, "",
			MountOptions{AllowOther: true, Source: "a=b", Subtype: "x"}},
		{`context="system_u:object_r:t:s0:c1,c2",max_read=65536`, unix.MS_NOSUID | unix.MS_NODEV,
			`context="system_u:object_r:t:s0:c1,c2" max_read=65536`, MountOptions{}},
	} {
		m, err := ParseMountOptions([]string{c.in})
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		words := slices.DeleteFunc(m.words(), func(w string) bool { return w == "" })
		if m.flags() != c.flags || strings.Join(words, " ") != c.words ||
			m.AllowOther != c.other.AllowOther || m.Source != c.other.Source || m.Subtype != c.other.Subtype {
			t.Errorf("%s: flags %#x words %q %+v", c.in, m.flags(), words, m)
		}
	}
	m, err := ParseMountOptions([]string{"ro", "noatime,dev"})
	if err != nil || !m.ReadOnly() || m.flags()&unix.MS_NODEV != 0 {
		t.Errorf("%+v %v", m, err)
	}
	for in, want := range map[string]string{
		"bogus":        `"bogus"`,
		"uid=0":        `"uid=0"`,
		"allow_root":   "allow_other",
		"max_read":     "needs a value",
		"max_read=":    "needs a value",
		"max_read=1":   "4096",
		"max_read=64k": "max_read=64k",
		"fsname=":      "needs a value",
		"comment":      `"comment"`,
		"ro=1":         `"ro=1"`,
	} {
		if _, err := ParseMountOptions([]string{"rw", in}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func FuzzParseMountOptions(f *testing.F) {
	f.Add("ro,context=\"a,b\",x-y")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMountOptions([]string{s})
		if err != nil {
			return
		}
		// What fusermount3 is told means the same again.
		again, err := ParseMountOptions(m.words())
		if err != nil || again.flags() != m.flags() {
			t.Errorf("%q: %q: %v", s, m.words(), err)
		}
	})
}

func TestStorageTable(t *testing.T) {
	line := func(s string) mountinfo.Mount {
		m, ok := mountinfo.ParseLine(s)
		if !ok {
			t.Fatalf("not understood: %s", s)
		}
		return m
	}
	for _, c := range []struct {
		mount string
		magic int64
		want  Storage
	}{
		{"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw", unix.EXT4_SUPER_MAGIC,
			Storage{Type: "ext4", StableInodes: true}},
		{"36 35 0:50 / /n rw shared:1 - nfs4 srv:/x rw,vers=4.2,nocto", unix.NFS_SUPER_MAGIC,
			Storage{Type: "nfs4", StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, SillyRenames: true, LocksZap: true, ListingAge: time.Minute}},
		{"36 35 0:50 / /n rw shared:1 - nfs4 srv:/x rw,vers=4.2,soft,nocto,acdirmax=7,timeo=600", unix.NFS_SUPER_MAGIC,
			Storage{Type: "nfs4", StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, SillyRenames: true, LocksZap: true, Soft: true, ListingAge: 7 * time.Second}},
		{"36 35 0:50 / /n rw - nfs srv:/x rw,softerr,actimeo=0", unix.NFS_SUPER_MAGIC,
			Storage{Type: "nfs", StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, DataByTime: true, SillyRenames: true, Soft: true}},
		{"36 35 0:50 / /n rw - nfs srv:/x rw,vers=3,nolock,local_lock=all", unix.NFS_SUPER_MAGIC,
			Storage{Type: "nfs", StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, DataByTime: true, SillyRenames: true, LocksZap: true}},
		{"36 35 0:50 / /n rw - nfs srv:/x rw,vers=3,local_lock=flock", unix.NFS_SUPER_MAGIC,
			Storage{Type: "nfs", StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, DataByTime: true, SillyRenames: true}},
		{"36 35 0:50 / /n rw - nfs srv:/x rw,vers=3", unix.NFS_SUPER_MAGIC,
			Storage{Type: "nfs", StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, DataByTime: true, SillyRenames: true}},
		{"36 35 0:50 / /n rw - fuse.sshfs u@h: rw", unix.FUSE_SUPER_MAGIC,
			Storage{Type: "fuse.sshfs", ClientCache: true, Userspace: true, KeepsNames: true, Remote: true, ListingAge: 25 * time.Second}},
		{"36 35 0:50 / /n rw - fuse.glusterfs h:v rw", unix.FUSE_SUPER_MAGIC,
			Storage{Type: "fuse.glusterfs", StableInodes: true, ClientCache: true, Userspace: true, Lingers: true, Remote: true}},
		{"36 35 0:50 / /n rw - fuse.s3fs b rw", unix.FUSE_SUPER_MAGIC,
			Storage{Type: "fuse.s3fs", ClientCache: true, Userspace: true, Remote: true, ListingAge: time.Minute}},
		{"36 35 0:50 / /n rw - ceph a:/ rw", 0x00c36400,
			Storage{Type: "ceph", StableInodes: true, Remote: true}},
		{"36 35 0:50 / /n rw - newfs a rw", 0x1234,
			Storage{Type: "newfs", ClientCache: true, Remote: true, ListingAge: time.Minute}},
	} {
		c.want.Known = c.want.Type != "newfs"
		if got := storageOf(line(c.mount), c.magic); got != c.want {
			t.Errorf("%s: %+v", c.mount, got)
		}
	}
	if got := storageOf(mountinfo.Mount{}, unix.BTRFS_SUPER_MAGIC); !got.StableInodes || got.Type != "btrfs" {
		t.Errorf("a subvolume: %+v", got)
	}
	if got := storageOf(mountinfo.Mount{}, 0x1234); got.StableInodes || !got.ClientCache || got.Type != "0x1234" {
		t.Errorf("unknown: %+v", got)
	}
	d, err := os.Open("/proc")
	must(t, err)
	defer d.Close()
	s, err := StorageOf(int(d.Fd()))
	if err != nil || s.Type != "proc" || s.StableInodes {
		t.Errorf("/proc: %+v %v", s, err)
	}
}

// A FUSE file system may say what it is by its source, or by what is in its
// root. These are lines of real mounts.
func TestStorageThatIsOnlyFuse(t *testing.T) {
	for line, want := range map[string]string{
		`42 27 0:39 / /m rw,nosuid,nodev,relatime - fuse mfs\043127.0.0.1:9421 rw,user_id=0,group_id=0,allow_other`: "fuse.moosefs",
		`42 27 0:39 / /m rw - fuse MFS rw`:                                "fuse.moosefs",
		`42 27 0:39 / /m rw - fuse JuiceFS:pictures rw`:                   "fuse.juicefs",
		`42 27 0:39 / /m rw - fuse mountpoint-s3 rw`:                      "fuse.mountpoint-s3",
		`42 27 0:39 / /m rw - fuse goofys\043bucket rw`:                   "fuse.goofys",
		`42 27 0:39 / /m rw - fuse https://cloud.example/dav\040files rw`: "fuse.davfs",
		`42 27 0:39 / /m rw - fuse.seaweedfs 127.0.0.1:8888:/ rw`:         "fuse.seaweedfs",
		`42 27 0:39 / /m rw - fuse.rclone remote: rw`:                     "fuse.rclone",
		`42 27 0:39 / /m rw - fuse something rw`:                          "fuse",
		`42 27 0:39 / /m rw - fuseblk /dev/sdb1 rw`:                       "fuseblk",
		`42 27 0:39 / /m rw - ext4 mfs\0431 rw`:                           "ext4",
	} {
		m, ok := mountinfo.ParseLine(line)
		nothing := func(string) bool { return false }
		if got := kindOf(m, nothing); !ok || got != want {
			t.Errorf("%s: %s", line, got)
		}
		if s := storageOf(mountinfo.Mount{Type: want}, unix.FUSE_SUPER_MAGIC); s.Known != (want != "fuseblk") {
			t.Errorf("%s: %+v", want, s)
		}
	}
	moose := kindOf(mountinfo.Mount{Type: "fuse", Source: "x"}, func(name string) bool { return name == ".masterinfo" })
	if s := storageOf(mountinfo.Mount{Type: moose}, unix.FUSE_SUPER_MAGIC); moose != "fuse.moosefs" || !s.StableInodes || s.ListingAge != 0 {
		t.Errorf("a root with .masterinfo: %s %+v", moose, s)
	}
}

func newTestProcesses(t *testing.T) *processes {
	t.Helper()
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	ps := newProcesses(fd)
	t.Cleanup(ps.close)
	return ps
}

func TestThreadsShareAProcess(t *testing.T) {
	ps := newTestProcesses(t)
	me := ps.find(uint32(os.Getpid()))
	if me == nil || me.pid != os.Getpid() {
		t.Fatalf("%+v", me)
	}
	comm := strings.TrimSpace(readFile(t, "/proc/self/comm"))
	if me.command() != comm {
		t.Errorf("command %q, want %q", me.command(), comm)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		tid := uint32(syscall.Gettid())
		for range 2 {
			if p := ps.find(tid); p != me {
				t.Errorf("thread %d of %d belongs to %+v", tid, me.pid, p)
			}
		}
	}()
	<-done
	if p := ps.find(0); p != nil {
		t.Errorf("no thread belongs to %+v", p)
	}
}

func TestANumberIsNotTheProcess(t *testing.T) {
	ps := newTestProcesses(t)
	p := startProgram(t, "/", nil)
	pid := uint32(p.cmd.Process.Pid)
	first := ps.find(pid)
	if first == nil || ps.find(pid) != first {
		t.Fatal("not found again")
	}
	first.selfLocking.Store(true)
	from := &fuse.InHeader{Caller: fuse.Caller{Pid: pid}}
	one := ps.program(first, from)
	if again := ps.program(first, from); again.Thread() != one.Thread() || !again.SameProcess(&one) {
		t.Errorf("%+v and %+v are one", one, again)
	}
	// The process ends, and the next one gets its number.
	p.kill()
	await(t, "it is not found any more", func() bool { return ps.find(pid) == nil })
	second := takeNumber(t, int(pid))
	if got := ps.find(uint32(second)); got == nil || got == first || got.selfLocking.Load() {
		t.Errorf("the next process with this number: %+v", got)
	} else if two := ps.program(got, from); two.Thread() == one.Thread() || two.SameProcess(&one) {
		t.Errorf("%+v and %+v are two", one, two)
	}
}

// Of a process that cannot be seen the number tells nothing, or there is none.
func TestAProcessThatIsNotSeenIsNoOther(t *testing.T) {
	ps := newTestProcesses(t)
	for _, pid := range []uint32{0, 7} {
		from := &fuse.InHeader{Caller: fuse.Caller{Pid: pid}}
		one, two := ps.program(nil, from), ps.program(nil, from)
		if one.PID != int(pid) || one.SameProcess(&two) {
			t.Errorf("%+v and %+v", one, two)
		}
		if none := (locks.Thread{}); (one.Thread() == none) != (pid == 0) || pid != 0 && one.Thread() == two.Thread() {
			t.Errorf("threads %+v and %+v", one.Thread(), two.Thread())
		}
	}
}

// takeNumber starts processes until one gets a number that is free now, which
// needs the right to say what the last one was.
func takeNumber(t *testing.T, pid int) int {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(fmt.Sprint(pid-1)), 0); err != nil {
			t.Skip("the number of the next process can't be chosen:", err)
		}
		p := startProgram(t, "/", nil)
		if p.cmd.Process.Pid == pid {
			return pid
		}
		p.kill()
	}
	t.Skip("the number is taken by others again and again")
	return 0
}

func TestDeadThreadsAreSwept(t *testing.T) {
	ps := newTestProcesses(t)
	ps.sweepAt = 4
	me := ps.find(uint32(os.Getpid()))
	for range 20 {
		p := startProgram(t, "/", nil)
		if ps.find(uint32(p.cmd.Process.Pid)) == nil {
			t.Fatal("not found")
		}
		p.kill()
		ps.sweepAt = 4
	}
	if n := len(ps.threads); n > 5 {
		t.Errorf("%d threads are remembered", n)
	}
	if ps.find(uint32(os.Getpid())) != me {
		t.Error("a living process was swept")
	}
	// If there are too many, those go about which there is nothing to know.
	ps.most, ps.sweepAt = 2, 0
	me.selfLocking.Store(true)
	for range 5 {
		p := startProgram(t, "/", nil)
		ps.find(uint32(p.cmd.Process.Pid))
		ps.sweepAt = 0
	}
	if n := len(ps.threads); n > 3 {
		t.Errorf("%d threads are remembered", n)
	}
	if ps.find(uint32(os.Getpid())) != me {
		t.Error("a process was forgotten that locks for itself")
	}
}

func BenchmarkFindProcess(b *testing.B) {
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(b, err)
	ps := newProcesses(fd)
	defer ps.close()
	pid := uint32(os.Getpid())
	for b.Loop() {
		ps.find(pid)
	}
}

func TestFatalSignals(t *testing.T) {
	for _, c := range []struct {
		name, status string
		want         bool
	}{
		{"none", "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n", false},
		{"killed", "SigPnd:\t0000000000000100\nSigBlk:\tfffffffe7ffbfeff\n", true},
		{"INT by default", "ShdPnd:\t0000000000000002\nSigCgt:\t0000000000000000\n", true},
		{"INT with a handler", "ShdPnd:\t0000000000000002\nSigCgt:\t0000000000000002\n", false},
		{"TERM ignored", "ShdPnd:\t0000000000004000\nSigIgn:\t0000000000004000\n", false},
		{"TERM blocked", "SigPnd:\t0000000000004000\nSigBlk:\t0000000000004000\n", false},
		{"URG by default", "SigPnd:\t0000000000400000\n", false},
		{"a stop", "SigPnd:\t0000000000080000\n", false},
	} {
		if got := fatalPending([]byte("Name:\tSigPnd\n" + c.status)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What was found out about a file before another node wrote it, and is told to
// the kernel after the lock has come here, is not kept there.
func TestALookupThatARefreshOvertakes(t *testing.T) {
	f := handlersOnly(t)
	f.attrTTL, f.entryTTL = time.Hour, time.Hour
	writeFile(t, f.opts.Root.Name()+"/f", "9")
	for _, overtaken := range []bool{false, true} {
		in := header(rootID)
		dir, errno := f.finder.node(&in)
		if !errno.Ok() {
			t.Fatal(errno)
		}
		gen := f.arrivals.all.Load()
		n, st, err := f.finder.find(&in, dir, "f")
		must(t, err)
		file, _ := f.tree.identify(n)
		if overtaken {
			must(t, f.coherence.refresh(locks.Key{File: file, Class: locks.Flock}))
		}
		var out fuse.EntryOut
		f.attrs.fillEntry(&out, dir, "f", n, &st, gen)
		f.tree.unpin(dir)
		if kept := out.AttrTimeout() > 0; kept == overtaken {
			t.Errorf("overtaken %v: the kernel may keep the attributes for %v", overtaken, out.AttrTimeout())
		}
		if kept := out.EntryTimeout() > 0; kept == overtaken {
			t.Errorf("overtaken %v: the kernel may keep the name for %v", overtaken, out.EntryTimeout())
		}
	}
}

// A process that has locked many files locks the next one as if they were few.
func TestCostOfManyRecords(t *testing.T) {
	locktest.Growth(t, 500, func(n int) func() {
		p := new(process)
		rs := make([]lockRecord, n)
		return func() {
			for i := range rs {
				rs[i].tenure = 3
				p.own(&rs[i])
			}
			for i := range rs {
				p.disown(&rs[i])
				if want := uint64(4); i < n-1 && p.held.Load() != want {
					t.Fatalf("held %d, want %d", p.held.Load(), want)
				}
			}
			if p.held.Load() != 0 {
				t.Fatal("something is held")
			}
		}
	})
	// The oldest counts.
	p, rs := new(process), make([]lockRecord, 3)
	for i := range rs {
		rs[i].tenure = locks.Tenure(7 + i)
		p.own(&rs[i])
	}
	for i, want := range []uint64{9, 10, 0} {
		if p.disown(&rs[i]); p.held.Load() != want {
			t.Errorf("held %d, want %d", p.held.Load(), want)
		}
	}
}
