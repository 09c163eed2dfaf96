package p2p

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	LogLibraries(slog.New(slog.DiscardHandler))
	for env, f := range map[string]func(string) error{echoEnv: echo, mdnsEnv: mdnsMain} {
		if arg := os.Getenv(env); arg != "" {
			if err := f(arg); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	code := m.Run()
	if left := leaked(); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines that the tests have left behind,
// after some time for those that are about to end.
func leaked() (left []string) {
	buf := make([]byte, 16<<20)
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		left = slices.DeleteFunc(stacks, func(s string) bool {
			for _, known := range []string{"github.com/dmxfs/dmxfs/p2p.TestMain", "testing.(*M)", "os/signal.", "runtime.ensureSigM"} {
				if strings.Contains(s, known) {
					return true
				}
			}
			return strings.TrimSpace(s) == ""
		})
		if len(left) == 0 {
			return nil
		}
	}
	return left
}
