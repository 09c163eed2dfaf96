package register

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Storage is what is known of the storage below a directory.
type Storage struct {
	// Type is the file system type as in /proc/mounts, empty if it is not known.
	Type string
	// Cache is S for member.Member.Cache, in milliseconds: how old a listing
	// may be that this host's client shows.
	Cache int64
	// Warnings are for people.
	Warnings []string
}

// defaultCache is the age of listings of storage that is not known better.
const defaultCache = 60_000

// Inspect finds out about the storage of an open directory. What it cannot
// find out it takes for the worst.
func Inspect(dir *os.File) Storage {
	var st unix.Statx_t
	err := ignoringEINTR(func() error {
		return unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	})
	unknown := Storage{Cache: defaultCache, Warnings: []string{fmt.Sprintf(
		"the type of the storage is not known: listings are taken to be up to %d s old (--storage-cache)", defaultCache/1000)}}
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return unknown
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return unknown
	}
	defer f.Close()
	fstype, options, ok := findMount(f, st.Mnt_id)
	if !ok {
		return unknown
	}
	return storageOf(fstype, options)
}

// findMount looks a mount up in mountinfo (proc(5)) by its ID.
func findMount(mountinfo io.Reader, id uint64) (fstype string, options []string, ok bool) {
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !found || len(f) < 6 || len(g) < 1 || f[0] != strconv.FormatUint(id, 10) {
			continue
		}
		options = strings.Split(f[5], ",")
		if len(g) >= 3 {
			options = append(options, strings.Split(g[2], ",")...)
		}
		return g[0], options, true
	}
	return "", nil, false
}

// storageOf tells S by the type of a file system and its mount options.
func storageOf(fstype string, options []string) Storage {
	s := Storage{Type: fstype}
	warn := func(format string, args ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...)) }
	switch fstype {
	case "nfs", "nfs4":
		// Opening a directory asks the server (close-to-open), unless that
		// is switched off; then listings live as long as attributes.
		if slices.Contains(options, "nocto") {
			s.Cache = defaultCache
			for _, o := range options {
				for _, name := range []string{"acdirmax=", "actimeo="} {
					if v, ok := strings.CutPrefix(o, name); ok {
						if sec, err := strconv.ParseInt(v, 10, 32); err == nil {
							s.Cache = sec * 1000
						}
					}
				}
			}
			warn("the storage is mounted with nocto: a start without any other node takes %d s longer", 3*s.Cache/1000)
		}
		if slices.Contains(options, "soft") || slices.Contains(options, "softerr") {
			warn("the storage is mounted soft: writes can be lost when the server is slow; mount it hard")
		}
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "overlay", "ocfs2", "gfs2", "ceph", "lustre":
	case "fuse.sshfs":
		s.Cache = 20_000
	default:
		s.Cache = defaultCache
		warn("listings of %s are taken to be up to %d s old: a start without any other node takes %d s (--storage-cache)", fstype, s.Cache/1000, 3*s.Cache/1000)
	}
	return s
}
