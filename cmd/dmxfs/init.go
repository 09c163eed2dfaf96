package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/daemon"
	"github.com/dmxfs/dmxfs/internal/doctor"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/trouble"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// setup is what `dmxfs init` is told.
type setup struct {
	source, mountpoint string
	first              bool // no cluster is there, and this host founds it
	fstab              bool // a line of fstab, not a unit
	dryRun             bool
	listen             []string
	exclusive          []string
	etc, state         string // /etc and /var/lib/dmxfs, but in tests
	options            []string
}

func newInitCommand(s streams) *cobra.Command {
	var x setup
	c := &cobra.Command{
		Use: "init [flags] [SOURCE] MOUNTPOINT", Short: "Write what mounts a shared directory at every boot, and say what was written",
		Long: `Write what mounts a shared directory at every boot of this host: a configuration
of dmxfs@NAME.service, or with --fstab a line of fstab. Before that it asks the
doctor whether the directory is fit for dmxfs, and takes the options that it
advises. It mounts nothing, changes no file that is there but for the line of
fstab, and says what it has written and what comes next.

  dmxfs init --first /mnt/raw /mnt/shared     on the first host
  dmxfs init /mnt/raw /mnt/shared             on all others

On all but the first host there must be a cluster in SOURCE: where there is none,
most likely the shared directory is not mounted.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	f := c.Flags()
	f.BoolVar(&x.first, "first", false, "this is the first host, and makes the cluster")
	f.BoolVar(&x.fstab, "fstab", false, "write a line of fstab, not a configuration of dmxfs@NAME.service")
	f.BoolVar(&x.dryRun, "dry-run", false, "write nothing, and say what would be written")
	f.StringSliceVar(&x.listen, "listen", nil, "multiaddr to listen on for other daemons, such as /ip4/0.0.0.0/tcp/7654, for firewalls that want to know the port; may be repeated")
	f.StringArrayVar(&x.exclusive, "exclusive", nil, "`GLOB=ALGORITHM`: a rule of the policy that is written with --first; may be repeated, see dmxfs policy")
	noDoctor := f.Bool("no-doctor", false, "do not examine the shared directory, which takes some 15 s")
	f.StringVar(&x.etc, "etc", "/etc", "write below this `directory`")
	f.StringVar(&x.state, "state", "/var/lib/dmxfs", "`directory` below which the mount has its state")
	c.RunE = func(c *cobra.Command, args []string) error {
		x.mountpoint = args[len(args)-1]
		x.source = args[0]
		if err := x.check(); err != nil {
			return err
		}
		if !*noDoctor {
			if err := x.askDoctor(c.Context(), s); err != nil {
				return err
			}
		}
		return x.write(s)
	}
	return c
}

// check says what is wrong before anything is examined or written.
func (x *setup) check() error {
	for _, p := range []*string{&x.source, &x.mountpoint, &x.etc, &x.state} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("path %q: %w", *p, err)
		}
		*p = abs
	}
	if st, err := os.Stat(x.source); err != nil {
		return trouble.Directory(config.Config{Source: x.source}, x.source, err)
	} else if !st.IsDir() {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%s is not a directory", x.source))
	}
	if all, err := mountinfo.Read(); err != nil {
		return err
	} else if m, ok := mountinfo.At(all, x.source); ok && m.Type == mountpoint.Type {
		return exitcode.With(exitcode.Busy, fmt.Errorf("%s is a mount of dmxfs: give the shared directory itself (unmount it first, if it is mounted in place)", x.source))
	}
	written := x.source + x.mountpoint
	if x.fstab { // all of it is one line there
		written += x.state + x.etc + strings.Join(x.listen, "")
	}
	if strings.ContainsAny(written, ",%\\\"") || strings.ContainsFunc(written, func(r rune) bool { return unicode.IsControl(r) || x.fstab && unicode.IsSpace(r) }) {
		return exitcode.With(exitcode.Usage, errors.New("a directory has a character in its name that files of configuration do not take as it is: write them by hand, see mount.fuse.dmxfs(8)"))
	}
	if _, err := daemon.ListenAddrs(x.listen); err != nil { // now, not at the next boot
		return exitcode.With(exitcode.Usage, fmt.Errorf("--listen: %w", err))
	}
	_, err := os.Stat(filepath.Join(x.source, register.Name, register.ClusterFile))
	switch {
	case err == nil && x.first:
		return exitcode.With(exitcode.Refused, fmt.Errorf("there is a cluster in %s: this is not its first host; leave --first out", x.source))
	case errors.Is(err, fs.ErrNotExist) && !x.first:
		return exitcode.With(exitcode.Refused, fmt.Errorf("no cluster is in %s: is the shared directory mounted there? If it is, and this is the first host of all, give --first", x.source))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look for a cluster: %w", err)
	case len(x.exclusive) > 0 && !x.first:
		return exitcode.With(exitcode.Usage, errors.New("--exclusive is for the first host: the others take the rules of the cluster, which dmxfs policy set changes"))
	}
	return nil
}

// askDoctor examines the directory from two sides of this host, which finds what
// it lacks altogether. What another host sees only that one can tell.
func (x *setup) askDoctor(ctx context.Context, s streams) error {
	fmt.Fprintf(s.err, "examining %s, some 15 s (--no-doctor leaves that out)\n", printing.Text(x.source))
	found, err := consult(ctx, s, []string{x.source, x.source}, "", 2*time.Minute)
	if err != nil {
		return fmt.Errorf("the doctor: %w (--no-doctor goes on without)", err)
	}
	for _, f := range found.Findings {
		if f.Result == doctor.ResultBad {
			fmt.Fprintf(s.err, "  %s: %s\n", f.Check, f.Text)
		}
	}
	fmt.Fprintf(s.out, "The doctor: %s\n", found.Verdict)
	if !found.Fit {
		return exitcode.With(exitcode.Failure, fmt.Errorf("%s is not fit for dmxfs; nothing was written", x.source))
	}
	for _, o := range found.Options {
		x.options = append(x.options, strings.TrimPrefix(o, "--"))
	}
	return nil
}

// newFile is a file that is to be written; add: at the end of what is there.
type newFile struct {
	path, text string
	add        bool
}

// files are what is to be written, and what comes after it.
func (x *setup) files() (all []newFile, next []string, err error) {
	name := x.name()
	state := filepath.Join(x.state, name)
	if policy := (config.Config{Exclusive: x.exclusive}); len(x.exclusive) > 0 {
		if err := policy.ReadPolicy(); err != nil {
			return nil, nil, err
		}
		path := filepath.Join(x.etc, "dmxfs", name+".policy.toml")
		all = append(all, newFile{path: path, text: policy.Rules})
		x.options = append(x.options, "policy="+path)
	}
	if x.fstab {
		o := append([]string{"state=" + state}, x.options...)
		if !x.first {
			o = append(o, "join")
		}
		for _, l := range x.listen {
			o = append(o, "listen="+l)
		}
		o = append(o, "_netdev", "nofail", "x-systemd.requires-mounts-for="+x.source)
		line := fmt.Sprintf("%s %s %s %s 0 0\n", x.source, x.mountpoint, mountpoint.Type, strings.Join(o, ","))
		return append(all, newFile{filepath.Join(x.etc, "fstab"), line, true}), []string{"mount " + x.mountpoint}, nil
	}
	text, err := x.config(state)
	if err != nil {
		return nil, nil, err
	}
	unit := "dmxfs@" + name + ".service"
	return append(all, newFile{path: filepath.Join(x.etc, "dmxfs", name+".toml"), text: text},
			newFile{path: filepath.Join(x.etc, "systemd/system", unit+".d/storage.conf"), text: "# The shared directory is mounted first.\n[Unit]\nRequiresMountsFor=\"" + x.source + "\"\n"}),
		[]string{"systemctl daemon-reload", "systemctl enable --now '" + unit + "'"}, nil
}

// name is NAME of the mount point. One that was set up by an earlier version keeps
// the name, and with it the state directory, that it got then.
func (x *setup) name() string {
	former := formerName(x.mountpoint)
	b, err := os.ReadFile(filepath.Join(x.etc, "dmxfs", former+".toml"))
	if err == nil {
		// A later version may have written keys that this one does not know.
		var file map[string]any
		if toml.Unmarshal(b, &file) == nil && file[config.KeyMountpoint] == x.mountpoint {
			return former
		}
	}
	b, _ = os.ReadFile(filepath.Join(x.etc, "fstab"))
	for line := range strings.Lines(string(b)) {
		if point, state := stateOfLine(line); point == x.mountpoint && state == filepath.Join(x.state, former) {
			return former
		}
	}
	return unitName(x.mountpoint)
}

// stateOfLine is the mount point and the state directory in a line of fstab for
// dmxfs; empty if it is none.
func stateOfLine(line string) (point, state string) {
	w := strings.Fields(line)
	if len(w) < 4 || strings.HasPrefix(w[0], "#") || w[2] != mountpoint.Type {
		return "", ""
	}
	for o := range strings.SplitSeq(w[3], ",") {
		if s, ok := strings.CutPrefix(o, "state="); ok {
			state = filepath.Clean(s)
		}
	}
	return filepath.Clean(w[1]), state
}

// unitName is NAME of a mount point, which no other one has: as systemd-escape(1)
// writes a path, but with _2d for a hyphen where that has \x2d, which not all
// files of configuration take as it is.
func unitName(mountpoint string) string {
	var b strings.Builder
	for _, c := range []byte(strings.TrimPrefix(mountpoint, "/")) {
		switch {
		case c == '/':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// formerName is what NAME was before: several mount points could have the same.
func formerName(mountpoint string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '/':
			return '-'
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-", r):
			return r
		}
		return '_'
	}, strings.TrimPrefix(mountpoint, "/"))
}

// config is the file for dmxfs@NAME.service.
func (x *setup) config(state string) (string, error) {
	keys := config.FileKeys(new(config.Config).Flags())
	file := map[string]any{config.KeyMountpoint: x.mountpoint, "state": state}
	if x.source != x.mountpoint {
		file[config.KeySource] = x.source
	}
	if !x.first {
		file["join"] = true
	}
	if len(x.listen) > 0 {
		file["listen"] = x.listen
	}
	for _, o := range x.options {
		key, value, _ := strings.Cut(o, "=")
		if keys[key] != reflect.TypeFor[string]() {
			return "", fmt.Errorf("the doctor advises %s, which init cannot write: write the configuration by hand", o)
		}
		file[key] = value
	}
	b, err := toml.Marshal(file)
	if err != nil {
		return "", fmt.Errorf("the configuration: %w", err)
	}
	return "# By dmxfs init; the keys are the flags of dmxfs mount.\n" + string(b), nil
}

// write writes all of it, or what there is to write is said only.
func (x *setup) write(s streams) error {
	all, next, err := x.files()
	if err != nil {
		return err
	}
	for i, f := range all {
		if all[i].text, err = f.missing(x.mountpoint); err != nil {
			return err
		}
	}
	all = append([]newFile{{path: x.mountpoint + "/"}}, all...)
	for _, f := range all {
		done, err := f.make(x.dryRun)
		if err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
		fmt.Fprintf(s.out, "%s %s\n", done, printing.Text(f.path))
		for line := range strings.Lines(f.text) {
			fmt.Fprintf(s.out, "    %s\n", printing.Text(strings.TrimSuffix(line, "\n")))
		}
	}
	fmt.Fprintln(s.out, "Next:")
	for _, n := range next {
		fmt.Fprintf(s.out, "    %s\n", printing.Text(n))
	}
	if x.first {
		fmt.Fprintf(s.out, "Then, on each other host: dmxfs init %s. What two hosts see of the storage, dmxfs doctor tells.\n", printing.Text(strings.TrimPrefix(x.source+" "+x.mountpoint, x.mountpoint+" ")))
	}
	return nil
}

// missing is what of f is not there yet. An error says that something else is.
func (f newFile) missing(point string) (string, error) {
	b, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.text, nil
	case err != nil:
		return "", fmt.Errorf("read %s: %w", f.path, err)
	case f.add:
		_, state := stateOfLine(f.text)
		for line := range strings.Lines(string(b)) {
			if w := strings.Fields(line); len(w) > 2 && !strings.HasPrefix(w[0], "#") && filepath.Clean(w[1]) == point {
				if strings.TrimSuffix(line, "\n") == strings.TrimSuffix(f.text, "\n") {
					return "", nil
				}
				if w[2] != mountpoint.Type {
					return "", exitcode.With(exitcode.Busy, fmt.Errorf("%s mounts something else at %s already, and systemd takes one line for a mount point: dmxfs would not be mounted at boot; leave --fstab out, or take another mount point", f.path, point))
				}
				return "", exitcode.With(exitcode.Busy, fmt.Errorf("%s has a line for %s already, which is another one; take it out first: %s", f.path, point, strings.TrimSpace(line)))
			}
			if other, has := stateOfLine(line); has != "" && has == state {
				return "", exitcode.With(exitcode.Busy, fmt.Errorf("%s has a line for %s with the same state directory, %s, which only one mount can have: give that line another one, or this one by --state", f.path, other, state))
			}
		}
		if len(b) > 0 && !bytes.HasSuffix(b, []byte("\n")) {
			return "\n" + f.text, nil
		}
		return f.text, nil
	case string(b) != f.text:
		return "", exitcode.With(exitcode.Busy, fmt.Errorf("%s is there already, and says something else: move it away first", f.path))
	}
	return "", nil
}

// make writes f, or makes the directory that its path ends in, and says what it
// has done.
func (f newFile) make(dry bool) (string, error) {
	dir := filepath.Dir(f.path)
	_, err := os.Stat(f.path)
	switch {
	case strings.HasSuffix(f.path, "/") && err == nil, !strings.HasSuffix(f.path, "/") && f.text == "":
		return "is there already:", nil
	case dry && f.add:
		return "would add to", nil
	case dry:
		return "would write", nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if strings.HasSuffix(f.path, "/") {
		return "made", nil
	}
	how, done := os.O_CREATE|os.O_EXCL, "wrote"
	if f.add {
		how, done = os.O_CREATE|os.O_APPEND, "added to"
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|how, 0o644)
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(f.text)
	return done, errors.Join(err, file.Sync(), file.Close())
}
