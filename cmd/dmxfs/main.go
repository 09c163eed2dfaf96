package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

func main() {
	ctx := supervise.UntilAsked(context.Background())
	if len(os.Args) > 1 && slices.Contains(asking, os.Args[1]) {
		go endAnyway(ctx)
	}
	os.Exit(run(ctx, os.Args[0], os.Args[1:], stdStreams()))
}

// asking are the commands that have nothing to bring in order when they are
// interrupted.
var asking = []string{"status", "peers", "locks", "journal", "why", "metrics", "support", "policy", "secret", "cluster", "unmount", "umount"}

// endPatience is how long a command has to end after a signal. Then it hangs, as in
// storage that does not answer.
const endPatience = 3 * time.Second

// endAnyway ends the process a while after a signal, whatever it hangs in.
func endAnyway(ctx context.Context) {
	<-ctx.Done()
	time.Sleep(endPatience)
	fmt.Fprintln(os.Stderr, "dmxfs: interrupted; what it waits for does not end: a path on storage that hangs?")
	os.Exit(exitcode.Failure)
}
