package succession

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/relay"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// Served is a mount with all that serves it: what goes on in the next program.
type Served struct {
	Config    config.Config
	Log       *slog.Logger
	Began     time.Time // when this program began
	Root      *os.File  // the shared directory
	State     *statedir.Dir
	Journal   Journal
	Node      *atomic.Pointer[cluster.Node]
	Server    *atomic.Pointer[fusefs.Server]
	Engine    *engine.Engine
	Host      *p2p.Host
	Transport *p2p.Transport
	Minder    *supervise.Minder
	// Live reports whether this node may grant a lock now.
	Live func() bool
	// KnownCluster is what the next program has to know of the cluster, and whether its
	// storage folds case.
	KnownCluster func() (c *register.Cluster, folded bool)
	Joined       <-chan struct{} // closed when this node may grant for the first time
	LostAll      *atomic.Bool    // the others went on without this node
	Left         *Heir           // what this program goes on with; nil: it began anew
	// Own is what another process would go on with if this one was killed; nil: nothing.
	Own       *estate.Own
	Takeovers int   // how often that has come about since the mount was made
	Mounted   int64 // when a daemon that was killed made the mount, in ms of CLOCK_BOOTTIME; 0: this one did
}

// Journal is a journal whose records the next program finds.
type Journal interface {
	// OnDisk is why the end of this program would lose what is recorded; nil: it would not.
	OnDisk() error
	Sync(ctx context.Context) error
	Append(r journal.Record)
	// Settle has what is in memory go to the disk.
	Settle()
}

// Upgrader replaces the program of a daemon, when an admin orders it.
type Upgrader struct {
	d       Served
	since   time.Time       // when this program began to serve
	mounted int64           // see Mounted
	control net.Listener    // the control socket
	ends    <-chan struct{} // closed when the daemon is asked to end

	mu   sync.Mutex
	last admin.Upgrade
}

// New is the upgrader of a mount that this program serves from now on.
func New(d Served) *Upgrader {
	u := &Upgrader{d: d, since: time.Now(), mounted: d.Mounted}
	switch h := d.Left; {
	case h != nil:
		u.mounted = h.Mounted
		u.last = admin.Upgrade{Order: h.Order, State: admin.UpgradeRunning, From: h.Version}
	case u.mounted == 0:
		u.mounted = boottime.Milliseconds() - time.Since(d.Began).Milliseconds()
	}
	x := &u.last
	x.Mount, x.To, x.Program, x.File, x.Mounted = d.Config.Mountpoint, version.String(), ownProgram(), fileOf("/proc/self/exe"), u.mounted
	return u
}

// fileOf tells a file from others; empty if it cannot be seen.
func fileOf(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%x:%x:%x", st.Dev, st.Ino, st.Size)
}

// ownProgram is the file that this program was started from.
func ownProgram() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// Serves says what it takes to replace the program while the mount is served: the control
// socket, and what is closed when the daemon is asked to end.
func (u *Upgrader) Serves(control net.Listener, ends <-chan struct{}) {
	u.control, u.ends = control, ends
}

// Status is the last order, and what came of it.
func (u *Upgrader) Status() admin.Upgrade {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

func (u *Upgrader) set(change func(*admin.Upgrade)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change(&u.last)
}

// Order takes an order from the control socket, and asks the new program. If it agrees,
// and that is not all that was ordered, begin begins with the rest.
func (u *Upgrader) Order(r *http.Request) (x admin.Upgrade, begin func(), err error) {
	nothing := func() {}
	var o admin.UpgradeOrder
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return x, nothing, exitcode.With(exitcode.Usage, err)
	}
	if o.Program == "" {
		o.Program = ownProgram()
	}
	if o.Timeout <= 0 {
		o.Timeout = admin.OrderTime
	}
	if err := u.d.Journal.OnDisk(); err != nil {
		return x, nothing, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), o.Timeout)
	program, err := process.OpenProgram(o.Program)
	if err != nil {
		cancel()
		return x, nothing, exitcode.With(exitcode.Usage, err)
	}
	over := func() {
		program.Close()
		cancel()
	}
	if err := offMount(program, u.d.Config.Mountpoint); err != nil {
		program.Close()
		cancel()
		return x, nothing, exitcode.With(exitcode.Usage, err)
	}
	a, err := checkProgram(ctx, program, termsOf(u.d.Config, u.d.Server.Load().Greeting()))
	if err == nil && o.Check {
		err = u.mayBegin()
	}
	x = admin.Upgrade{Mount: u.d.Config.Mountpoint, Order: newOrder(), State: admin.UpgradeChecked, From: version.String(), To: a.Version,
		Program: o.Program, File: fileOf(fmt.Sprintf("/proc/self/fd/%d", program.Fd())), Mounted: u.mounted}
	if err != nil || o.Check {
		over()
		return x, nothing, err
	}
	x.State = admin.UpgradeRunning
	if !u.take(x) {
		over()
		return x, nothing, exitcode.With(exitcode.Busy, errors.New("the daemon is being upgraded already"))
	}
	return x, func() {
		go func() {
			defer over()
			err := u.run(ctx, program)
			u.d.Log.Error("the daemon is not upgraded", "program", o.Program, "err", err)
			u.set(func(x *admin.Upgrade) { x.State, x.Error = admin.UpgradeFailed, err.Error() })
		}()
	}, nil
}

