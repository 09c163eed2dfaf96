package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/crash"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/internal/mountlog"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/rotation"
	"github.com/dmxfs/dmxfs/internal/rules"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/succession"
	"github.com/dmxfs/dmxfs/internal/supervise"
	"github.com/dmxfs/dmxfs/internal/trouble"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// open takes everything that can fail before other nodes hear of this one. On
// error nothing is left behind.
// It takes root, the shared directory, also on error; but with left, what the program
// before this one has left in this process, all of that stays open on error.
func open(cfg config.Config, m *supervise.Minder, root *os.File, log *slog.Logger, left *succession.Heir) (d *daemon, err error) {
	d = &daemon{cfg: cfg, log: log, minder: m, began: time.Now(), root: root, left: left, joined: make(chan struct{}), quit: make(chan struct{}), metrics: newMetrics()}
	defer func() {
		if err != nil && left == nil {
			_ = d.takeover.own.End()
			_ = d.close() // err is what matters
			if d.state != nil {
				_ = d.state.Close()
			}
			_ = d.root.Close()
			d = nil
		}
	}()
	if err := (testator{d}).begin(); err != nil {
		return d, err
	}
	if d.recent, err = d.takeover.memory(log); err != nil {
		return d, err
	}
	d.strays = newStrays(d.recent, log)
	if d.rules, err = rules.New(cfg.Rules, cfg.OpenRule()); err != nil {
		return d, err
	}
	if d.storage, err = fusefs.StorageOf(int(d.root.Fd())); err != nil {
		return d, err
	}
	if cfg.ListingAge >= 0 {
		d.storage.ListingAge = cfg.ListingAge
	}
	for _, w := range storageWarnings(d.storage, cfg.ListingAge >= 0) {
		log.Warn(w, "source", cfg.Source, "type", d.storage.Type)
	}
	if d.params, err = cfg.Params(); err != nil {
		return d, exitcode.With(exitcode.Usage, err)
	}
	switch {
	case left != nil:
		d.state = left.State
	case d.takeover.left != nil:
		d.state, err = d.takeover.state(cfg.State)
	default:
		d.state, err = statedir.Open(cfg.State, int(d.root.Fd()))
	}
	if err != nil {
		return d, err
	}
	mountlog.KeepLastWords(cfg, crash.Daemon, log)
	if d.identity, err = p2p.LoadIdentity(d.state.Path); err != nil {
		return d, err
	}
	c, kept, err := d.openCluster()
	if err != nil {
		return d, err
	}
	secret, err := p2p.ParseSecret(c.Secret)
	if err != nil {
		return d, exitcode.With(exitcode.Refused, err)
	}
	if err := d.openParts(c, kept); err != nil {
		return d, err
	}
	err = d.openNetwork(c, secret)
	if d.takeover.left != nil {
		d.takeover.times.mark("opened")
	}
	return d, err
}

// openCluster finds the cluster of the shared directory, or founds it; kept are
// the secrets that this node has had.
func (d *daemon) openCluster() (c *register.Cluster, kept nodestate.Secrets, err error) {
	cfg := d.cfg
	d.register = register.NewDir(d.root, cfg.Source, d.identity.ID().String())
	d.register.WriteThrough(&d.writes)
	if d.left != nil && d.left.Cluster != nil {
		c = d.left.Cluster
		d.register.Known(c.ID)
		kept, err = nodestate.ReadSecrets(d.state.Path)
		return c, kept, err
	}
	// Before anything is made there: a directory on which the storage is not
	// mounted looks like one that nobody shares yet.
	known, err := journal.ClusterOf(d.state.File("journal"))
	if err != nil {
		return nil, kept, fmt.Errorf("the state directory: %w", err)
	}
	if kept, err = nodestate.ReadSecrets(d.state.Path); err != nil {
		return nil, kept, err
	}
	given, err := d.givenSecret(len(kept.All()) > 0)
	if err != nil {
		return nil, kept, exitcode.With(exitcode.Usage, err)
	}
	goesOn := d.takeover.left != nil // for one that was not refused
	if !goesOn {
		if err := refuseFolded(cfg, d.root, d.storage, d.register); err != nil {
			return nil, kept, err
		}
	}
	c, err = d.register.Init(register.Expect{Secret: given, Kept: kept.All(), Generation: kept.Current.Generation, Cluster: known, Join: cfg.Join, GoesOn: goesOn})
	if errors.Is(err, register.ErrNoCluster) || errors.Is(err, register.ErrOtherCluster) {
		return nil, kept, err // retryable: the storage may still get mounted
	}
	if err != nil {
		return nil, kept, exitcode.With(trouble.StorageCode(err), err)
	}
	if err := kept.RefuseFormer(cfg.Source, c); err != nil && !cfg.Restored {
		return nil, kept, exitcode.With(exitcode.Refused, err)
	}
	return c, kept, nil
}

