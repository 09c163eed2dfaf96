package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/policy"
)

// Config is what a mount is made of, from flags, -o options and a file.
type Config struct {
	// Source is the shared directory, Mountpoint where programs see it. They
	// are the same for a mount in place.
	Source, Mountpoint string
	// State is the directory of the journal and the identity key. It belongs
	// to one mount and must not be on the shared directory.
	State string
	// Listen are the multiaddrs to listen on for other daemons.
	Listen []string
	// Peers are multiaddrs to look for other daemons, beside those that the
	// shared directory tells of.
	Peers []string
	// MDNS announces this daemon on every network interface.
	MDNS bool
	// Secret is the file with the cluster's secret; empty: the one that the
	// first daemon left on the shared directory.
	Secret string
	// Restored: the storage was restored from a copy, and nobody else uses it.
	Restored bool
	// Join: where there is no cluster none is founded.
	Join bool
	// Exclusive are rules GLOB=ALGORITHM. PolicyFile is a file with more of
	// them, behind those. Rules is the canonical text of both, so that a
	// daemon that is started anew asks for the same.
	Exclusive  []string
	PolicyFile string
	Rules      string
	// FileID says what makes two hosts' paths the same file: auto, inode or
	// path.
	FileID string
	// MaxLocks is how many locks one process may have, waits included.
	MaxLocks int
	// Journal is what becomes of locks while the journal cannot be written:
	// best-effort, or required, with which no new ones are granted.
	Journal string
	// MountOptions are those of the -o options that FUSE and mount(8) know.
	MountOptions []string

	// Restart: a daemon that dies is started anew.
	Restart bool
	// Takeover: the next one goes on with what it held.
	Takeover bool

	// SmallPages: the memory of the daemon is not put into huge pages.
	SmallPages bool `json:",omitempty"`

	// FenceCommand is run by the shell before a member that does not answer is
	// dropped, and must succeed for that; empty: there is none.
	FenceCommand string

	// Metrics is the TCP address on which metrics are shown; empty: on none.
	Metrics string

	LogLevel  string
	LogFormat string

	Times

	// Replace: a dead mount is at the mount point. Set by the watcher.
	Replace bool
}

// JournalRequired is the value of --journal with which there is no lock without its
// record.
const JournalRequired = "required"