// offMount is an error if the program lies on the mount, which does not answer when
// the program is to be executed. It does not ask the mount.
func offMount(program *os.File, mountpoint string) error {
	var st unix.Statx_t
	if err := unix.Statx(int(program.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("the program %s: %w", program.Name(), err)
	}
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	if m, ok := mountinfo.At(all, mountpoint); ok && m.Dev == unix.Mkdev(st.Dev_major, st.Dev_minor) {
		return fmt.Errorf("the program %s lies on the mount that is to be upgraded: copy it to another place, and name that by --program", program.Name())
	}
	return nil
}

// take begins x, unless another one is under way.
func (u *Upgrader) take(x admin.Upgrade) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.State == admin.UpgradeRunning {
		return false
	}
	u.last = x
	return true
}

// newOrder is the name of an order.
func newOrder() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// mayBegin is an error if it can be seen that it would be in vain.
func (u *Upgrader) mayBegin() error {
	if !u.d.Live() || !u.d.Node.Load().Status().Granting {
		return exitcode.With(exitcode.Sick, errors.New("this node is not sure at the moment that it is a member, or the members agree on a new view (dmxfs status tells why): try again when locks can be had"))
	}
	return nil
}

// againAfter is the pause after a moment in which it could not be.
const againAfter = 50 * time.Millisecond

// run replaces this program. It returns only with an error.
func (u *Upgrader) run(ctx context.Context, program *os.File) error {
	d := u.d
	former, err := process.OpenProgram("/proc/self/exe")
	if err != nil {
		return err
	}
	defer former.Close()
	if !d.Minder.TryHold() {
		return errors.New("a process that watches this daemon is just being started")
	}
	defer d.Minder.Release()
	control, err := process.Duplicate(u.control.(*net.UnixListener))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer unix.Close(control)
	if err := d.Minder.Problem(); err != nil {
		return err
	}
	// What is in memory gets to the disk before the pause, so that little is left.
	if err := d.Journal.Sync(ctx); err != nil {
		return fmt.Errorf("the journal: %w", err)
	}
	if err := d.Journal.OnDisk(); err != nil {
		return err
	}
	for {
		err := u.attempt(ctx, program, former, control)
		if !errors.Is(err, errNotNow) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(againAfter):
		}
	}
}

// errNotNow is why an attempt has changed nothing, and another one may come to more.
var errNotNow = errors.New("not at the moment")

// attempt is one attempt to replace this program.
func (u *Upgrader) attempt(ctx context.Context, program, former *os.File, control int) error {
	d := u.d
	if err := u.mayBegin(); err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	// By that the successor proves that it is in the place of this one.
	if self := d.Node.Load().Status().Self; !slices.Contains(d.State.Lives(), self.Inc) {
		return fmt.Errorf("the state directory does not know this daemon (it could not be written when it began?): only a restart helps")
	}
	// What can fail is done before the locks are frozen, since there is no way back then.
	h := &Heirloom{
		Order: u.Status().Order, Version: version.String(), Config: d.Config, Began: boottime.Milliseconds(), Mounted: u.Mounted(),
		Root: int(d.Root.Fd()), Lock: int(d.State.Lock.Fd()), Program: int(former.Fd()), Control: control,
	}
	h.Cluster, h.Folded = d.KnownCluster()
	h.Takeovers = d.Takeovers
	left, err := relay.New()
	if err != nil {
		return err
	}
	defer unix.Close(left)
	if h.Minder, h.Files, err = d.Minder.Leave(); err != nil {
		return fmt.Errorf("what the process that watches this one is told by: %w", err)
	}
	defer process.CloseAll(h.Files)
	if err := d.Server.Load().Pause(ctx); err != nil {
		return err
	}
	locks, err := u.freeze(ctx, h)
	if err != nil {
		d.Server.Load().Unpause()
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	return u.pass(h, program, left, locks)
}

// freeze freezes the locks of a mount that is at rest. With an error nothing has
// happened.
func (u *Upgrader) freeze(ctx context.Context, h *Heirloom) (locks []byte, err error) {
	d := u.d
	if err := u.syncNow(ctx); err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	if err := process.AwaitThreads(ctx); err != nil {
		return nil, err
	}
	nodestate.NoteUpgrading(d.State, d.Log)
	// Not later: a node that was expelled since, and is another one by now, is not
	// the one that has held what the successor claims.
	s := d.Node.Load().Status()
	h.Self, h.Ready = s.Self, map[string]int{"quiet": int(boottime.Milliseconds() - h.Began)}
	if h.View, err = member.EncodeView(s.View); err != nil {
		return nil, err
	}
	select {
	case <-u.ends:
		return nil, errors.New("the daemon was asked to end")
	default:
	}
	return d.Engine.Bequeath()
}

// pass executes the next program, which finds all in the memory left. The locks are
// frozen for good: if that does not come about, nor this program again, this process
// has to end, and all is lost.
func (u *Upgrader) pass(h *Heirloom, program *os.File, left int, locks []byte) error {
	d := u.d
	err := u.leave(h, left, locks)
	if err == nil {
		d.Log.Info("the daemon executes another program", "program", program.Name(), "version", u.Status().To)
		d.Minder.FlushLog()
		d.Minder.Upgrading()
		if err := d.Own.End(); err != nil { // the watcher ends it, too
			d.Log.Warn("what this program has open is open elsewhere, too", "err", err)
		}
		err = become(int(program.Fd()), h.Files, left, h.Program, "")
		err = errors.Join(err, become(h.Program, h.Files, left, h.Program, err.Error()))
	}
	err = fmt.Errorf("the daemon cannot be replaced any more, nor go on: %w", err)
	d.Node.Load().Fail(err)
	return err
}

// leave writes down all that the next program needs.
func (u *Upgrader) leave(h *Heirloom, left int, locks []byte) error {
	d := u.d
	for _, a := range d.Host.Listening() {
		h.Listen = append(h.Listen, a.String())
	}
	for _, p := range d.Transport.Peers() {
		if p.Connected {
			h.Peers = append(h.Peers, p.ID.String())
		}
	}
	state, files, err := d.Server.Load().Export()
	if err != nil {
		return err
	}
	h.Files = append(append(files, h.Files...), h.Root, h.Lock, h.Control, h.Program)
	u.syncLast()
	h.Ready["written"] = int(boottime.Milliseconds() - h.Began)
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return relay.Fill(left, &relay.Parts{Head: b, Mount: state, Locks: locks})
}

// lastSync is how long the pause may wait for the disk of the journal.
const lastSync = 200 * time.Millisecond

// syncNow writes what is in memory of the journal to the disk, while there is a way
// back: execve(2) would wait for a disk that is slow, and nobody hears of this node
// meanwhile.
func (u *Upgrader) syncNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastSync)
	defer cancel()
	return u.d.Journal.Sync(ctx)
}

