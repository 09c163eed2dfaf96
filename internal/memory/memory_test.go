package memory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Memory is short where the machine has none, or a control group of either version, at any
// level, where pages of files that can be dropped count as free; and where the kernel would refuse
// it.
func TestSpare(t *testing.T) {
	const plenty = "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n"
	v1, v2 := "sys/fs/cgroup/memory", "sys/fs/cgroup"
	for name, c := range map[string]struct {
		files map[string]string
		want  string // "": there is enough
	}{
		"no limit": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0::/a/b\n", v2 + "/a/b/memory.max": "max\n", v2 + "/a/b/memory.current": "1000\n"}, ""},
		"machine":  {map[string]string{"proc/meminfo": "MemAvailable: 30000 kB\n", "proc/self/cgroup": ""}, "29 MB of memory are available"},
		"version 2": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0::/a/b\n", v2 + "/a/b/memory.max": "67108864\n", v2 + "/a/b/memory.current": "33554432\n"},
			"only 32 MB are left"},
		"throttled": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0::/a\n", v2 + "/a/memory.max": "max\n", v2 + "/a/memory.high": "67108864\n", v2 + "/a/memory.current": "33554432\n"},
			"only 32 MB are left"},
		"its parent": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0::/a/b\n", v2 + "/a/memory.max": "67108864\n", v2 + "/a/memory.current": "33554432\n"},
			"only 32 MB are left"},
		"files": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0::/\n", v2 + "/memory.max": "167108864\n", v2 + "/memory.current": "160000000\n", v2 + "/memory.stat": "anon 1\ninactive_file 150000000\n"},
			""},
		"version 1": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "12:cpu,cpuacct:/x\n4:memory:/a\n0::/x\n", v1 + "/a/memory.limit_in_bytes": "67108864\n", v1 + "/a/memory.usage_in_bytes": "33554432\n"},
			"only 32 MB are left"},
		"unlimited version 1": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "4:memory:/a\n", v1 + "/a/memory.limit_in_bytes": "9223372036854771712\n", v1 + "/a/memory.usage_in_bytes": "33554432\n"},
			""},
		"container": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "4:memory:/docker/0123\n", v1 + "/memory.limit_in_bytes": "67108864\n", v1 + "/memory.usage_in_bytes": "67108864\n"},
			"only 0 MB are left"},
		"outside": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0::/../other\n", v2 + "/memory.max": "67108864\n", v2 + "/memory.current": "67108864\n"},
			"only 0 MB are left"},
		"nothing promised": {map[string]string{"proc/meminfo": plenty + "CommitLimit: 5000000 kB\nCommitted_AS: 4990000 kB\n", "proc/self/cgroup": "", "proc/sys/vm/overcommit_memory": "2\n"},
			"promises only 9 MB"},
		"all promised": {map[string]string{"proc/meminfo": plenty + "CommitLimit: 5000000 kB\nCommitted_AS: 4990000 kB\n", "proc/self/cgroup": "", "proc/sys/vm/overcommit_memory": "0\n"},
			""},
		"limit of data": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "", "proc/self/status": "VmSize:\t 9000 kB\nVmData:\t   60000 kB\n",
			"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \nMax data size             104857600            unlimited            bytes     \nMax address space         unlimited            unlimited            bytes     \n"},
			"RLIMIT_DATA leaves this process 41 MB"},
		"limit of addresses": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "", "proc/self/status": "VmSize:\t 200000 kB\n",
			"proc/self/limits": "Max address space         104857600            unlimited            bytes     \n"},
			"RLIMIT_AS leaves this process 0 MB"},
		"limits of more": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "", "proc/self/status": "VmSize:\t 20000 kB\nVmData:\t   6000 kB\n",
			"proc/self/limits": "Max data size             104857600            unlimited            bytes     \nMax address space         204857600            unlimited            bytes     \n"}, ""},
		"nonsense": {map[string]string{"proc/meminfo": plenty, "proc/self/cgroup": "0\n:::\n0::\n", v2 + "/memory.max": "many\n"}, ""},
	} {
		root := t.TempDir()
		if _, is := c.files["proc/self/limits"]; !is {
			c.files["proc/self/limits"] = "Max data size             unlimited            unlimited            bytes     \n"
		}
		for file, text := range c.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		switch err := spare(root, 64<<20); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := spare(t.TempDir(), 1); err == nil {
		t.Error("there is enough where nothing is known")
	}
}
