package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/rules"
	"github.com/dmxfs/dmxfs/policy"
)

func newPolicyCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "Show and change the rules: which algorithm serves which file",
		Long: `The policy of a cluster is a list of rules; the first one whose path matches a
file is the rule of that file. All members have the same rules. They come from
the --exclusive and --policy options of the first one; others start with the
same rules or with none, and "policy set" changes them for all.

A policy file:

  [[rule]]
  path = "spool/**"        # below the root; ** is any number of directories
  algorithm = "rcv"        # rw, or for exclusive locks: rcv, maekawa or ring
  open = "lock"            # or "off": opening a file takes no lock
  yield = "30s"            # an idle open file lets others in; or "never"
  scope = "process"        # open locks are between processes; or "node"
  wait = "1m"              # how long a call waits for a lock; or "none"

With an exclusive algorithm every lock, for reading too, keeps out everybody
else and is for the whole file; open files exclude each other between processes
and do not give way when idle, unless the rule has a yield.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPolicyShowCommand(s), newPolicyCheckCommand(s), newPolicySetCommand(s))
	return c
}

func newPolicyShowCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "show [MOUNTPOINT]", Short: "Show the rules of the cluster",
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	asTOML := c.Flags().Bool("toml", false, "print a policy file, to edit it and give it to policy set")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		if *asJSON && *asTOML {
			return exitcode.With(exitcode.Usage, errors.New("--json and --toml: give one of them"))
		}
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		var v admin.Policy
		if err := cl.Get(c.Context(), "/policy", &v); err != nil {
			return ask.NoDaemon(err, r)
		}
		switch {
		case *asJSON:
			return printing.JSON(s.out, v)
		case *asTOML:
			_, err := io.WriteString(s.out, v.TOML)
			return err
		}
		return printing.Table(s.out, policyHeads, policyRows(v))
	}
	return c
}

var policyHeads = []string{"RULE", "PATH", "ALGORITHM", "OPEN", "YIELD", "SCOPE", "WAIT"}

func policyRows(v admin.Policy) [][]string {
	var rows [][]string
	for _, r := range append(v.Rules, v.Default) {
		rows = append(rows, ruleRow(r))
	}
	return rows
}

func ruleRow(r admin.Rule) []string {
	number, path := fmt.Sprint(r.Rule), r.Path
	if r.Rule == 0 {
		number, path = "-", "(all other files)"
	}
	return []string{number, path, r.Algorithm, r.Open, r.Yield, r.Scope, r.Wait}
}

func newPolicyCheckCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "check PATH [MOUNTPOINT]", Short: "Say which rule serves a file",
		Long: `Say which rule serves a file. PATH is a path in a mount or, from elsewhere, one
relative to its root; there need not be such a file. With --file the rules of a
policy file are asked, without a daemon; then PATH is relative to the root.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	file := c.Flags().String("file", "", "policy `file` to ask instead of the cluster")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		var v admin.PolicyCheck
		if *file != "" {
			p, err := config.ReadPolicyFile(*file)
			if err != nil {
				return err
			}
			v = rules.CheckPath(p, strings.Trim(filepath.Clean("/"+args[0]), "/"), standard())
		} else {
			abs, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			cl, r, err := clientFor(ask.PointFor(abs, args[1:]))
			if err != nil {
				return err
			}
			path, err := belowRoot(args[0], r.Mountpoint)
			if err != nil {
				return err
			}
			if err := cl.Get(c.Context(), "/policy/check?"+url.Values{"path": {path}}.Encode(), &v); err != nil {
				return ask.NoDaemon(err, r)
			}
		}
		if *asJSON {
			return printing.JSON(s.out, v)
		}
		return printing.Table(s.out, append([]string{"FILE"}, policyHeads...), [][]string{append([]string{v.File}, ruleRow(v.Rule)...)})
	}
	return c
}

// standard is what holds where no option of a mount says otherwise.
func standard() fusefs.Rule {
	var c config.Config
	c.Flags()
	return c.OpenRule()
}

// below reports whether path is dir, or below it; both are absolute.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// belowRoot is path as rules see it.
func belowRoot(path, mountpoint string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	switch {
	case below(abs, mountpoint):
		return strings.Trim(strings.TrimPrefix(abs, mountpoint), "/"), nil
	case filepath.IsAbs(path):
		return "", exitcode.With(exitcode.Usage, fmt.Errorf("%s is not below the mount %s", path, mountpoint))
	}
	return strings.Trim(filepath.Clean("/"+path), "/"), nil
}

func newPolicySetCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "set FILE [MOUNTPOINT]", Short: "Change the rules of the whole cluster",
		Long: `Give all members the rules in FILE, in place of those that they have; "-" reads
them from standard input, and a file without rules takes all away. Locks that
are held stay held. Where the algorithm of a file changes, nothing else of it is
granted until all that is held of it from before has been given up.

Options of mounts that ask for the old rules keep nobody out after that.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	asJSON := c.Flags().Bool("json", false, "print the new rules as JSON for programs")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		var p *policy.Policy
		var err error
		if args[0] == "-" {
			var b []byte
			if b, err = io.ReadAll(s.in); err != nil {
				return fmt.Errorf("read standard input: %w", err)
			}
			if p, err = policy.Parse("standard input", string(b)); err != nil {
				return exitcode.With(exitcode.Usage, err)
			}
		} else if p, err = config.ReadPolicyFile(args[0]); err != nil {
			return err
		}
		cl, r, err := clientFor(args[1:])
		if err != nil {
			return err
		}
		resp, err := cl.Send(c.Context(), http.MethodPost, "/policy", strings.NewReader(p.TOML()))
		if err != nil {
			return ask.NoDaemon(err, r)
		}
		defer resp.Body.Close()
		var v admin.Policy
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
			return fmt.Errorf("the daemon's answer cannot be read: %w", err)
		}
		if *asJSON {
			return printing.JSON(s.out, v)
		}
		return printing.Table(s.out, policyHeads, policyRows(v))
	}
	return c
}