// Flags are the settings that can be given as a flag, as an option behind -o
// and as a key of a TOML file, by the same name.
func (c *Config) Flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	f.StringVar(&c.State, "state", "", "directory of this mount's journal and key (default below the user's state directory, named for the mount point)")
	f.StringSliceVar(&c.Listen, "listen", nil, "multiaddr to listen on for other daemons, may be repeated (default /ip4/0.0.0.0/tcp/0 and /ip6/::/tcp/0)")
	f.StringSliceVar(&c.Peers, "peer", nil, "multiaddr of another daemon, with /p2p/ID at its end; may be repeated (normally not needed: the shared directory tells)")
	f.BoolVar(&c.MDNS, "mdns", false, "announce this daemon and look for others by multicast DNS, on every network interface")
	f.StringVar(&c.Secret, "secret", "", "file with the secret of the cluster, at least 32 bytes (default: the one on the shared directory)")
	f.BoolVar(&c.Restored, "restored", false, "go on although the shared directory has lost what this host knows of its cluster, since it was restored from a backup or a snapshot: fencing tokens go on above the last ones. On one host, once, while no other one has it mounted")
	f.BoolVar(&c.Join, "join", false, "join the cluster of the shared directory, never found one: without it a host on which the storage is not mounted locks files among its own programs only. For all mounts but the first: fstab, systemd")
	f.StringArrayVar(&c.Exclusive, "exclusive", nil, "`GLOB=ALGORITHM`: serve files below the root that match GLOB, such as 'spool/**', with exclusive locks by rcv, maekawa or ring; may be repeated, the first match wins. All members of a cluster have the same rules, see dmxfs policy")
	f.StringVar(&c.PolicyFile, "policy", "", "TOML `file` with more rules, see dmxfs policy")
	f.StringVar(&c.FileID, "file-id", "auto", "what makes two hosts' paths the same file, for the whole cluster: inode, path, or auto: as the cluster does, and for the first host by the storage")
	f.StringVar(&c.Journal, "journal", "best-effort", "while the disk of the journal is full or fails: best-effort grants locks and keeps their history in memory as far as it goes, required refuses new locks (ENOLCK)")
	f.IntVar(&c.MaxLocks, "max-locks", engine.DefaultMaxLocks, "how many locks one process may have, waits included; it gets ENOLCK for more")
	c.Times.flags(f)
	f.BoolVar(&c.Restart, "restart", true, "start the daemon anew when it dies; programs get errors meanwhile")
	f.BoolFunc("no-restart", "the same as --restart=false", func(string) error { c.Restart = false; return nil })
	f.BoolVar(&c.Takeover, "takeover", true, "when the daemon is killed, or crashes, the next one goes on with its open files and locks: programs wait for a moment, and get no errors. Not with --no-restart or --journal=required")
	f.BoolVar(&c.SmallPages, "small-pages", false, "leave the daemon's code and data in small pages of memory: some 20 MB less, that cannot be dropped and read again, and perf(1) and probes see its code; locks pass from program to program more slowly")
	f.StringVar(&c.FenceCommand, "fence-command", "", "shell command that cuts a host off from the storage; it must succeed before a member that does not answer is dropped and its locks come free. Its environment has DMXFS_PEER, DMXFS_HOST, DMXFS_ADDRS, DMXFS_BOOT_ID, DMXFS_MOUNT and DMXFS_SOURCE. Give it on every host")
	f.StringVar(&c.Metrics, "metrics", "", "`HOST:PORT` on which Prometheus reads metrics, at /metrics, without a password: best a loopback address, and one for each mount (default: none; dmxfs metrics shows them in any case)")
	f.StringVar(&c.LogLevel, "log-level", "info", "what to log: debug, info, warn or error")
	f.StringVar(&c.LogFormat, "log-format", "text", "how to log: text or json")
	return f
}

// setOptions takes the options behind -o: those of this program by the names
// of its flags, all others are kept for the mount.
func (c *Config) setOptions(options []string, flags *pflag.FlagSet) error {
	for _, o := range options {
		name, value, has := strings.Cut(o, "=")
		f := flags.Lookup(name)
		if f == nil {
			c.MountOptions = append(c.MountOptions, o)
			continue
		}
		if !has {
			if f.NoOptDefVal == "" {
				return exitcode.With(exitcode.Usage, fmt.Errorf("mount option %q needs a value: %s=…", name, name))
			}
			value = f.NoOptDefVal
		}
		if err := flags.Set(name, value); err != nil {
			return exitcode.With(exitcode.Usage, fmt.Errorf("mount option %q: %w", o, err))
		}
	}
	return nil
}

// SplitOptions splits what stands behind one -o at its commas; a backslash
// keeps the next character as it is.
func SplitOptions(s string) []string {
	var out []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == ',':
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteByte(s[i])
		}
	}
	out = append(out, b.String())
	kept := out[:0]
	for _, o := range out {
		if o = strings.TrimSpace(o); o != "" {
			kept = append(kept, o)
		}
	}
	return kept
}