// knownCluster is what the next program of this process has to know of the cluster,
// with the secret that counts now; and whether its storage folds case.
func (d *daemon) knownCluster() (c *register.Cluster, folded bool) {
	known := *d.cluster
	generation, secret := d.secret.Text()
	known.Generation, known.Secret, known.Fingerprint = generation, []byte(secret), register.Fingerprint([]byte(secret))
	known.Founded, known.Warnings = false, nil
	return &known, d.folded
}

// givenSecret is that of --secret, nil without one. A daemon in place of one that
// died does without the file if a secret is kept: people remove the file when it
// has done its work.
func (d *daemon) givenSecret(kept bool) ([]byte, error) {
	if d.cfg.Secret == "" {
		return nil, nil
	}
	given, err := register.ReadSecret(d.cfg.Secret)
	switch {
	case errors.Is(err, fs.ErrNotExist) && kept:
		d.log.Warn("the file of the secret is gone: the one that the state directory keeps is used", "file", d.cfg.Secret)
		return nil, nil
	case err != nil && kept && d.left != nil: // there is no way to mend it first
		d.log.Warn("the file of the secret cannot be used: the one that the state directory keeps is", "file", d.cfg.Secret, "err", err)
		return nil, nil
	}
	return given, err
}

// openParts takes what depends on the cluster alone.
func (d *daemon) openParts(c *register.Cluster, kept nodestate.Secrets) error {
	d.warnings = c.Warnings
	if c.Founded {
		d.warnings = append(d.warnings, fmt.Sprintf("no cluster was in %s: this is the first host of a new one, %s. If other hosts have mounted it already, this host does not see the same storage, or saw it too late: "+
			"unmount here, mend that, and mount with --join, which never makes a cluster", d.cfg.Source, c.ID))
	}
	for _, w := range d.warnings {
		d.log.Warn(w)
	}
	d.cluster, d.clusterID = c, c.ID
	if d.left != nil && d.left.Cluster != nil {
		d.folded = d.left.Folded
	} else {
		d.folded = fusefs.FoldsCase(int(d.root.Fd()))
	}
	d.fileID = fileIDOf(d.cfg.FileID, d.storage, c.Inode, d.folded)
	d.secret = rotation.NewSecret(d.state.Path, c, kept)
	if err := d.secret.Keep(kept); err != nil {
		d.log.Warn("the secret is not kept: if .dmxfs is removed, this host cannot make it anew", "err", err)
	}
	marks, err := nodestate.MarksOf(d.root)
	if err != nil {
		return fmt.Errorf("the shared directory: %w", err)
	}
	openJournal := history.Open
	if d.left != nil || d.takeover.left != nil {
		openJournal = history.Resume
	}
	o := journal.Options{Cluster: c.ID, Mount: d.cfg.Mountpoint, Node: locks.NodeID(d.identity.ID().String()), Logger: d.log}
	if d.takeover.left != nil {
		o.Resumed = taker{goer{d}}.goesOn()
	}
	d.journal, err = openJournal(d.state.File("journal"), o, d.cfg.Journal == config.JournalRequired)
	if err != nil {
		return err
	}
	history.LogRecovery(d.log, d.journal.Recovery())
	d.chronicle = &chronicle.Chronicle{Log: d.log, Journal: d.journal, Metrics: d.metrics}
	d.memory = &nodestate.Membership{State: d.state, Cluster: c.ID, Stored: c.Stored, Marks: marks, Log: d.log}
	return nil
}

// openNetwork makes what others reach this node by, and the engine.
func (d *daemon) openNetwork(c *register.Cluster, secret p2p.Secret) error {
	listen, err := ListenAddrs(d.cfg.Listen)
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("--listen: %w", err))
	}
	book := &addressBook{register: d.register, node: &d.node, log: d.log, online: make(chan struct{}), recorded: make(chan struct{})}
	if err := book.static(d.cfg.Peers); err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("--peer: %w", err))
	}
	d.host, err = p2p.NewHost(p2p.Options{
		Identity: d.identity, Secret: secret, Listen: listen, Cluster: c.ID, MDNS: d.cfg.MDNS, Log: d.log,
		Offline: true, Again: append(d.left.Listened(), d.takeover.listened()...),
	})
	if err != nil {
		return err
	}
	d.secret.Bind(d.useSecrets)
	d.engine = engine.New(engine.Options{
		Transport: (*lockTransport)(d), Files: (*files)(d), Recorder: (*recorder)(d), Log: d.log,
		Algorithms: rules.Algorithms,
		Rule:       d.rules.Algorithm,
		Uniform:    d.rules.Uniform,
		Live:       d.live,
		MaxLocks:   d.cfg.MaxLocks,
		Damaged:    d.chronicle.Damaged,
		Ledger:     d.takeover.own.Ledger(),
		Guard:      time.Duration(d.params.Guard) * time.Millisecond,
	})
	d.transport = p2p.NewTransport(d.host, p2p.Handlers{
		Member:  d.onMember,
		Lock:    (*lockTransport)(d).receive,
		LockNow: d.engine.ReceiveNow,
		Sync:    d.onSync,
		Ask:     d.onAsk,
	}, d.log)
	d.assemble(book)
	return nil
}

