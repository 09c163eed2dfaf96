package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/relay"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// A daemon is replaced by execve(2) in its own process: what it has open, the
// kernel's connection and the lock of its state directory stay as they are, and so
// does its watcher. What it knows goes to the next program in memory that is sealed,
// see package relay: heirloom is what is neither the mount nor the locks.
//
//	old: upgrade.go   asks the new program whether it could go on (check-succession);
//	                  pauses the mount; freezes the locks; executes the new program
//	new: resume.go    takes all over, or executes the old program again while nothing
//	                  is changed yet; goes on

// heirloom is what a daemon leaves to the next program beside its mount and its locks.
type heirloom struct {
	Order   string         `json:"order"` // who has ordered it knows it by that
	Version string         `json:"version"`
	Config  config.Config  `json:"config"`
	Self    member.Node    `json:"self"`
	View    []byte         `json:"view"`   // see member.EncodeView
	Listen  []string       `json:"listen"` // where others have reached this node
	Peers   []string       `json:"peers"`  // who was connected
	Began   int64          `json:"began"`  // of the pause, in ms of CLOCK_BOOTTIME
	Mounted int64          `json:"mounted"`
	Ready   map[string]int `json:"ready"` // how far it was when, in ms, for the log
	// Cluster is what the former program knew of it, so that it need not be found on
	// the storage again, and Folded what it has found out about that; nil: of an older
	// version.
	Cluster *register.Cluster `json:"cluster"`
	Folded  bool              `json:"folded"`
	// Descriptors.
	Root    int                  `json:"root"`
	Lock    int                  `json:"lock"` // of the state directory
	Control int                  `json:"control"`
	Program int                  `json:"program"` // the file of the former program
	Files   []int                `json:"files"`   // all that stay open
	Minder  supervise.MinderLeft `json:"minder"`
}

// The environment of a program that is to go on: the descriptors of what was left and
// of the former program; and, if the program that should have done it could not, why.
const (
	leftEnv  = "DMXFS_LEFT"
	whyEnv   = "DMXFS_LEFT_BACK"
	leftHelp = "not for people: what a daemon that is being upgraded executes"
)

// terms are what a program has to agree with to go on.
type terms struct {
	Relay    int             `json:"relay"`
	Mount    int             `json:"mount"`
	Locks    int             `json:"locks"`
	Protocol int             `json:"protocol"`
	Greeting fusefs.Greeting `json:"greeting"`
	Config   config.Config   `json:"config"`
}

// termsOf are those of a mount.
func termsOf(cfg config.Config, g fusefs.Greeting) terms {
	return terms{relay.Version, fusefs.StateVersion, engine.LegacyVersion, member.Protocol, g, cfg}
}

// agreement is the answer of check-succession.
type agreement struct {
	Version string `json:"version"`
	Refusal string `json:"refusal,omitempty"`
}

// refusal is why this program could not go on by t, which was read from text; empty if
// it could.
func (t *terms) refusal(text []byte) string {
	own := termsOf(t.Config, t.Greeting)
	var other []string
	compare := func(what string, theirs, ours int) {
		if theirs != ours {
			other = append(other, fmt.Sprintf("%s: %d, and here %d", what, theirs, ours))
		}
	}
	compare("what is left", t.Relay, own.Relay)
	compare("the state of a mount", t.Mount, own.Mount)
	compare("the state of locks", t.Locks, own.Locks)
	compare("the protocol of the cluster", t.Protocol, own.Protocol)
	if len(other) > 0 {
		return "versions differ (" + strings.Join(other, "; ") + "): unmount, and mount with the other program"
	}
	if what := unknown(text); what != "" {
		return "it does not know an option that the mount has (" + what + "): unmount, and mount with the other program"
	}
	if err := t.Config.Validate(); err != nil {
		return "it does not take the options of the mount: " + err.Error()
	}
	if err := t.Greeting.Check(); err != nil {
		return err.Error()
	}
	return ""
}

const checkCommand = "check-succession"

