package fusefs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func user(uid, gid uint32, groups ...uint32) *syscall.Credential {
	return &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}
}

// acl is a POSIX ACL in the form of its extended attribute: owner, one more
// user, group, mask, others.
func acl(owner uint16, uid uint32, rights, group, mask, other uint16) []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, uint32(2))
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, owner, ^uint32(0)}, {2, rights, uid}, {4, group, ^uint32(0)}, {0x10, mask, ^uint32(0)}, {0x20, other, ^uint32(0)}} {
		binary.Write(&b, binary.LittleEndian, e)
	}
	return b.Bytes()
}

// prepareForUsers makes the files that the users of TestOtherUsers try their rights on.
func prepareForUsers(t *testing.T, dir string) {
	t.Helper()
	for _, c := range []error{
		os.Mkdir(dir+"/alice", 0o755), os.Chown(dir+"/alice", 11000, 12000),
		unix.Mknod(dir+"/alice/never-opened", unix.S_IFREG|0o644, 0), os.Chown(dir+"/alice/never-opened", 11000, 12000),
		os.Mkdir(dir+"/team", 0o755), os.Chown(dir+"/team", 0, 12000), unix.Chmod(dir+"/team", 0o2770),
		os.Mkdir(dir+"/sticky", 0o755), unix.Chmod(dir+"/sticky", 0o1777),
		os.Mkdir(dir+"/private", 0o700),
		os.Mkdir(dir+"/acl", 0o755), os.Chown(dir+"/acl", 11000, 12000),
		os.WriteFile(dir+"/root-only", []byte("secret"), 0o600),
		os.WriteFile(dir+"/private/f", []byte("hidden"), 0o666),
		os.WriteFile(dir+"/setid", []byte("prog"), 0o755), os.Chown(dir+"/setid", 11000, 12000), unix.Chmod(dir+"/setid", 0o6777),
		os.WriteFile(dir+"/setgid-data", []byte("data"), 0o644), os.Chown(dir+"/setgid-data", 11000, 12000), unix.Chmod(dir+"/setgid-data", 0o2666),
		unix.Setxattr(dir+"/acl", aclDefault, acl(7, 11001, 6, 5, 7, 0), 0),
		unix.Setxattr(dir+"/setid", "trusted.a", nil, 0), unix.Setxattr(dir+"/setid", "user.a", nil, 0), unix.Setxattr(dir+"/setid", "trusted.z", nil, 0),
		unix.Setxattr(dir+"/setgid-data", "trusted.a", nil, 0),
		os.WriteFile(dir+"/shared", []byte("for bob"), 0o600), os.Chown(dir+"/shared", 11000, 12000),
		unix.Setxattr(dir+"/shared", aclAccess, acl(6, 11001, 6, 0, 6, 0), 0),
	} {
		must(t, c)
	}
}

