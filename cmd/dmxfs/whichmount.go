package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// fsType is the type of our mounts in the kernel's list.
const fsType = fusefs.MountType

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
	all, err := mountinfo.Read()
	if err != nil {
		return "", err
	}
	var points []string
	for _, m := range all {
		if m.Type == fsType && !slices.Contains(points, m.Point) {
			points = append(points, m.Point)
		}
	}
	switch len(points) {
	case 1:
		return points[0], nil
	case 0:
		return "", exitcode.With(exitcode.NoMount, errors.New("no dmxfs is mounted on this host; name a mount point to see what is left of it"))
	}
	return "", exitcode.With(exitcode.Usage, fmt.Errorf("this host has %d dmxfs mounts, name one of them: %s", len(points), strings.Join(points, " ")))
}
