package mountpoint

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// notInside checks that the directory that is open as root is not below the
// shared directory of a cluster, as far as this host can see: up to where its
// storage is mounted. A file would have one lock there and another one here.
func notInside(root *os.File, source string) error {
	above, err := clusterAbove(int(root.Fd()))
	if err != nil || above == "" {
		return err
	}
	return exitcode.With(exitcode.Refused, fmt.Errorf("%s is inside the shared directory %s of a cluster (it has %s): a file would have one lock for those hosts and another one here; mount %s, and use the directory below that mount",
		source, above, register.Name, above))
}

// clusterAbove is the path of the nearest directory above the one that is open
// as fd, on the same mount, that a cluster shares; empty if there is none.
func clusterAbove(fd int) (string, error) {
	dir, err := unix.Openat(fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the shared directory: %w", err)
	}
	defer func() { unix.Close(dir) }()
	for {
		here, ok := placeOf(dir)
		if !ok {
			return "", nil
		}
		up, err := unix.Openat(dir, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", nil // nobody may look there, or it was removed
		}
		unix.Close(dir)
		dir = up
		there, ok := placeOf(dir)
		if !ok || there == here || !there.sameMount(here) {
			return "", nil
		}
		var st unix.Stat_t
		if unix.Fstatat(dir, register.Name+"/"+register.ClusterFile, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
			if err != nil {
				return "", fmt.Errorf("the directory that has %s above: %w", register.Name, err)
			}
			return path, nil
		}
	}
}

// place is where a directory is on this host.
type place struct {
	major, minor uint32
	ino, mount   uint64 // mount is 0 before Linux 5.8
}

func placeOf(dir int) (place, bool) {
	var st unix.Statx_t
	if unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID, &st) != nil {
		return place{}, false
	}
	p := place{major: st.Dev_major, minor: st.Dev_minor, ino: st.Ino}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		p.mount = st.Mnt_id
	}
	return p, true
}

func (p place) sameMount(o place) bool {
	return p.major == o.major && p.minor == o.minor && p.mount == o.mount
}
