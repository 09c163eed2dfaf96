package succession

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// Heirloom is what a daemon leaves to the next program beside its mount and its locks.
type Heirloom struct {
	Order   string        `json:"order"` // who has ordered it knows it by that
	Version string        `json:"version"`
	Config  config.Config `json:"config"`
	Self    member.Node   `json:"self"`
	View    []byte        `json:"view"`   // see member.EncodeView
	Listen  []string      `json:"listen"` // where others have reached this node
	Peers   []string      `json:"peers"`  // who was connected
	Began   int64         `json:"began"`  // of the pause, in ms of CLOCK_BOOTTIME
	Mounted int64         `json:"mounted"`
	// Takeovers are how often the daemon was killed, and succeeded, since then.
	Takeovers int            `json:"takeovers"`
	Ready     map[string]int `json:"ready"` // how far it was when, in ms, for the log
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
	leftEnv = "DMXFS_LEFT"
	WhyEnv  = "DMXFS_LEFT_BACK" // unset by Take
)

// Left reports whether this process is to go on with what another program has left.
func Left() bool { return os.Getenv(leftEnv) != "" }

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
		env = append(env, WhyEnv+"="+strings.ToValidUTF8(strings.ReplaceAll(why, "\x00", ""), "?"))
	}
	return fmt.Errorf("execve: %w", syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program), os.Args, env))
}
