package mountinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Path is the file that [Read] reads.
const Path = "/proc/self/mountinfo"

// Mount is a line of it.
type Mount struct {
	ID     int
	Dev    uint64 // of its files, as stat(2) has it
	Point  string
	Type   string // of the file system, as in "fuse.sshfs"
	Source string
	// Options of the file system, not of the mount. Those without a value have
	// an empty one.
	Options map[string]string
}

// Has reports whether the file system has an option.
func (m *Mount) Has(option string) bool {
	_, ok := m.Options[option]
	return ok
}

// Read lists the mounts of this process's namespace. What is mounted over
// another one comes after it.
func Read() ([]Mount, error) {
	b, err := os.ReadFile(Path)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return Parse(string(b)), nil
}

// Parse is the mounts of text, without the lines that are none.
func Parse(text string) (all []Mount) {
	for line := range strings.Lines(text) {
		if m, ok := ParseLine(line); ok {
			all = append(all, m)
		}
	}
	return all
}

// ParseLine is the mount of a line. The fields are separated by one blank each,
// and may have any other character in them.
func ParseLine(line string) (m Mount, ok bool) {
	head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	h, t := strings.Split(head, " "), strings.Split(tail, " ")
	if !ok || len(h) < 5 || len(t) < 2 {
		return Mount{}, false
	}
	id, errID := strconv.Atoi(h[0])
	a, b, _ := strings.Cut(h[2], ":")
	major, errMajor := strconv.ParseUint(a, 10, 32)
	minor, errMinor := strconv.ParseUint(b, 10, 32)
	if errID != nil || errMajor != nil || errMinor != nil {
		return Mount{}, false
	}
	m = Mount{
		ID: id, Dev: unix.Mkdev(uint32(major), uint32(minor)),
		Point: unescape(h[4]), Type: unescape(t[0]), Source: unescape(t[1]), Options: map[string]string{},
	}
	if len(t) > 2 {
		for o := range strings.SplitSeq(t[2], ",") {
			name, value, _ := strings.Cut(o, "=")
			m.Options[name] = value
		}
	}
	return m, true
}

// At is what is mounted on top at point; ok is false if nothing is.
func At(all []Mount, point string) (m Mount, ok bool) {
	for _, m := range slices.Backward(all) {
		if m.Point == point {
			return m, true
		}
	}
	return Mount{}, false
}

// Holding is the mount that an absolute path is on.
func Holding(all []Mount, path string) (m Mount, ok bool) {
	for {
		if m, ok := At(all, path); ok {
			return m, true
		}
		above := filepath.Dir(path)
		if above == path {
			return Mount{}, false
		}
		path = above
	}
}

// unescape undoes how the kernel writes a blank, tab, newline, "#" and "\": as
// three octal digits behind a "\".
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
