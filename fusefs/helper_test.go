package fusefs

import (
	"fmt"
	"os"
)

// helperEnv makes the test program do one thing as another process, or as
// another user, and say how it went.
const helperEnv = "DMXFS_TEST_HELPER"

func runHelper(cmd string) {
	fmt.Println("unknown helper", cmd)
	os.Exit(2)
}