// newCheckCommand is what a daemon asks another program before it stops anything.
func newCheckCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: checkCommand, Hidden: true, Short: leftHelp, Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(s.in)
			if err != nil {
				return err
			}
			a, err := agreeWith(text)
			if err != nil {
				return exitcode.With(exitcode.Usage, fmt.Errorf("terms on standard input: %w", err))
			}
			return printing.JSON(s.out, a)
		},
	}
}

// agreeWith is the answer to terms.
func agreeWith(text []byte) (agreement, error) {
	var t terms
	if err := json.Unmarshal(text, &t); err != nil {
		return agreement{}, err
	}
	return agreement{version.String(), t.refusal(text)}, nil
}

// text is t as another program is asked by it. Options that have no value are not in
// it: a program that does not know them has nothing to do with them.
func (t *terms) text() ([]byte, error) {
	config, err := json.Marshal(t.Config)
	if err != nil {
		return nil, err
	}
	options := map[string]json.RawMessage{}
	if err := json.Unmarshal(config, &options); err != nil {
		return nil, err
	}
	none := []string{"false", "0", `""`, "null", "[]"}
	maps.DeleteFunc(options, func(_ string, v json.RawMessage) bool { return slices.Contains(none, string(v)) })
	type bare terms
	return json.Marshal(struct {
		bare
		Config map[string]json.RawMessage `json:"config"`
	}{bare(*t), options})
}

// unknown is what this program does not know of the terms in text; empty if there is
// nothing.
func unknown(text []byte) string {
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(terms)); err != nil {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	return ""
}

// checkTime is how long a program may take to answer whether it could go on.
const checkTime = 10 * time.Second

// longestAnswer bounds what is read of one that is none.
const longestAnswer = 64 << 10

// checkProgram asks the program that is open as program whether it could go on by t.
func checkProgram(ctx context.Context, program *os.File, t terms) (agreement, error) {
	in, err := t.text()
	if err != nil {
		return agreement{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var out, says limitedBuffer
	// By its descriptor: what is asked is what is executed, also if another file gets
	// its name meanwhile. A script finds itself no more by that, here as later.
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", program.Fd()), checkCommand)
	cmd.Args[0], cmd.Dir, cmd.Env = process.Name, "/", process.WithoutSystemd()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &says
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return agreement{}, fmt.Errorf("%s does not answer whether it could go on", program.Name())
	case err != nil:
		text := strings.TrimSpace(says.String())
		return agreement{}, fmt.Errorf("%s cannot say whether it could go on, and is perhaps no dmxfs, or one that cannot be upgraded to: %w %s", program.Name(), err, text)
	}
	var a agreement
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || a.Version == "" {
		return agreement{}, fmt.Errorf("%s does not say whether it could go on: it is no dmxfs", program.Name())
	}
	if a.Refusal != "" {
		return a, fmt.Errorf("%s is dmxfs %s and cannot go on: %s", program.Name(), a.Version, a.Refusal)
	}
	return a, nil
}

// limitedBuffer keeps the begin of what is written to it.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), longestAnswer-b.Len())])
	return len(p), nil
}

var _ io.Writer = (*limitedBuffer)(nil)

// become executes the program that is open as program in this process, in which files
// stay open and nothing else does. left is what was left, and former the program that
// goes on if this one cannot. It returns only with an error; then all is as it was.
func become(program int, files []int, left, former int, why string) error {
	return process.Inherit(append(files[:len(files):len(files)], left), func() error {
		return execute(program, fmt.Sprintf("%d %d", left, former), why)
	})
}

// execute is execve(2), with what the program finds in its environment.
func execute(program int, left, why string) error {
	env := append(os.Environ(), leftEnv+"="+left)
	if why != "" {
		env = append(env, whyEnv+"="+strings.ToValidUTF8(strings.ReplaceAll(why, "\x00", ""), "?"))
	}
	return fmt.Errorf("execve: %w", syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program), os.Args, env))
}