// A script for a helper is run by users on the mount and on the storage, and
// the outcome must be the same.
func TestOtherUsers(t *testing.T) {
	needRoot(t)
	m := mount(t)
	native := tempDir(t)
	alice, bob, carol := user(11000, 12000), user(11001, 12001, 12000), user(11002, 12002)

	script := []struct {
		who  *syscall.Credential
		call string
	}{
		{alice, "umask 022"}, {bob, "umask 0"}, {carol, "umask 077"},
		{alice, "put alice/f text"}, {alice, "stat alice/f"}, {alice, "mkdir alice/d 0777"}, {alice, "stat alice/d"},
		{alice, "symlink f alice/s"}, {alice, "stat alice/s"}, {alice, "mkfifo alice/p 0666"}, {alice, "stat alice/p"},
		{alice, "link alice/f alice/g"}, {bob, "link alice/f alice/h"}, {bob, "put alice/f changed"}, {bob, "cat alice/f"},
		{bob, "unlink alice/f"}, {bob, "rename alice/f alice/x"}, {bob, "put alice/new x"}, {bob, "mkdir alice/new 0755"},
		{bob, "chmod alice/f 0777"}, {alice, "chmod alice/f 0600"}, {bob, "cat alice/f"}, {alice, "cat alice/f"},
		{alice, "chown alice/f 11001 -1"}, {alice, "chown alice/f -1 12001"}, {carol, "cat alice/f"},
		{alice, "chmod alice/f 0"}, {alice, "cat alice/f"},
		// By a supplementary group, and the group is the directory's.
		{bob, "put team/f bob"}, {bob, "stat team/f"}, {bob, "mkdir team/d 0777"}, {bob, "stat team/d"},
		{alice, "put team/f alice"}, {carol, "put team/f carol"}, {carol, "ls team"}, {carol, "mkdir team/x 0777"},
		{bob, "open team/g rw,creat 02775"}, {bob, "stat team/g"},
		{bob, "open team r,dir"}, {bob, "open team rw,tmpfile"},
		{carol, "put sticky/f carol"}, {bob, "unlink sticky/f"}, {bob, "rename sticky/f sticky/g"}, {carol, "unlink sticky/f"},
		{carol, "open sticky/h rw,creat 0666"}, {bob, "open sticky/h rw,creat 0666"},
		{alice, "cat root-only"}, {alice, "ls private"}, {alice, "cat private/f"}, {alice, "stat private/f"},
		{alice, "put private/g x"}, {alice, "truncate root-only 0"}, {alice, "open root-only r,trunc"},
		{alice, "getxattr root-only user.x"}, {alice, "listxattr setid"}, {alice, "listxattr setgid-data"}, {alice, "listxattr shared"},
		// Changing a file takes its bits away; the owner's own chmod does not.
		{carol, "chown setid -1 -1"}, {carol, "stat setid"}, {bob, "chown setgid-data -1 -1"}, {carol, "chown root-only -1 -1"},
		{carol, "open setid rw"}, {carol, "put setid x"}, {carol, "stat setid"},
		{alice, "chmod setid 06777"}, {carol, "overwrite setid new"}, {carol, "stat setid"}, {carol, "cat setid"},
		{alice, "chmod setid 06777"}, {bob, "allocate setid 1000"}, {bob, "stat setid"},
		{alice, "chmod setid 04777"}, {carol, "copy setid alice/s"}, {carol, "stat setid"},
		{alice, "chmod setid 06777"}, {alice, "overwrite setid own"}, {alice, "stat setid"},
		{alice, "chmod setid 02766"}, {carol, "overwrite setid x"}, {carol, "stat setid"},
		{alice, "chmod setid 02766"}, {bob, "overwrite setid x"}, {bob, "stat setid"},
		{alice, "chmod alice/never-opened 02766"}, {carol, "chown alice/never-opened -1 -1"}, {bob, "chown alice/never-opened -1 -1"}, {bob, "stat alice/never-opened"},
		{alice, "chmod setid 06777"}, {alice, "stat setid"}, {carol, "truncate setid 1"}, {carol, "stat setid"},
		{alice, "chmod setid 06777"}, {carol, "open setid w,trunc"}, {carol, "stat setid"},
		{alice, "chmod setid 04711"}, {alice, "chown setid -1 12000"}, {alice, "stat setid"},
		{carol, "put setgid-data y"}, {carol, "stat setgid-data"},
		{alice, "chmod setgid-data 02666"}, {bob, "put setgid-data z"}, {bob, "stat setgid-data"},
		{bob, "chmod setgid-data 02777"}, {alice, "chmod setgid-data 02777"}, {alice, "stat setgid-data"},
		// ACLs: of a file, and for new ones, where the umask does not count.
		{bob, "cat shared"}, {carol, "cat shared"}, {bob, "put shared changed"},
		{alice, "open acl/f rw,creat 0666"}, {alice, "stat acl/f"}, {alice, "mkdir acl/d 0777"}, {alice, "stat acl/d"},
		{alice, "mkfifo acl/p 0666"}, {alice, "stat acl/p"}, {alice, "open acl rw,tmpfile 0666"}, {bob, "cat acl/f"}, {carol, "cat acl/f"},
		{alice, "umask 077"}, {alice, "open acl/g rw,creat 0666"}, {alice, "stat acl/g"},
		{alice, "open alice/h rw,creat 0666"}, {alice, "stat alice/h"},
	}
	run := func(dir string) (out []string) {
		prepareForUsers(t, dir)
		programs := make(map[*syscall.Credential]*testProgram)
		for _, c := range []*syscall.Credential{alice, bob, carol} {
			programs[c] = startProgram(t, dir, c)
		}
		for _, s := range script {
			got := programs[s.who].do("%s", s.call)
			if strings.HasPrefix(s.call, "open") && strings.HasPrefix(got, "ok") {
				got = "ok" // whatever the descriptor
			}
			out = append(out, fmt.Sprintf("%d: %s: %s", s.who.Uid, s.call, got))
		}
		return out
	}
	want, got := run(native), run(m.dir)
	diffLines(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
	sameTree(t, native, m.dir, "ino", "times", "blocks", "sizes of directories")
}

// chown(2) with neither owner nor group is a change all the same.
func TestChownOfNothingSetsTheTimeOfChange(t *testing.T) {
	m := mount(t)
	writeFile(t, m.path("f"), "")
	changed := func() unix.Timespec {
		var st unix.Stat_t
		must(t, unix.Stat(m.path("f"), &st))
		return st.Ctim
	}
	before := changed()
	for end := time.Now().Add(10 * time.Second); changed() == before; { // the clock of files goes in steps
		must(t, unix.Chown(m.path("f"), -1, -1))
		if time.Now().After(end) {
			t.Fatal("the time of the last change stays")
		}
	}
}

// What a storage refuses the daemon, it may allow the program: an NFS server
// with root_squash. The daemon here is a root without power over files.
func TestAStorageThatDoesNotTrustTheDaemon(t *testing.T) {
	needRoot(t)
	m := mount(t, func(c *childConfig) {
		c.Remote = true
		c.Powerless = true
	})
	must(t, os.Mkdir(m.backing("home"), 0o755))
	must(t, os.Chown(m.backing("home"), 11000, 12000))
	must(t, os.Chmod(m.backing("home"), 0o700))
	must(t, os.Mkdir(m.backing("team"), 0o755))
	must(t, os.Chown(m.backing("team"), 11001, 12005))
	must(t, os.Chmod(m.backing("team"), 0o770))
	writeFile(t, m.backing("home/old"), "old")
	must(t, os.Chmod(m.backing("home/old"), 0o600))
	must(t, os.Chown(m.backing("home/old"), 11000, 12000))
	p := startProgram(t, m.dir, user(11000, 12000, 12005))
	for _, call := range []string{
		"put home/f text", "cat home/f", "mkdir home/d 0755", "ls home", "rename home/f home/d/g", "link home/d/g home/h",
		"unlink home/h", "put home/d/g again", "truncate home/d/g 2", "chmod home/d/g 0640", "cat home/old",
		"put team/f by-group", "cat team/f", "symlink x team/s", "unlink team/s",
	} {
		if got := p.do("%s", call); !strings.HasPrefix(got, "ok") {
			t.Errorf("%s: %s", call, got)
		}
	}
	other := startProgram(t, m.dir, user(11002, 12002))
	other.want("EACCES", "cat home/old")
	other.want("EACCES", "put team/f x")
}

// A file that appears between the kernel's question and the creation is opened
// with the rights of the program.
func TestCreationOfWhatAnotherHostHasMadeKeepsRights(t *testing.T) {
	needRoot(t)
	f := handlersOnly(t)
	dir := f.opts.Root.Name()
	writeFile(t, filepath.Join(dir, "open-to-all"), "x")
	must(t, os.Chmod(filepath.Join(dir, "open-to-all"), 0o666))
	writeFile(t, filepath.Join(dir, "private"), "x")
	must(t, os.Chmod(filepath.Join(dir, "private"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "directory"), 0o777))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	must(t, os.Symlink("open-to-all", filepath.Join(dir, "symlink")))
	for _, c := range []struct {
		name  string
		uid   uint32
		flags uint32
		want  error
	}{
		{"open-to-all", 11000, unix.O_RDWR, nil},
		{"private", 11000, unix.O_RDWR, unix.ESTALE}, // the kernel shall look itself
		{"private", 11000, unix.O_RDONLY, unix.ESTALE},
		{"private", 0, unix.O_RDWR, nil},
		{"open-to-all", 11000, unix.O_RDWR | unix.O_EXCL, unix.EEXIST},
		{"open-to-all", 11000, unix.O_RDWR | unix.O_TRUNC, unix.ESTALE},
		{"open-to-all", 11000, unix.O_RDWR | unix.O_NONBLOCK, unix.ESTALE},
		{"directory", 0, unix.O_RDWR, unix.ESTALE},
		{"fifo", 0, unix.O_RDWR, unix.ESTALE},
		{"symlink", 0, unix.O_RDWR, unix.ESTALE},
	} {
		st := f.createForTest(c.name, c.uid, c.flags)
		if got := syscall.Errno(st); !errors.Is(got, c.want) && !(c.want == nil && st.Ok()) {
			t.Errorf("%+v: %v", c, st)
		}
	}
}

func TestTheFencingToken(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "")
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	p.want("ENODATA", "getxattr f user.dmxfs.token")
	fd := p.open("f", "rw")
	p.want("ok 1", "getxattr f user.dmxfs.token")
	p.want("ok", "flock %d sh", fd)
	p.want("ok 2", "getxattr f user.dmxfs.token")
	qf := q.open("f", "r")
	q.want("ok", "flock %d sh", qf) // 3 was its open lock, 4 is this
	q.want("ok 4", "getxattr f user.dmxfs.token")
	p.want("ok 2", "getxattr f user.dmxfs.token") // its own
	p.want("ok", "flock %d un", fd)
	q.want("ok", "flock %d un", qf)
	p.want("ENODATA", "getxattr f user.dmxfs.token")
	for _, err := range []error{
		unix.Setxattr(m.path("f"), tokenAttr, []byte("9"), 0), unix.Removexattr(m.path("f"), tokenAttr),
	} {
		if err != unix.EPERM {
			t.Errorf("changing it: %v", err)
		}
	}
}
