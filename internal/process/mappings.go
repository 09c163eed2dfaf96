package process

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Mapping is a part of this process's memory, as /proc/self/smaps tells of it. See
// proc_pid_maps(5) and proc_pid_smaps(5).
type Mapping struct {
	From, To uintptr
	Mode     string // as "r-xp"
	File     string // its path, or a name like "[stack]"; empty: memory without a file
	// Own and Huge are, in bytes, what of it has no file behind it (any more), in memory or
	// swapped out, and what of that is in huge pages.
	Own, Huge int
}

// Remapping is held by who changes mappings of this process by what Mappings has told, until
// that is done: dropped as pages of the program's file must not be others that have taken
// their place meanwhile.
var Remapping sync.Mutex

// Mappings lists all memory of this process, by its addresses.
func Mappings() ([]Mapping, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Mapping
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if strings.Contains(name, " ") { // "from-to mode offset device", and more behind a colon
			m, err := parseMapping(lines.Text())
			if err != nil {
				return nil, err
			}
			all = append(all, m)
			continue
		}
		if len(all) == 0 {
			continue
		}
		m := &all[len(all)-1]
		switch name {
		case "Anonymous", "Swap":
			m.Own += kilobytes(rest)
		case "AnonHugePages":
			m.Huge = kilobytes(rest)
		}
	}
	return all, lines.Err()
}

// parseMapping reads the first line about a mapping: "from-to mode offset device inode path".
func parseMapping(line string) (Mapping, error) {
	where, rest, _ := strings.Cut(line, " ")
	lo, hi, _ := strings.Cut(where, "-")
	from, err := strconv.ParseUint(lo, 16, 64)
	if err != nil {
		return Mapping{}, fmt.Errorf("/proc/self/smaps: %w", err)
	}
	to, err := strconv.ParseUint(hi, 16, 64)
	if err != nil {
		return Mapping{}, fmt.Errorf("/proc/self/smaps: %w", err)
	}
	m := Mapping{From: uintptr(from), To: uintptr(to)}
	for i := range 4 {
		var field string
		field, rest, _ = strings.Cut(rest, " ")
		if i == 0 {
			m.Mode = field
		}
	}
	m.File = strings.TrimLeft(rest, " ")
	return m, nil
}

// kilobytes reads "   12 kB", in bytes; 0 if it is something else.
func kilobytes(s string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(s), " kB"))
	return n << 10
}
