package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// optionProblem is err, of the mount options, with what may have been meant by
// those that are unknown.
func optionProblem(err error, options []string, flags *pflag.FlagSet) error {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, o := range options {
		name, _, _ := strings.Cut(o, "=")
		if n := Nearest(name, append(names, "allow_other", "noatime", "nosuid", "nodev", "noexec")); n != "" && n != name && strings.Contains(err.Error(), o) {
			return fmt.Errorf("%w; is %s meant? (see dmxfs mount --help)", err, n)
		}
	}
	return fmt.Errorf("%w (those that are known are in dmxfs mount --help)", err)
}

// Nearest is the name that is most like s, or empty if none is much like it.
func Nearest(s string, names []string) string {
	best, least := "", 1+len(s)/3
	for _, n := range names {
		if d := distance(s, n); d <= least {
			best, least = n, d-1
		}
	}
	return best
}

// distance is how many letters must be put in, taken away, replaced, or swapped
// with the next one, to make b of a.
func distance(a, b string) int {
	var before []int
	last, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
