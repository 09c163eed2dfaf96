//go:build linux && amd64

package sigbus

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is struct kernel_sigaction.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

var faults uint64 // by handler

// goHandler is the handler of the Go runtime.
//
//lint:ignore U1000 for handler
var goHandler uintptr

// pagemap is /proc/self/pagemap, see proc_pid_pagemap(5).
//
//lint:ignore U1000 for handler
var pagemap int64

// handler is a signal handler, and no function of Go.
//
//lint:ignore U1000 for handlerPC
func handler()

// handlerPC is where handler begins.
func handlerPC() uintptr

// Guard has the process go on after such faults from now on.
func Guard() error { return guard() }

var guard = sync.OnceValue(func() error {
	var a sigaction
	if err := rtSigaction(nil, &a); err != nil {
		return err
	}
	if a.handler <= 1 { // SIG_DFL, SIG_IGN: the runtime has none
		return fmt.Errorf("SIGBUS is not handled by the Go runtime")
	}
	fd, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("handle SIGBUS: /proc/self/pagemap: %w", err)
	}
	pagemap = int64(fd) // for good
	goHandler = a.handler
	a.handler = handlerPC() // with the flags and the stack of the other one
	return rtSigaction(&a, nil)
})

func rtSigaction(set, old *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)),
		unsafe.Sizeof(set.mask), 0, 0)
	if errno != 0 {
		return fmt.Errorf("handle SIGBUS: %w", errno)
	}
	return nil
}

// Faults is how many pages could not be had since Guard.
func Faults() uint64 { return atomic.LoadUint64(&faults) }
