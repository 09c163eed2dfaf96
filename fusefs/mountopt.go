package fusefs

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// MountOptions are the options of a mount that the kernel has to know. The
// zero value is what FUSE mounts have without options: nosuid and nodev.
type MountOptions struct {
	set, cleared uintptr // MS_* flags, as asked for
	data         []string
	// AllowOther lets other users than the one of the daemon use the mount.
	// The kernel checks permissions in any case (default_permissions). A
	// daemon that runs as root always allows it.
	AllowOther bool
	// Source and Subtype are fsname= and subtype=; empty if not given.
	Source, Subtype string
}

// mountFlags are options that are bits of mount(2); a name with "no" in front,
// or the one in reset, clears them.
var mountFlags = map[string]struct {
	flag  uintptr
	clear bool
}{
	"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true},
	"nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
	"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true},
	"noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
	"noatime": {unix.MS_NOATIME, false}, "atime": {unix.MS_NOATIME, true},
	"nodiratime": {unix.MS_NODIRATIME, false}, "diratime": {unix.MS_NODIRATIME, true},
	"relatime": {unix.MS_RELATIME, false}, "norelatime": {unix.MS_RELATIME, true},
	"strictatime": {unix.MS_STRICTATIME, false}, "nostrictatime": {unix.MS_STRICTATIME, true},
	"sync": {unix.MS_SYNCHRONOUS, false}, "async": {unix.MS_SYNCHRONOUS, true},
	"dirsync": {unix.MS_DIRSYNC, false},
}

// ignoredOptions are for mount(8), systemd and /etc/fstab.
var ignoredOptions = []string{
	"auto", "noauto", "defaults", "nofail", "_netdev", "user", "nouser", "users", "owner", "noowner",
	"group", "nogroup", "default_permissions", "nonempty",
}

// contextOptions label the files of a mount for SELinux.
var contextOptions = []string{"context", "fscontext", "defcontext", "rootcontext"}

// ParseMountOptions reads options as they stand behind -o: each string is one
// option or several with commas between them. An unknown option is an error.
func ParseMountOptions(args []string) (MountOptions, error) {
	var m MountOptions
	for _, arg := range args {
		for _, o := range splitOptions(arg) {
			if err := m.add(o); err != nil {
				return MountOptions{}, err
			}
		}
	}
	return m, nil
}

// splitOptions splits at commas outside of quotes: the value of context= may
// have commas of its own.
func splitOptions(s string) (os []string) {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}

func (m *MountOptions) add(o string) error {
	if f, ok := mountFlags[o]; ok {
		if f.clear {
			m.set, m.cleared = m.set&^f.flag, m.cleared|f.flag
		} else {
			m.set, m.cleared = m.set|f.flag, m.cleared&^f.flag
		}
		return nil
	}
	name, value, hasValue := strings.Cut(o, "=")
	switch {
	case slices.Contains(ignoredOptions, o), strings.HasPrefix(o, "x-"), name == "comment" && hasValue:
		return nil
	case o == "allow_other":
		m.AllowOther = true
		return nil
	case o == "allow_root":
		return fmt.Errorf("mount option allow_root is not supported: use allow_other, with which the kernel " +
			"checks permissions as on any file system")
	case slices.Contains(contextOptions, name), name == "max_read", name == "fsname", name == "subtype":
	default:
		return fmt.Errorf("unknown mount option %q", o)
	}
	if value == "" {
		return fmt.Errorf("mount option %s needs a value: %s=VALUE", name, name)
	}
	switch name {
	case "fsname":
		m.Source = value
	case "subtype":
		m.Subtype = value
	case "max_read":
		var n int
		if _, err := fmt.Sscanf(value, "%d", &n); err != nil || n < 4096 || fmt.Sprint(n) != value {
			return fmt.Errorf("mount option max_read=%s: must be a number of bytes, 4096 at least", value)
		}
		m.data = append(m.data, o)
	default:
		m.data = append(m.data, o)
	}
	return nil
}

// ReadOnly reports whether ro was the last word.
func (m *MountOptions) ReadOnly() bool { return m.set&unix.MS_RDONLY != 0 }

// flags are for mount(2).
func (m *MountOptions) flags() uintptr {
	return (unix.MS_NOSUID|unix.MS_NODEV)&^m.cleared | m.set
}

// words are the same for fusermount3.
func (m *MountOptions) words() (ws []string) {
	for name, f := range mountFlags {
		if !f.clear && m.set&f.flag != 0 || f.clear && m.cleared&f.flag != 0 {
			ws = append(ws, name)
		}
	}
	slices.Sort(ws)
	return append(ws, m.data...)
}
