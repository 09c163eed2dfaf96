package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// command is what `dmxfs command-tree` prints.
type command struct {
	Use, Short, Long string
	Flags            []option
	Commands         []command
}

type option struct{ Name, Shorthand, Value, Default, Usage string }

//go:embed mount.fuse.dmxfs.md
var mountHelper string

//go:embed dmxfs-policy.md
var policy string

func main() {
	out := flag.String("out", ".", "write to this folder")
	version := flag.String("version", "", "version of dmxfs")
	date := flag.String("date", "", "when that was made, like 2026-11-23")
	flag.Parse()
	if err := pages(os.Stdin, *out, *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// pages reads the tree of commands from in and writes all pages below dir.
func pages(in io.Reader, dir, version, date string) error {
	var root command
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&root); err != nil {
		return fmt.Errorf("what dmxfs command-tree prints: %w", err)
	}
	write := func(name string, section int, text string) error {
		head := fmt.Sprintf("%% %q %q %q %q %q\n", name, fmt.Sprint(section), date, "dmxfs "+version, "dmxfs")
		return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d.md", name, section)), []byte(head+text), 0o644)
	}
	// The packages have what this one prints.
	root.Commands = slices.DeleteFunc(root.Commands, func(c command) bool { return c.Use == "completion" })
	var each func(c command, parents []string) error
	each = func(c command, parents []string) error {
		names := append(append([]string{}, parents...), strings.Fields(c.Use)[0])
		if err := write(strings.Join(names, "-"), 8, page(c, parents)); err != nil {
			return err
		}
		for _, below := range c.Commands {
			if err := each(below, names); err != nil {
				return err
			}
		}
		return nil
	}
	if err := each(root, nil); err != nil {
		return err
	}
	// What dmxfs takes as a flag only is no option of a mount.
	settings := slices.DeleteFunc(slices.Clone(root.Flags), func(o option) bool { return o.Shorthand != "" || o.Name == "config" })
	options := "\n" + list(settings, func(o option) string {
		if o.Value == "" {
			return "**" + o.Name + "**"
		}
		return "**" + o.Name + "=**_" + escape(o.Value) + "_"
	})
	if err := write("mount.fuse.dmxfs", 8, strings.Replace(mountHelper, "OPTIONS\n", options, 1)); err != nil {
		return err
	}
	return write("dmxfs-policy", 5, policy)
}

// page is the page of a command, in Markdown.
func page(c command, parents []string) string {
	fields := strings.Fields(c.Use)
	path := append(append([]string{}, parents...), fields[0])
	var b strings.Builder
	fmt.Fprintf(&b, "# NAME\n%s - %s\n\n# SYNOPSIS\n", strings.Join(path, "-"), escape(c.Short))
	if len(c.Commands) == 0 || len(c.Flags) > 0 {
		fmt.Fprintf(&b, "**%s** %s\n\n", strings.Join(path, " "), escape(strings.Join(fields[1:], " ")))
	}
	if len(c.Commands) > 0 {
		fmt.Fprintf(&b, "**%s** _command_ [arguments]\n\n", strings.Join(path, " "))
	}
	fmt.Fprintf(&b, "# DESCRIPTION\n%s\n", text(c))
	if len(c.Commands) > 0 {
		b.WriteString("# COMMANDS\n")
		for _, below := range c.Commands {
			name := strings.Fields(below.Use)[0]
			fmt.Fprintf(&b, "**%s-%s**(8)\n: %s\n\n", strings.Join(path, "-"), name, escape(below.Short))
		}
	}
	if len(c.Flags) > 0 {
		b.WriteString("# OPTIONS\n" + list(c.Flags, func(o option) string {
			s := "**--" + o.Name + "**"
			if o.Shorthand != "" {
				s = "**-" + o.Shorthand + "**, " + s
			}
			if o.Value != "" {
				s += " _" + escape(o.Value) + "_"
			}
			return s
		}))
	}
	if len(parents) == 0 {
		b.WriteString(common)
	}
	also := []string{"**dmxfs**(8)", "**mount.fuse.dmxfs**(8)", "**dmxfs-policy**(5)"}
	if len(parents) == 0 {
		also = also[1:]
	} else if len(parents) > 1 {
		also = append([]string{"**" + strings.Join(parents, "-") + "**(8)"}, also...)
	}
	fmt.Fprintf(&b, "# SEE ALSO\n%s\n", strings.Join(also, ", "))
	return b.String()
}

// common is what all commands have in common.
const common = `# EXIT STATUS
**0**
: it was done

**1**
: it failed; standard error says why

**2**
: the command line or a configuration file is wrong

**3**
: no daemon serves the mount point that was meant

**4**
: the cluster or the shared directory does not let this host in

**5**
: in use: the mount point, the state directory, or files below a mount

**6**
: **dmxfs-status**(8): the mount is served, but locks cannot be had, or something is wrong

**dmxfs-run**(8) has those of the command that it runs, and 123 to 127 of its own.

# FILES
_.dmxfs_
: in the root of the shared directory, hidden below a mount: the views of the cluster, and its secret

_/etc/dmxfs/NAME.toml_
: configuration of **dmxfs@NAME.service**

_~/.local/state/dmxfs_, _/var/lib/dmxfs_
: journal, key and log of each mount

`

// text is the long help, with what is indented as it stands.
func text(c command) string {
	long := c.Long
	if long == "" {
		return escape(c.Short) + ".\n"
	}
	var b strings.Builder
	literal := false
	for line := range strings.Lines(long + "\n") {
		indented := strings.HasPrefix(line, "  ")
		if strings.TrimSpace(line) != "" && indented != literal {
			literal = indented
			b.WriteString("\n")
		}
		if literal {
			b.WriteString("    " + line) // a code block
		} else {
			b.WriteString(escape(line))
		}
	}
	return b.String()
}

// list is a list of options with what they mean.
func list(options []option, term func(option) string) string {
	var b strings.Builder
	for _, o := range options {
		fmt.Fprintf(&b, "%s\n: %s", term(o), escape(o.Usage))
		switch o.Default {
		case "", "[]", "false", "0", "0s":
		default:
			if !strings.Contains(o.Usage, "(default") {
				fmt.Fprintf(&b, " (default %s)", escape(o.Default))
			}
		}
		b.WriteString("\n\n")
	}
	return b.String()
}

// escape keeps Markdown from seeing anything in s.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`).Replace(s)
}
