package memory

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Spare says why this process may not have so much more memory, in bytes: the machine has less,
// or a control group (cgroups(7)) that it is in; or the kernel would refuse it, for a limit of the
// process (RLIMIT_AS or RLIMIT_DATA, see getrlimit(2)) or since it promises no more than there is
// (vm.overcommit_memory=2, see proc_sys_vm(5)). It is nil if it may: for now, as others take
// memory, too.
func Spare(bytes int64) error { return spare("/", bytes) }

// spare is Spare. root is "/", but in tests.
func spare(root string, bytes int64) error {
	meminfo := filepath.Join(root, "proc/meminfo")
	if free := field(meminfo, "MemAvailable:") << 10; free < bytes {
		return fmt.Errorf("only %d MB of memory are available", free>>20)
	}
	if n, err := number(filepath.Join(root, "proc/sys/vm/overcommit_memory")); err == nil && n == 2 {
		if free := (field(meminfo, "CommitLimit:") - field(meminfo, "Committed_AS:")) << 10; free < bytes {
			return fmt.Errorf("the kernel promises only %d MB more", free>>20)
		}
	}
	for _, l := range limits {
		free, err := l.left(root)
		if err != nil {
			return err
		}
		if free < bytes {
			return fmt.Errorf("%s leaves this process %d MB", l.name, max(free, 0)>>20)
		}
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

// limit is one of the process: how /proc/self/limits calls it, and /proc/self/status what there is
// of it now.
type limit struct{ name, limits, used string }

var limits = []limit{
	{"RLIMIT_AS", "Max address space", "VmSize:"},
	{"RLIMIT_DATA", "Max data size", "VmData:"},
}

// left is how much more the process may have by l, in bytes.
func (l limit) left(root string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/limits"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		rest, is := strings.CutPrefix(line, l.limits)
		if f := strings.Fields(rest); is && len(f) > 0 && f[0] != "unlimited" { // the soft one is first
			n, err := strconv.ParseInt(f[0], 10, 64)
			return n - field(filepath.Join(root, "proc/self/status"), l.used)<<10, err
		}
	}
	return math.MaxInt64, nil
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
