package process

import (
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Name is what ps, top and pgrep show for the two processes of a mount.
// They run from /proc/self/exe, which would call them "exe".
const Name = "dmxfs"

// WaitsName is what they show for one that is to go on if the daemon of a mount is killed.
const WaitsName = "dmxfs-next"

// TakeName gives this process its name.
func TakeName() { SetName(Name) }

// SetName gives this process a name. It is no harm if it has another.
func SetName(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// Outlive keeps this process from ending because nobody takes its log any more,
// or a terminal is gone. A watcher logs just when its daemon has died: if that
// ended it, nobody would start another one. What a process catches, and does not
// ignore, its children do not inherit.
func Outlive() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGHUP) }

// WithoutSystemd is the environment of a process that is not to speak to systemd.
func WithoutSystemd() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") })
}
