package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const fsType = "fuse.dmxfs"

// mountEntry is a line of /proc/self/mountinfo, see proc(5).
type mountEntry struct {
	point, source, fsType string
}

// mounts lists the mounts of this process's namespace, in mount order.
func mounts() ([]mountEntry, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMountinfo(string(b)), nil
}

func parseMountinfo(s string) []mountEntry {
	var out []mountEntry
	for line := range strings.Lines(s) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if ok && len(f) >= 5 && len(g) >= 2 {
			out = append(out, mountEntry{unescape(f[4]), unescape(g[1]), g[0]})
		}
	}
	return out
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			var c byte
			if _, err := fmt.Sscanf(s[i+1:i+4], "%03o", &c); err == nil {
				b.WriteByte(c)
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountedAt is what is mounted on top at point; ok is false if nothing is.
func mountedAt(all []mountEntry, point string) (mountEntry, bool) {
	for _, m := range slices.Backward(all) {
		if m.point == point {
			return m, true
		}
	}
	return mountEntry{}, false
}

// whichMount finds the mount point that a command is about: its argument, or
// the only one on this host.
func whichMount(args []string) (string, error) {
	if len(args) > 0 {
		p, err := filepath.Abs(args[0])
		if err != nil {
			return "", err
		}
		// The path may lead there through links; a dead mount can't be
		// resolved, so its parent is.
		if dir, err := filepath.EvalSymlinks(filepath.Dir(p)); err == nil {
			p = filepath.Join(dir, filepath.Base(p))
		}
		if to, err := os.Readlink(p); err == nil {
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(p), to)
			}
			if r, err := filepath.EvalSymlinks(to); err == nil {
				p = r
			}
		}
		return p, nil
	}
	all, err := mounts()
	if err != nil {
		return "", err
	}
	var points []string
	for _, m := range all {
		if m.fsType == fsType && !slices.Contains(points, m.point) {
			points = append(points, m.point)
		}
	}
	switch len(points) {
	case 1:
		return points[0], nil
	case 0:
		return "", withCode(exitNoMount, errors.New("no dmxfs is mounted on this host; name a mount point to see what is left of it"))
	}
	return "", withCode(exitUsage, fmt.Errorf("this host has %d dmxfs mounts, name one of them: %s", len(points), strings.Join(points, " ")))
}
