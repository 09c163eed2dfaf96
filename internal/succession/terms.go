package succession

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
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/relay"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Terms are what a program has to agree with to go on.
type Terms struct {
	Relay    int             `json:"relay"`
	Mount    int             `json:"mount"`
	Locks    int             `json:"locks"`
	Protocol int             `json:"protocol"`
	Greeting fusefs.Greeting `json:"greeting"`
	Config   config.Config   `json:"config"`
}

// termsOf are those of a mount.
func termsOf(cfg config.Config, g fusefs.Greeting) Terms {
	return Terms{relay.Version, fusefs.StateVersion, engine.LegacyVersion, member.Protocol, g, cfg}
}

// Agreement is the answer to [Terms].
type Agreement struct {
	Version string `json:"version"`
	Refusal string `json:"refusal,omitempty"`
}

// refusal is why this program could not go on by t, which was read from text; empty if
// it could.
func (t *Terms) refusal(text []byte) string {
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

// CheckCommand is the hidden command by which a program answers [Terms] on standard input.
const CheckCommand = "check-succession"

// Agree is the answer of this program to [Terms].
func Agree(text []byte) (Agreement, error) {
	var t Terms
	if err := json.Unmarshal(text, &t); err != nil {
		return Agreement{}, err
	}
	return Agreement{version.String(), t.refusal(text)}, nil
}

// text is t as another program is asked by it. Options that have no value are not in
// it: a program that does not know them has nothing to do with them.
func (t *Terms) text() ([]byte, error) {
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
	type bare Terms
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
	if err := strict.Decode(new(Terms)); err != nil {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	return ""
}

// CheckTime is how long a program may take to answer whether it could go on.
const CheckTime = 10 * time.Second

// longestAnswer bounds what is read of one that is none.
const longestAnswer = 64 << 10

// checkProgram asks the program that is open as program whether it could go on by t.
func checkProgram(ctx context.Context, program *os.File, t Terms) (Agreement, error) {
	in, err := t.text()
	if err != nil {
		return Agreement{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, CheckTime)
	defer cancel()
	var out, says limitedBuffer
	// By its descriptor: what is asked is what is executed, also if another file gets
	// its name meanwhile. A script finds itself no more by that, here as later.
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", program.Fd()), CheckCommand)
	cmd.Args[0], cmd.Dir, cmd.Env = process.Name, "/", process.WithoutSystemd()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &says
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return Agreement{}, fmt.Errorf("%s does not answer whether it could go on", program.Name())
	case err != nil:
		text := strings.TrimSpace(says.String())
		return Agreement{}, fmt.Errorf("%s cannot say whether it could go on, and is perhaps no dmxfs, or one that cannot be upgraded to: %w %s", program.Name(), err, text)
	}
	var a Agreement
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || a.Version == "" {
		return Agreement{}, fmt.Errorf("%s does not say whether it could go on: it is no dmxfs", program.Name())
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
