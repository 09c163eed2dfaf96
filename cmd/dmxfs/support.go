package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/crash"
	"github.com/dmxfs/dmxfs/internal/journalview"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/support"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/journal"
)

// aboutSupport stands before the list of what an archive has.
const aboutSupport = `What a dmxfs mount told of itself, made by "dmxfs support". Left out are the secret
of the cluster, the key of the node, the fence command and what files contain. It has
names of files that are locked, of hosts, users' IDs and programs: read it before you
give it to somebody.
`

// supportJournal is how many records of the journal an archive has.
const supportJournal = 5000

func newSupportCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "support [MOUNTPOINT]", Short: "Put what helps to find out what is wrong into one archive",
		Long: `Write an archive (tar.gz) of the mount's status, peers, locks, waits and metrics, the
end of the journal and of the log, options, rules, versions, the mount options of the
storage, and what "dmxfs doctor" last found of it, and tell what is in it. It is made also when the daemon is stopped or
does not run, of what can be had then.

The secret of the cluster, the key of the node, the fence command and what files
contain are left out. Names of files, hosts and programs are in it.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	asJSON := c.Flags().Bool("json", false, "tell what is in it as JSON for programs")
	file := c.Flags().StringP("output", "o", "", "the archive; - is standard output (default dmxfs-support-HOST-TIME.tar.gz here)")
	clientFor := ask.TimeoutFlag(c.Flags(), 10*time.Second)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		cl.Messages = io.Discard
		now := time.Now()
		host, _ := os.Hostname()
		name := fmt.Sprintf("dmxfs-support-%s-%s", strings.ReplaceAll(host, "/", "_"), now.UTC().Format("20060102T150405Z"))
		files := support.Collect(c.Context(), cl.Timeout, supportItems(cl, r), supportSecrets(c.Context(), cl, r))
		out, told := s.out, s.err
		var f *os.File
		if *file != "-" {
			if *file == "" {
				*file = name + ".tar.gz"
			}
			if f, err = os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			out, told = f, s.out
		}
		err = support.Write(out, name, now, aboutSupport, files)
		if f != nil {
			if err = errors.Join(err, f.Close()); err != nil {
				return errors.Join(err, os.Remove(*file))
			}
		}
		if err != nil {
			return err
		}
		return tellSupport(told, *file, files, *asJSON)
	}
	return c
}

// tellSupport tells what is in an archive.
func tellSupport(w io.Writer, file string, files []support.File, asJSON bool) error {
	if !asJSON {
		fmt.Fprintf(w, "%s has:\n%s", printing.Text(file), printing.Lines(support.Contents(files)))
		return nil
	}
	type fileJSON struct {
		Name    string `json:"name"`
		What    string `json:"what"`
		Bytes   int    `json:"bytes"`
		Removed int    `json:"removed"`
		Error   string `json:"error"`
	}
	list := []fileJSON{}
	for _, f := range files {
		x := fileJSON{Name: f.Name, What: f.What, Bytes: len(f.Data), Removed: f.Removed}
		if f.Err != nil {
			x.Error = f.Err.Error()
		}
		list = append(list, x)
	}
	return printing.JSON(w, struct {
		File  string     `json:"file"`
		Files []fileJSON `json:"files"`
	}{file, list})
}

// supportSecrets are what no archive may have: what the state directory keeps secret,
// what the daemon has, and the fence command, in which passwords of power switches are.
func supportSecrets(ctx context.Context, cl *admin.Client, r statedir.Registration) (all [][]byte) {
	if k, err := nodestate.ReadSecrets(r.State); err == nil {
		all = append(all, k.All()...)
	}
	if b, err := os.ReadFile(filepath.Join(r.State, "identity.key")); err == nil {
		all = append(all, b)
	}
	ctx, cancel := context.WithTimeout(ctx, cl.Timeout/4)
	defer cancel()
	var s admin.Secret
	if cl.Get(ctx, "/secret", &s) == nil {
		all = append(all, []byte(s.Secret))
	}
	var cfg config.Config
	if cl.Get(ctx, "/options", &cfg) == nil {
		all = append(all, []byte(cfg.FenceCommand))
	}
	return all
}

// supportItems are the files of an archive.
func supportItems(cl *admin.Client, r statedir.Registration) []support.Item {
	asked := func(name, path, what string) support.Item {
		return support.Item{Name: name, What: what, Get: func(ctx context.Context) ([]byte, error) {
			resp, err := cl.Do(ctx, http.MethodGet, path)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		}}
	}
	own := func(name, what string, get func() ([]byte, error)) support.Item {
		return support.Item{Name: name, What: what, Get: func(context.Context) ([]byte, error) { return get() }}
	}
	return []support.Item{
		asked("status.json", "/status", "how the mount is doing"),
		asked("peers.json", "/peers", "the members"),
		asked("locks.json", "/locks?timeout=2s", "who holds which lock, in the cluster"),
		asked("waits.json", "/waits?timeout=2s", "who waits for whom, in the cluster"),
		asked("metrics.txt", "/metrics", "what was counted since the daemon began"),
		asked("policy.json", "/policy", "the rules"),
		{Name: "options.json", What: "the options of the mount", Get: func(ctx context.Context) ([]byte, error) { return supportOptions(ctx, cl) }},
		{Name: "journal.jsonl", What: fmt.Sprintf("the last %d records of the journal", supportJournal), Get: func(ctx context.Context) ([]byte, error) {
			return supportRecords(ctx, cl, r)
		}},
		own("dmxfs.log", "the end of the log of a mount in the background", func() ([]byte, error) {
			b, err := endOf(mountlog.Path(r.State), 4<<20)
			return support.WithoutValue(b, "fencing a member that does not answer", "command"), err
		}),
		own("crashes.txt", "what the Go runtime said of daemons that crashed", func() ([]byte, error) { return supportCrashes(r.State) }),
		own("stuck.txt", "what a daemon hung in that was ended for that", func() ([]byte, error) { return ifThere(filepath.Join(r.State, "stuck.txt")) }),
		own("versions.json", "what this program is, and the kernel", supportVersions),
		own("mounts.txt", "the mount, and that of the storage, from mountinfo", func() ([]byte, error) { return supportMounts(r) }),
		own("state.txt", "names and sizes in the state directory", func() ([]byte, error) { return listing(r.State) }),
		own("doctor.json", "what dmxfs doctor last found of the storage here, and when", func() ([]byte, error) { return supportVerdict(r.Source) }),
		own("storage.txt", "room on the storage, and names and sizes in .dmxfs", func() ([]byte, error) { return supportStorage(r) }),
	}
}

// supportOptions are the options of the mount. The value of the fence command is left
// out by its key: a daemon that was busy may not have told it when secrets were asked for.
func supportOptions(ctx context.Context, cl *admin.Client) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := cl.Get(ctx, "/options", &all); err != nil {
		return nil, err
	}
	return json.Marshal(withoutFence(all))
}

// withoutFence is options without the fence command, of which only is told that there is one.
func withoutFence(all map[string]json.RawMessage) map[string]json.RawMessage {
	const key = "FenceCommand"
	if v, ok := all[key]; ok && string(v) != `""` {
		all[key] = json.RawMessage(`"[left out]"`)
	}
	return all
}

// supportRecords is the journal's end, by the daemon or without one.
func supportRecords(ctx context.Context, cl *admin.Client, r statedir.Registration) ([]byte, error) {
	var b bytes.Buffer
	out := journalview.NewPrinter(&b, io.Discard, true)
	err := journalview.ShowOwn(ctx, cl, r, journal.Filter{Last: supportJournal}, out)
	return b.Bytes(), err
}

// endOf is the end of a file, from the begin of a line on: of a line whose begin is
// missing nobody can tell whether it has something secret.
func endOf(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(st.Size()-most, 0)
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	if from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return b, err
}

// supportCrashes are the reports on crashes, the oldest first.
func supportCrashes(state string) (all []byte, err error) {
	reports, err := crash.Reports(state)
	for _, path := range reports {
		b, rerr := os.ReadFile(path)
		all = fmt.Appendf(all, "==> %s\n%s\n", filepath.Base(path), b)
		err = errors.Join(err, rerr)
	}
	return all, err
}

// ifThere is a file that need not exist.
func ifThere(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

func supportVersions() ([]byte, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	osRelease, _ := os.ReadFile("/etc/os-release") // not everywhere
	return json.MarshalIndent(map[string]any{
		"dmxfs": version.This(), "kernel": unix.ByteSliceToString(u.Release[:]), "machine": unix.ByteSliceToString(u.Machine[:]), "os_release": strings.Split(string(osRelease), "\n"),
	}, "", "  ")
}

// supportMounts are the lines of mountinfo for the mount and what is above it, and
// for the storage.
func supportMounts(r statedir.Registration) ([]byte, error) {
	b, err := os.ReadFile(mountinfo.Path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(b)) {
		m, ok := mountinfo.ParseLine(line)
		if !ok {
			continue
		}
		for _, p := range []string{r.Mountpoint, r.Source} {
			if rel, err := filepath.Rel(m.Point, p); err == nil && filepath.IsLocal(rel) {
				out.WriteString(line)
				break
			}
		}
	}
	return out.Bytes(), nil
}

// listing has names, sizes, modes and times of what is below dir, and no contents.
func listing(dir string) ([]byte, error) {
	var out bytes.Buffer
	n := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", path, err)
			return nil
		}
		if n++; n > 10_000 {
			return filepath.SkipAll
		}
		if i, err := e.Info(); err == nil {
			fmt.Fprintf(&out, "%v %10d %s %q\n", i.Mode(), i.Size(), i.ModTime().UTC().Format(time.RFC3339), path)
		}
		return nil
	})
	return out.Bytes(), err
}

// supportStorage tells of the storage below the mount. Of a mount in place it can see
// only the room: the mount hides the rest.
func supportStorage(r statedir.Registration) ([]byte, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.Source, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Source, err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s: type %#x, block %d, blocks %d, free %d, available %d, files %d, files free %d\n",
		r.Source, st.Type, st.Bsize, st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree)
	if r.Source == r.Mountpoint {
		return out.Bytes(), nil
	}
	b, err := listing(filepath.Join(r.Source, ".dmxfs"))
	out.Write(b)
	return out.Bytes(), err
}
