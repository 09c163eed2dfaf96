package fusefs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// Storage is what is known of the file system under the mount.
type Storage struct {
	// Type is its name as in /proc/mounts, or that of a FUSE file system that
	// does not say there what it is (see kindOf); "0x" and the magic number of
	// statfs(2) where that is not known.
	Type string
	// Known: what follows is known of this type. If not it is the worst.
	Known bool
	// StableInodes: all hosts see the same inode numbers.
	StableInodes bool
	// ClientCache: a client on this host keeps data or attributes without
	// being told when another host changes them. Locks have to hand over the
	// data: write it out, and look again.
	ClientCache bool
	// Userspace: the client is a FUSE daemon. What statx(2) is told to force
	// ends at its caches.
	Userspace bool
	// Lingers: the client answers from caches of its own for up to a second,
	// whatever it is told; see pass.
	Lingers bool
	// KeepsNames: the client keeps names, attributes and listings for many
	// seconds, whatever it is told; see clientnames.go.
	KeepsNames bool
	// Remote: a server decides who may do what, and may give an inode number
	// to another file while this host still has a descriptor of the old one.
	Remote bool
	// NamesByTime: the client keeps names for as long as the directory has the
	// same time of change; see stirring.
	NamesByTime bool
	// LocksZap: a lock by fcntl(2) makes the client forget what it has of a file,
	// and needs nobody beside client and server; see zap.
	LocksZap bool
	// DataByTime: the client keeps what is in a file for as long as that has the same
	// size and times, and times have steps; see lookUnknown.
	DataByTime bool
	// SillyRenames: a name that is removed while this host has a descriptor that
	// was opened by it, O_PATH included, leaves a file .nfs… until that is closed.
	SillyRenames bool
	// Soft: the client gives up on a server that is slow, and with it what
	// programs have written.
	Soft bool
	// ExactTimes: a file that changes after it was looked at gets another time of
	// change, however soon that is; unless all times are in whole seconds.
	ExactTimes bool
	// ListingAge is how old a listing of a directory may be that was opened
	// anew; see package p2p/member, "cache_ms".
	ListingAge time.Duration
}

// Kinds of storage that behave alike.
var (
	localStorage   = Storage{StableInodes: true}
	clusterStorage = Storage{StableInodes: true, Remote: true}
	// Close-to-open: a file that is opened is looked at anew.
	nfsStorage = Storage{StableInodes: true, ClientCache: true, Remote: true, NamesByTime: true, SillyRenames: true}
	// The same by a client that is a FUSE daemon, and has its own ways with names.
	fuseStorage = Storage{StableInodes: true, ClientCache: true, Remote: true}
	// Servers that do not tell changes, and number files as they like.
	cachingStorage = Storage{ClientCache: true, Remote: true, ListingAge: time.Minute}
)

// unknownStorage is treated with all caution.
var unknownStorage = cachingStorage

// storageTypes knows file systems by their name in /proc/mounts.
var storageTypes = map[string]Storage{
	"bcachefs": localStorage, "btrfs": localStorage, "ext2": localStorage, "ext3": localStorage,
	"ext4": localStorage, "f2fs": localStorage, "jfs": localStorage, "tmpfs": localStorage,
	"xfs": localStorage, "zfs": localStorage,

	"ceph": clusterStorage, "gfs2": clusterStorage, "gpfs": clusterStorage, "lustre": clusterStorage,
	"ocfs2": clusterStorage,

	"nfs": nfsStorage, "nfs4": nfsStorage,

	// Clients that number files alike, and look again when a file is opened.
	"fuse.ceph": fuseStorage, "fuse.ceph-fuse": fuseStorage,
	"fuse.juicefs": fuseStorage, "fuse.mfs": fuseStorage, "fuse.moosefs": fuseStorage,

	"fuse.glusterfs": {StableInodes: true, ClientCache: true, Lingers: true, Remote: true},

	// A listing is good for 20 s, and to the end of that second: 22 s were measured.
	"fuse.sshfs": {ClientCache: true, KeepsNames: true, Remote: true, ListingAge: keptNames},
	"9p":         cachingStorage, "cifs": cachingStorage, "fuse": cachingStorage, "smb3": cachingStorage,
	"virtiofs": cachingStorage,

	// Clients of object stores and of servers of files as a whole. Most have no
	// hard links, which is found out by trying.
	"fuse.davfs": cachingStorage, "fuse.goofys": cachingStorage, "fuse.mountpoint-s3": cachingStorage,
	"fuse.rclone": cachingStorage, "fuse.s3fs": cachingStorage, "fuse.seaweedfs": cachingStorage,
}

