package keeper

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const forbiddenEnv = "DMXFS_TEST_KEEPER_FORBIDDEN"

// forbid has a system call fail in all threads of this process, and those it starts.
func forbid(call uint32) error {
	allow := uint32(unix.SECCOMP_RET_ALLOW)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: allow},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return e
	}
	return nil
}

// forbids says how a keeper comes to be where a system call is forbidden. Descriptor 3 is its
// lifeline.
func forbids() {
	call := must(strconv.Atoi(os.Getenv(forbiddenEnv)))
	must(0, forbid(uint32(call)))
	_, err := Start(3, 0)
	_, left := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	fmt.Println(err, "/", left)
	os.Exit(0)
}

// Where one of the system calls is forbidden that it takes to use a keeper, or to end it,
// there is none; as in a container.
func TestForbiddenCalls(t *testing.T) {
	for call, want := range map[int]string{
		unix.SYS_PIDFD_OPEN:        "keeper of descriptors, process",
		unix.SYS_PIDFD_GETFD:       "pidfd_getfd(2) is forbidden here",
		unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal(2) is forbidden here",
	} {
		r, _ := lifeline(t)
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), roleEnv+"=forbidden", fmt.Sprintf("%s=%d", forbiddenEnv, call))
		own, err := unix.FcntlInt(uintptr(r), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(own), "lifeline")
		cmd.ExtraFiles = []*os.File{f}
		out, err := cmd.CombinedOutput()
		f.Close()
		if got := string(out); err != nil || !strings.Contains(got, want) || !strings.HasSuffix(got, "/ "+unix.ECHILD.Error()+"\n") {
			t.Errorf("system call %d: %q, %v", call, got, err)
		}
	}
}
