package memory

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Spare says why the machine, or a control group (cgroups(7)) that this process is in, has less
// memory than this beside what is in use, in bytes. It is nil if there is as much: for now, as
// others take memory, too.
func Spare(bytes int64) error { return spare("/", bytes) }

// spare is Spare. root is "/", but in tests.
func spare(root string, bytes int64) error {
	if free := available(root); free < bytes {
		return fmt.Errorf("only %d MB of memory are available", free>>20)
	}
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		// "number:controllers:path", with number 0 and no controllers in version 2.
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 {
			continue
		}
		var top string
		files := version2
		switch {
		case f[0] == "0" && f[1] == "":
			if top = filepath.Join(root, "sys/fs/cgroup/unified"); !exists(top) {
				top = filepath.Join(root, "sys/fs/cgroup")
			}
		case strings.Contains(","+f[1]+",", ",memory,"):
			top, files = filepath.Join(root, "sys/fs/cgroup/memory"), version1
		default:
			continue
		}
		// A container may see its group as the top, and the path as it is outside: then
		// there is none by that path, and the top has what counts.
		for dir := filepath.Join(top, filepath.Join("/", f[2])); len(dir) >= len(top); dir = filepath.Dir(dir) {
			if free, limited := files.left(dir); limited && free < bytes {
				return fmt.Errorf("only %d MB are left of the memory that its control group may have", free>>20)
			}
		}
	}
	return nil
}

// group are the files of a control group: what it may have, what it has, and the name, in
// memory.stat, of how much of that are pages of files that can be dropped.
type group struct {
	limits        []string
	usage, cached string
}

var (
	version1 = group{[]string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"}
	version2 = group{[]string{"memory.max", "memory.high"}, "memory.current", "inactive_file"}
)

// left is how much the group at dir may have beside what it has, in bytes; or it has no limit.
func (g group) left(dir string) (free int64, limited bool) {
	limit := int64(math.MaxInt64)
	for _, name := range g.limits {
		if n, err := number(filepath.Join(dir, name)); err == nil { // not "max", and there is such a group
			limit, limited = min(limit, n), true
		}
	}
	if !limited {
		return 0, false
	}
	usage, err := number(filepath.Join(dir, g.usage))
	if err != nil {
		return 0, false
	}
	return limit - usage + field(filepath.Join(dir, "memory.stat"), g.cached), true
}

// available is how much memory the machine has for who asks, in bytes.
func available(root string) int64 {
	return field(filepath.Join(root, "proc/meminfo"), "MemAvailable:") << 10
}

// field is the number behind a name at the begin of a line, or 0.
func field(file, name string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func number(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