// syncLast is for the few records since then. If they do not get to the disk in time
// they are missing there, as after a kill.
func (u *Upgrader) syncLast() {
	if err := u.syncNow(context.Background()); err != nil {
		u.d.Log.Warn("the last records of the journal are not on the disk yet", "err", err)
	}
}

// ServesSince is when this program began to serve the mount.
func (u *Upgrader) ServesSince() time.Time { return u.since }

// Mounted is when the mount was made, in ms of CLOCK_BOOTTIME.
func (u *Upgrader) Mounted() int64 { return u.mounted }

// TakenOver tells of a takeover that is through: for how long no call was answered, and no
// lock granted, and what was lost. Who has given an order to the daemon that was killed
// learns of it.
func (u *Upgrader) TakenOver(calls, locks time.Duration, lost string) {
	u.set(func(x *admin.Upgrade) {
		if x.State == "" { // else somebody has given an order to this one since
			x.State, x.PauseMS, x.LocksMS, x.Error = admin.UpgradeTakenOver, calls.Milliseconds(), locks.Milliseconds(), lost
		}
	})
}

// Await tells of the end of an upgrade, in the program that has taken over.
func (u *Upgrader) Await(ctx context.Context) {
	d, h := u.d, u.d.Left
	pause := boottime.Milliseconds() - h.Began
	select {
	case <-d.Joined:
	case <-ctx.Done():
		return
	}
	h.Mark("joined")
	locks := boottime.Milliseconds() - h.Began
	d.Journal.Settle()
	what := fmt.Sprintf("from %s to %s: no call was answered for %d ms, and no lock granted for %d ms", h.Version, version.String(), pause, locks)
	state, wrong := admin.UpgradeDone, ""
	if h.why != "" {
		state, wrong = admin.UpgradeFailed, "the new program could not go on, and the former one does: "+h.why
	}
	if d.LostAll.Load() {
		lost := "the others went on without this node before the program had taken its place: the locks of this host are lost"
		wrong = strings.TrimPrefix(wrong+"; "+lost, "; ")
	}
	if wrong != "" {
		what += "; " + wrong
		d.Log.Error("the upgrade did not go as it should", "why", wrong)
	} else {
		d.Log.Info("upgraded "+what, "requests", len(d.Engine.Resumed()))
	}
	h.logTimes(d.Log)
	d.Journal.Append(journal.Record{Event: journal.Upgraded, Reason: what, Wait: time.Duration(pause) * time.Millisecond})
	if state == admin.UpgradeDone {
		d.Minder.Upgraded()
	}
	u.set(func(x *admin.Upgrade) {
		x.PauseMS, x.LocksMS, x.State, x.Error = pause, locks, state, wrong
	})
	h.sock.Close()
	process.CloseAll(append(h.Minder.Files(), h.fd, h.Program))
}