// fuseSources knows clients that are mounted as "fuse" and nothing more, by how
// the source of the mount begins.
var fuseSources = []struct{ begins, kind string }{
	{"mfs#", "fuse.moosefs"}, {"MFS", "fuse.moosefs"},
	{"JuiceFS:", "fuse.juicefs"},
	{"ceph-fuse", "fuse.ceph-fuse"},
	{"mountpoint-s3", "fuse.mountpoint-s3"},
	{"goofys#", "fuse.goofys"}, {"s3fs", "fuse.s3fs"},
	{"http://", "fuse.davfs"}, {"https://", "fuse.davfs"},
}

// fuseFiles knows them by a file that their root has, and does not list.
var fuseFiles = map[string]string{
	".masterinfo": "fuse.moosefs",
	".accesslog":  "fuse.juicefs",
}

// kindOf is the type of a mount, or for a client of which that says only that
// it is one, the type that it would have.
func kindOf(m mountinfo.Mount, inRoot func(name string) bool) string {
	if m.Type != "fuse" && m.Type != "fuseblk" {
		return m.Type
	}
	for _, x := range fuseSources {
		if strings.HasPrefix(m.Source, x.begins) {
			return x.kind
		}
	}
	for name, kind := range fuseFiles {
		if inRoot(name) {
			return kind
		}
	}
	return m.Type
}

// storageMagics knows those whose mount cannot be found: a subvolume of btrfs
// has another device number than its mount.
var storageMagics = map[int64]string{
	unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.EXT4_SUPER_MAGIC:  "ext4",
	unix.F2FS_SUPER_MAGIC:  "f2fs",
	unix.NFS_SUPER_MAGIC:   "nfs",
	unix.TMPFS_MAGIC:       "tmpfs",
	unix.XFS_SUPER_MAGIC:   "xfs",
	0x00c36400:             "ceph",
	0x01161970:             "gfs2",
	0x0bd00bd0:             "lustre",
	0x2fc12fc1:             "zfs",
	0x47504653:             "gpfs",
	0x7461636f:             "ocfs2",
}

// StorageOf finds out what a descriptor of a file or a directory is on.
func StorageOf(fd int) (Storage, error) {
	var fs unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return Storage{}, fmt.Errorf("what kind of storage is it: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Storage{}, fmt.Errorf("what kind of storage is it: %w", err)
	}
	mounts, err := mountinfo.Read()
	if err != nil {
		return Storage{}, fmt.Errorf("what kind of storage is it: %w", err)
	}
	var found mountinfo.Mount
	for _, m := range slices.Backward(mounts) { // the newest is the last
		if m.Dev == uint64(st.Dev) {
			found = m
			break
		}
	}
	found.Type = kindOf(found, func(name string) bool {
		var in unix.Stat_t
		return unix.Fstatat(fd, name, &in, unix.AT_SYMLINK_NOFOLLOW) == nil && in.Mode&unix.S_IFMT == unix.S_IFREG
	})
	s := storageOf(found, int64(fs.Type))
	s.ExactTimes = exactTimes[s.Type] && kernelIsSince(6, 13)
	return s, nil
}

// exactTimes are the file systems of one host that have them since Linux 6.13
// (FS_MGTIME).
var exactTimes = map[string]bool{"btrfs": true, "ext4": true, "tmpfs": true, "xfs": true}

// kernelIsSince reports whether this host runs a version of Linux, or a later one.
func kernelIsSince(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var is [2]int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &is[0], &is[1]); n < len(is) {
		return false
	}
	return is[0] > major || is[0] == major && is[1] >= minor
}

func storageOf(m mountinfo.Mount, magic int64) Storage {
	name := m.Type
	if name == "" {
		name = storageMagics[magic]
	}
	s, ok := storageTypes[name]
	if !ok {
		s = unknownStorage
	}
	s.Known = ok
	s.Userspace = s.ClientCache && (name == "" || strings.HasPrefix(name, "fuse"))
	if s.Type = name; name == "" {
		s.Type = fmt.Sprintf("%#x", magic)
	}
	if strings.HasPrefix(name, "nfs") {
		s.DataByTime = name != "nfs4"
		s.Soft = m.Has("soft") || m.Has("softerr")
		// Those of NFS 3 that are not local need the lock manager, which may not be there.
		s.LocksZap = name == "nfs4" || m.Has("nolock") || m.Options["local_lock"] == "all" || m.Options["local_lock"] == "posix"
		if m.Has("nocto") {
			s.ListingAge = seconds(&m, time.Minute, "acdirmax", "actimeo")
		}
	}
	return s
}

// seconds is the value of the first of these options that m has, or other.
func seconds(m *mountinfo.Mount, other time.Duration, options ...string) time.Duration {
	for _, o := range options {
		if n, err := strconv.ParseUint(m.Options[o], 10, 16); err == nil {
			return time.Duration(n) * time.Second
		}
	}
	return other
}
