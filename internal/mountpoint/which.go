package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// Type is the type of our mounts in the kernel's list.
const Type = fusefs.MountType

// Which finds the mount point that a command is about: its argument, or
// the only one on this host.
func Which(args []string) (string, error) {
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
	all, err := mountinfo.Read()
	if err != nil {
		return "", err
	}
	points := pointsOf(all)
	switch len(points) {
	case 1:
		return points[0], nil
	case 0:
		return "", exitcode.With(exitcode.NoMount, errors.New("no dmxfs is mounted on this host; name a mount point to see what is left of it"))
	}
	return "", exitcode.With(exitcode.Usage, fmt.Errorf("this host has %d dmxfs mounts, name one of them: %s", len(points), strings.Join(points, " ")))
}

// All are the mount points of dmxfs on this host, each once.
func All() ([]string, error) {
	all, err := mountinfo.Read()
	return pointsOf(all), err
}

func pointsOf(all []mountinfo.Mount) (points []string) {
	for _, m := range all {
		if m.Type == Type && !slices.Contains(points, m.Point) {
			points = append(points, m.Point)
		}
	}
	return points
}

// Above is the mount point that a path is below, or is; empty if there is none. The
// path is absolute, and is not looked at.
func Above(path string) (best string) {
	points, err := All()
	if err != nil {
		return ""
	}
	for _, p := range points {
		if rel, err := filepath.Rel(p, path); err == nil && filepath.IsLocal(rel) && len(p) > len(best) {
			best = p
		}
	}
	return best
}

// Relative is path as the daemon of a mount point knows it: relative to that.
func Relative(mountpoint, path string) string {
	if !filepath.IsAbs(path) {
		return strings.TrimPrefix(path, "./")
	}
	below := func(p string) (string, bool) {
		rel, err := filepath.Rel(mountpoint, p)
		return rel, err == nil && filepath.IsLocal(rel)
	}
	if rel, ok := below(path); ok { // a daemon that is stopped is not asked for it
		return rel
	}
	if rel, ok := below(resolved(path, filepath.EvalSymlinks)); ok {
		return rel
	}
	return path
}

// resolveTime is how long the links in a path may take: one may lead into storage,
// or a mount, that does not answer.
const resolveTime = time.Second

// resolved is path with the links in its directory resolved, if they can be, and
// soon.
func resolved(path string, links func(string) (string, error)) string {
	dir := make(chan string, 1)
	go func() { // left behind if it hangs: the command ends soon
		if d, err := links(filepath.Dir(path)); err == nil {
			dir <- filepath.Join(d, filepath.Base(path))
		} else {
			dir <- path
		}
	}()
	select {
	case p := <-dir:
		return p
	case <-time.After(resolveTime):
		return path
	}
}