// assemble makes what the daemon does for other nodes and admins.
func (d *daemon) assemble(book *addressBook) {
	book.host, book.transport = d.host, d.transport
	self, ask := d.identity.ID().String(), asker{d.transport}
	d.others = newOthers(d, ask)
	d.book = book
	d.rules.Bind(d.journal, d.log, func() {
		d.engine.NewRules()
		if s := d.server.Load(); s != nil {
			s.RulesChanged()
		}
	})
	d.table = &lockTable{asker: ask, node: &d.node, server: &d.server, engine: d.engine, self: self}
	d.breaker = &breaker{Chronicle: d.chronicle, asker: ask, node: &d.node, server: &d.server, engine: d.engine, self: self}
	d.rotator = &rotation.Rotator{Chronicle: d.chronicle, Ask: func(ctx context.Context, to string, limit time.Duration, o rotation.Order, s *rotation.State) error {
		return ask.ask(ctx, to, limit, question{What: "secret", Secret: &o}, s)
	}, Node: &d.node, Register: d.register, Secret: d.secret, Self: self}
	d.upgrader = succession.New(succession.Served{
		Config: d.cfg, Log: d.log, Began: d.began, Root: d.root, State: d.state, Journal: d.journal, Node: &d.node, Server: &d.server,
		Engine: d.engine, Host: d.host, Transport: d.transport, Minder: d.minder, Joined: d.joined, LostAll: &d.lostAll, Left: d.left,
		Own: d.takeover.own, Takeovers: d.takeover.count, Mounted: d.takeover.mounted(),
		Live:         func() bool { return d.live(time.Duration(d.params.Guard) * time.Millisecond) },
		KnownCluster: d.knownCluster,
	})
	d.admin = &orders{Chronicle: d.chronicle, node: &d.node, rules: d.rules, self: self, fences: d.cfg.FenceCommand != "",
		strays: d.strays, forget: d.register.Forget, asker: ask}
}

// useSecrets has the network take secrets, which are valid.
func (d *daemon) useSecrets(list [][]byte) {
	var parsed []p2p.Secret
	for _, b := range list {
		s, err := p2p.ParseSecret(b)
		if err != nil {
			d.log.Error("a secret cannot be used", "err", err) // a damaged file: it was checked before it got there
			continue
		}
		parsed = append(parsed, s)
	}
	if len(parsed) > 0 {
		d.host.SetSecrets(parsed[0], parsed[1:]...)
	}
}

// storageWarnings is what an admin should know of the storage; told: the age of
// its listings was given.
func storageWarnings(s fusefs.Storage, told bool) []string {
	var list []string
	if s.Soft {
		list = append(list, "the storage is mounted soft: writes are lost when the server is slow; mount it hard")
	}
	if s.NamesByTime && !s.LocksZap {
		list = append(list, "the storage is NFS 3 with a lock manager: its client can go on with old data of a file that is in use on this host, and only a lock of its own keeps it from that; mount it with nolock (dmxfs does not need the lock manager), or by NFS 4")
	}
	switch age := s.ListingAge; {
	case told || age == 0:
	case !s.Known:
		list = append(list, fmt.Sprintf("the storage is of a type that is not known: its listings are taken to be up to %v old (--listing-age), so a start without any other node takes %v", age, 3*age))
	default:
		list = append(list, fmt.Sprintf("listings of this storage may be up to %v old (--listing-age), so a start without any other node takes %v", age, 3*age))
	}
	return list
}

// ListenAddrs are the values of --listen.
func ListenAddrs(list []string) ([]ma.Multiaddr, error) {
	var out []ma.Multiaddr
	for _, s := range list {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a multiaddr like /ip4/0.0.0.0/tcp/7654: %w", s, err)
		}
		out = append(out, a)
	}
	return out, nil
}
