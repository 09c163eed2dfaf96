package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// simulator is the name of the program that simulates. Linked into this one, it
// and what it plots with would make it a third larger.
const simulator = "dmxfs-sim"

func newSimCommand() *cobra.Command {
	return &cobra.Command{
		Use: "sim", Short: "Simulate the algorithms, to see what a lock costs: the program " + simulator,
		DisableFlagParsing: true, // all of the line is the simulator's
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			path, err := findSimulator(filepath.Dir(self))
			if err != nil {
				return err
			}
			return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, append([]string{simulator}, args...), os.Environ())}
		},
	}
}

// findSimulator is the path of the simulator: beside this program, which is of
// the same version if both were installed together, or else in $PATH.
func findSimulator(dir string) (string, error) {
	if path, err := exec.LookPath(filepath.Join(dir, simulator)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(simulator)
	if err != nil {
		return "", fmt.Errorf("the simulator, %s, is neither in %s nor in $PATH; in the source of dmxfs, make install installs it, and go run ./cmd/%s runs it", simulator, dir, simulator)
	}
	return path, nil
}
