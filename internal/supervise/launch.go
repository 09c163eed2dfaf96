package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/privileges"
	"github.com/dmxfs/dmxfs/internal/process"
)

// launched is a process that this one has started to serve the mount, or to wait until it
// is to. From its last word it can be read how that goes.
type launched struct {
	charge
	done  func()        // waits for the end of its log, and closes what belongs to it
	ended chan struct{} // closed when it has
	how   error         // see exec.Cmd.Wait; once ended is closed
	turn  *os.File      // where it is told what it goes on with; nil: it does not wait for that
}

// wait returns when it has ended, with how.
func (x *launched) wait() error {
	<-x.ended
	return x.how
}

// close gives up what belongs to it but its last word. It has ended, or will.
func (x *launched) close() { x.done() }

// launch starts a process by /proc/self/exe: the file of the program may have been replaced
// since, or removed (go run). in is its standard input, and life what its keeper ends with.
// standIn is nil, or what it needs that is to wait for its turn, or to watch in the place of
// this process, see [standInFDs].
func (n *next) launch(cfg config.Config, in []byte, life *os.File, standIn []*os.File) (*launched, error) {
	// It has all of it whenever this process is killed.
	stdin, err := process.Text("configuration", in)
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	defer stdin.Close()
	var theirs, ours []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	x := &launched{ended: make(chan struct{})}
	var tell, leash, log, turn *os.File
	x.lastWord, tell = pipe()
	leash, x.hold = pipe()
	theirs, ours = append(theirs, tell, leash), append(ours, x.hold)
	cmd := exec.Command("/proc/self/exe", ServeCommand, cfg.Mountpoint)
	cmd.Env = process.WithoutSystemd()
	if _, ok := n.out.(*os.File); ok {
		cmd.Stderr = n.out
	} else {
		x.logs, log = pipe()
		cmd.Stderr = log
		theirs, ours = append(theirs, log), append(ours, x.logs)
	}
	if standIn != nil {
		turn, x.turn = pipe()
		theirs, ours = append(theirs, turn), append(ours, x.turn)
		cmd.Env = append(cmd.Env, WaitsEnv+"=1")
	}
	cmd.Args[0] = process.Name
	cmd.Dir = "/"
	cmd.Stdin = stdin
	cmd.ExtraFiles = append([]*os.File{tell, n.root, leash, x.logs, life, turn}, standIn...)
	// Of a group of its own: what a terminal sends is for the watcher, which
	// passes it on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err == nil {
		err = privileges.Start(cmd, cfg.FenceCommand != "")
	}
	closeAll(theirs)
	if err != nil {
		closeAll(append(ours, x.lastWord))
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	x.process = cmd.Process
	x.started, _ = process.Started(cmd.Process.Pid) // nobody has waited for it yet
	go func() {
		x.how = cmd.Wait()
		close(x.ended)
	}()
	var copied sync.WaitGroup
	if x.logs != nil {
		copied.Go(func() { copyLog(n.out, x.logs, &n.copying) })
	}
	x.done = func() { copied.Wait(); closeAll(ours) }
	return x, nil
}

// marshal is what a daemon reads of its standard input.
func marshal(cfg config.Config, left []byte) ([]byte, error) {
	b, err := json.Marshal(cfg)
	return append(b, left...), err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // no harm if it is nil
	}
}