// Validate says what is wrong with c. It changes nothing.
func (c *Config) Validate() error {
	var errs []error
	if c.Mountpoint == "" {
		errs = append(errs, errors.New("no mount point given: dmxfs [SOURCE] MOUNTPOINT"))
	}
	if _, err := LogLevel(c.LogLevel); err != nil {
		errs = append(errs, err)
	}
	switch c.LogFormat {
	case "text", "json":
	default:
		errs = append(errs, fmt.Errorf("--log-format %q: must be text or json", c.LogFormat))
	}
	if _, err := fusefs.ParseMountOptions(c.MountOptions); err != nil {
		errs = append(errs, optionProblem(err, c.MountOptions, new(Config).Flags()))
	}
	if _, err := c.Params(); err != nil {
		errs = append(errs, err)
	}
	if d := c.CacheTime; d != 0 && (d <= fusefs.DefaultTTL || d > fusefs.MaxCacheTime) {
		errs = append(errs, fmt.Errorf("--cache-time %v: must be more than %v and at most %v, or off", d, fusefs.DefaultTTL, fusefs.MaxCacheTime))
	}
	if err := metricsAddress(c.Metrics); err != nil {
		errs = append(errs, err)
	}
	if c.MaxLocks < 1 {
		errs = append(errs, fmt.Errorf("--max-locks %d: must be at least 1", c.MaxLocks))
	}
	if c.Takeover && !c.Restart {
		errs = append(errs, errors.New("--takeover and --no-restart: nobody goes on with a mount whose daemon is not started anew"))
	}
	if c.Takeover && c.Journal == JournalRequired {
		errs = append(errs, errors.New("--takeover and --journal required: the next daemon could not write the journal at once, which the one that was killed has still open; give one of them"))
	}
	if c.Journal != "best-effort" && c.Journal != JournalRequired {
		errs = append(errs, fmt.Errorf("--journal %q: must be best-effort or required", c.Journal))
	}
	switch c.FileID {
	case "auto", "inode", "path":
	default:
		errs = append(errs, fmt.Errorf("--file-id %q: must be auto, inode or path", c.FileID))
	}
	return exitcode.With(exitcode.Usage, errors.Join(errs...))
}

// LogLevel is the level that --log-level names.
func LogLevel(s string) (slog.Level, error) {
	var l slog.Level
	switch s {
	case "debug", "info", "warn", "error":
		return l, l.UnmarshalText([]byte(s))
	}
	return l, fmt.Errorf("--log-level %q: must be debug, info, warn or error", s)
}

// absolute makes the paths of c absolute, as the daemon changes its working
// directory.
func (c *Config) absolute() error {
	for _, p := range []*string{&c.Source, &c.Mountpoint, &c.State, &c.Secret, &c.PolicyFile} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("path %q: %w", *p, err)
		}
		*p = abs
	}
	if c.Source == "" {
		c.Source = c.Mountpoint
	}
	return nil
}

// metricsAddress says what is wrong with the address of --metrics.
func metricsAddress(addr string) error {
	if addr == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err == nil && port == "" {
		err = errors.New("no port")
	}
	if err == nil && host == "" {
		err = errors.New("no host: to listen on all addresses write 0.0.0.0 or [::]")
	}
	if err != nil {
		return fmt.Errorf("--metrics %q: must be HOST:PORT, such as 127.0.0.1:9799: %w", addr, err)
	}
	return nil
}

// Complete makes c whole: options, file, defaults, absolute paths.
func (c *Config) Complete(flags *pflag.FlagSet, options []string, file string) error {
	if err := c.setOptions(options, flags); err != nil {
		return err
	}
	if file != "" {
		if err := c.readFile(file, flags); err != nil {
			return err
		}
	}
	if !flags.Changed("takeover") && !c.mayTakeOver() {
		c.Takeover = false // only who asks for both is told that they exclude each other
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.absolute(); err != nil {
		return err
	}
	if c.State == "" {
		c.State = defaultState(c.Mountpoint)
	}
	return c.ReadPolicy()
}

// mayTakeOver is whether the other options allow a daemon to go on in the place of one that
// was killed.
func (c *Config) mayTakeOver() bool { return c.Restart && c.Journal != JournalRequired }

// ReadPolicy sets Rules to what the options ask for.
func (c *Config) ReadPolicy() error {
	asked, err := policy.ParseFlags("--exclusive", c.Exclusive)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	if c.PolicyFile != "" {
		file, err := ReadPolicyFile(c.PolicyFile)
		if err != nil {
			return err
		}
		if len(file.Rules) == 0 {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--policy: %s has no rules: to take the policy that the cluster has, leave the option out", c.PolicyFile))
		}
		if asked, err = asked.Join(file); err != nil {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--exclusive and --policy %s: %w", c.PolicyFile, err))
		}
	}
	c.Rules = asked.TOML()
	return nil
}

// ReadPolicyFile is the policy in a TOML file.
func ReadPolicyFile(path string) (*policy.Policy, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("read the policy: %w", err))
	}
	p, err := policy.Parse(path, string(b))
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	return p, nil
}
