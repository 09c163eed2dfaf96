package journal

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

// more makes the random tests try more.
var more = flag.Int("journal.long", 1, "how many times as much the tests with random damage and kills do")

// A test that needs another process starts this binary again, with the name of
// a function in children in the environment.
const childEnv = "JOURNAL_TEST_CHILD"

var children = map[string]func(args []string) error{
	"hold":   childHold,
	"append": childAppend,
	"full":   childFull,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is another process. It ends with the test.
type child struct {
	*exec.Cmd
	out *bufio.Scanner
	err *strings.Builder
}

// startChild starts one; prepare may change it before. args begin with a path that no
// other test has.
func startChild(t testing.TB, prepare func(*exec.Cmd), name string, args ...string) *child {
	t.Helper()
	long.Limit(t, args[0])
	c := &child{Cmd: exec.Command(os.Args[0], args...), err: new(strings.Builder)}
	c.Env = append(os.Environ(), childEnv+"="+name)
	c.Stderr = c.err
	if prepare != nil {
		prepare(c.Cmd)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		t.Skipf("the child can't be started: %v", err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

// line is the next line that the child writes.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.out.Scan() {
		c.Wait()
		t.Fatalf("the child ended: %v\n%s", c.ProcessState, c.err)
	}
	return c.out.Text()
}
