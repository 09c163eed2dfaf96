package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// descs are all metrics of a daemon but those of Go and of the process.
type descs struct{ all []*prometheus.Desc }

var d descs

func (x *descs) add(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc("dmxfs_"+name, help, labels, nil)
	x.all = append(x.all, desc)
	return desc
}

var (
	descRequested = d.add("lock_requests_total", "Requests of programs for locks.", "class", "algorithm")
	descGranted   = d.add("lock_grants_total", "Locks granted.", "class", "algorithm")
	descDenied    = d.add("lock_denials_total", "Requests that were told they cannot have the lock.", "class", "algorithm")
	descWithdrawn = d.add("lock_withdrawals_total", "Requests that stopped waiting: interrupted, timed out, or their program ended.", "class", "algorithm")
	descReleased  = d.add("lock_releases_total", "Locks given up by their programs.", "class", "algorithm")
	descLost      = d.add("lock_losses_total", "Locks taken away: this node was expelled, or an admin broke them.", "class", "algorithm")
	descMessages  = d.add("lock_grant_messages_total", "Messages that this node sent and took for the requests that were granted, while they waited.", "class", "algorithm")
	descWait      = d.add("lock_wait_seconds", "How long requests waited that were granted.", "class", "algorithm")
	descHold      = d.add("lock_hold_seconds", "How long locks were held that have ended.", "class", "algorithm")
	descHeld      = d.add("locks_held", "Locks that programs of this host hold.")
	descWaiting   = d.add("lock_requests_waiting", "Requests of programs of this host that wait.")
	descOldest    = d.add("lock_oldest_wait_seconds", "How long the request has waited that waits longest; 0 if none does.")
	descWaitsOn   = d.add("lock_requests_waiting_for_peer", "Requests of programs of this host that wait for an answer of a member. One that waits for several counts for each.", "peer", "host")
	descPath      = d.add("path_requests_waiting", "Requests of programs of this host that wait for a file. Only for who asks for some paths.", "path", "class")
	descHandover  = d.add("handover_seconds", "How long it took to write out data before a lock went to another host.")
	descRefresh   = d.add("cache_refresh_seconds", "How long it took to drop what was cached before a lock was granted that another host had had.")
	descBreaks    = d.add("lock_breaks_total", "Locks of programs of this host that admins took away.")
	descLate      = d.add("late_writes_total", "Changes of the storage that ended after the lock that protected them could have been lost.")
	descEngine    = d.add("engine_longest_stall_seconds", "The longest time for which all locks of this host waited for one thing, since the daemon began.")

	descChange      = d.add("view_change_seconds", "How long nothing was granted for the members to begin a new epoch.")
	descSuspended   = d.add("suspended_seconds_total", "How long this node was not sure of the others or of the storage, and granted nothing.")
	descSuspensions = d.add("suspensions_total", "How often it began to be.")
	descExpulsions  = d.add("expulsions_total", "How often the others went on without this node, which lost its locks.")
	descTakeovers   = d.add("takeovers_total", "How often a daemon went on in the place of one that was killed, since the mount was made.")
	descPause       = d.add("takeover_pause_seconds", "For how long no call was answered meanwhile, the last time.")
	descEpoch       = d.add("epoch", "The epoch of the view.")
	descMembers     = d.add("members", "Members of the cluster, this node included, as this node knows them.", "state")
	descGranting    = d.add("granting", "1 if this node grants locks.")
	descProblems    = d.add("problems", "How many problems dmxfs status tells of.")
	descBuild       = d.add("build_info", "1, with the version.", "version")

	descRTT         = d.add("peer_rtt_seconds", "Round trip time to a member, smoothed.", "peer", "host")
	descHeard       = d.add("peer_last_heard_seconds", "How long ago a member was heard of.", "peer", "host")
	descConnections = d.add("peer_connections", "Connections to a member.", "peer", "host")

	descRequest = d.add("fuse_request_seconds", "How long requests of the kernel took, waits for locks included.", "request")
	descRead    = d.add("fuse_read_bytes_total", "Bytes that programs have read, but for those that the kernel had cached.")
	descWritten = d.add("fuse_written_bytes_total", "Bytes that the kernel has given to be written.")
	descPages   = d.add("cache_page_drops_total", "Files whose pages the kernel was told to drop.")
	descAttrs   = d.add("cache_attribute_drops_total", "Files whose attributes alone the kernel was told to forget.")
	descEntries = d.add("cache_entry_drops_total", "Names that the kernel was told to look up again.")
	descYields  = d.add("open_lock_yields_total", "Open locks that were not in use and gave way to another host.")

	descStorage = d.add("storage_operation_seconds", "How long operations on the files that decide views took.", "operation")
	descFailed  = d.add("storage_operation_failures_total", "Those that failed.", "operation")
	descLookAge = d.add("storage_look_age_seconds", "How old the last look at the views on the storage is that counts.")

	descJournalUp      = d.add("journal_healthy", "1 if records of the journal reach the disk.")
	descJournalRecords = d.add("journal_records", "Records that the journal has.")
	descJournalNext    = d.add("journal_appended_total", "Records that the journal was given, by all daemons of this mount so far.")
	descJournalDropped = d.add("journal_dropped_total", "Records that are missing because the disk did not take them.")
	descJournalDamaged = d.add("journal_damaged_parts", "Parts of the journal that cannot be read.")
	descJournalPending = d.add("journal_pending_records", "Records that are only in memory.")
	descJournalBytes   = d.add("journal_bytes", "What the records of the journal take.")
	descJournalDisk    = d.add("journal_disk_bytes", "What the directory of the journal takes.")
	descJournalOldest  = d.add("journal_oldest_record_timestamp_seconds", "When the oldest record was written.")
)

// collector shows a set and a snapshot.
type collector struct {
	set   *Set
	now   Snapshot
	paths []PathCount
	names func(opcode uint32) string
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, x := range d.all {
		ch <- x
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	e := emitter(func(m prometheus.Metric) { ch <- m })
	c.locks(e)
	c.cluster(e)
	c.mount(e)
	c.storage(e)
}

// emitter takes metrics.
type emitter func(prometheus.Metric)

func (e emitter) counter(desc *prometheus.Desc, v float64, labels ...string) {
	e(prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, labels...))
}

func (e emitter) gauge(desc *prometheus.Desc, v float64, labels ...string) {
	e(prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c *collector) locks(e emitter) {
	for i := range c.set.locks {
		x := &c.set.locks[i]
		labels := []string{c.set.classes[i/len(c.set.algorithms)], c.set.algorithms[i%len(c.set.algorithms)]}
		for step, desc := range [steps]*prometheus.Desc{descRequested, descGranted, descDenied, descWithdrawn, descReleased, descLost} {
			e.counter(desc, float64(x.steps[step].Load()), labels...)
		}
		e.counter(descMessages, float64(x.messages.Load()), labels...)
		if x.steps[Requested].Load() > 0 { // most clusters use one algorithm
			e(x.wait.metric(descWait, labels...))
			e(x.hold.metric(descHold, labels...))
		}
	}
	e.gauge(descHeld, float64(c.now.Held))
	e.gauge(descWaiting, float64(c.now.Waiting))
	e.gauge(descOldest, c.now.OldestWait.Seconds())
	for p, n := range c.now.WaitsOn {
		e.gauge(descWaitsOn, float64(n), p.ID, p.Host)
	}
	for _, p := range c.paths {
		e.gauge(descPath, float64(p.Waiting), p.Path, p.Class)
	}
	e(c.set.handover.metric(descHandover))
	e(c.set.refresh.metric(descRefresh))
	e.counter(descBreaks, float64(c.set.breaks.Load()))
	e.counter(descLate, float64(c.set.lateWrites.Load()))
	e.gauge(descEngine, c.now.EngineLongest.Seconds())
}

// states are those that are always shown, so that a rule finds a 0.
var states = []string{"live", "synchronizing", "suspended", "silent"}

func (c *collector) cluster(e emitter) {
	e(c.set.changes.metric(descChange))
	e.counter(descSuspended, c.set.suspendedTime(time.Now()).Seconds())
	e.counter(descSuspensions, float64(c.set.suspensions.Load()))
	e.counter(descExpulsions, float64(c.set.expulsions.Load()))
	e.counter(descTakeovers, float64(c.now.Takeovers))
	e.gauge(descPause, c.now.TakeoverPause.Seconds())
	e.gauge(descEpoch, float64(c.now.Epoch))
	all := map[string]int{}
	for _, s := range states {
		all[s] = 0
	}
	for s, n := range c.now.Members {
		all[s] = n
	}
	for s, n := range all {
		e.gauge(descMembers, float64(n), s)
	}
	e.gauge(descGranting, truth(c.now.Granting))
	e.gauge(descProblems, float64(c.now.Problems))
	e.gauge(descBuild, 1, c.now.Version)
	for _, p := range c.now.Peers {
		if p.RTT > 0 {
			e.gauge(descRTT, p.RTT.Seconds(), p.ID, p.Host)
		}
		if p.Heard >= 0 {
			e.gauge(descHeard, p.Heard.Seconds(), p.ID, p.Host)
		}
		e.gauge(descConnections, float64(p.Connections), p.ID, p.Host)
	}
}

func (c *collector) mount(e emitter) {
	for op := range c.set.requests {
		if name := c.names(uint32(op)); name != "" && c.set.requests[op].seen() {
			e(c.set.requests[op].metric(descRequest, name))
		}
	}
	e.counter(descRead, float64(c.set.read.Load()))
	e.counter(descWritten, float64(c.set.written.Load()))
	e.counter(descPages, float64(c.now.Caches.PageDrops))
	e.counter(descAttrs, float64(c.now.Caches.AttrDrops))
	e.counter(descEntries, float64(c.now.Caches.EntryDrops))
	e.counter(descYields, float64(c.now.Caches.Yields))
}

func (c *collector) storage(e emitter) {
	for name, o := range c.set.operations {
		e(o.took.metric(descStorage, name))
		e.counter(descFailed, float64(o.failed.Load()), name)
	}
	if c.now.LookAge >= 0 {
		e.gauge(descLookAge, c.now.LookAge.Seconds())
	}
	j := &c.now.Journal
	e.gauge(descJournalUp, truth(j.Healthy))
	e.gauge(descJournalRecords, float64(j.Records))
	e.counter(descJournalNext, float64(max(j.Next, 1)-1))
	e.counter(descJournalDropped, float64(j.Dropped))
	e.gauge(descJournalDamaged, float64(j.Damaged))
	e.gauge(descJournalPending, float64(j.Pending))
	e.gauge(descJournalBytes, float64(j.Bytes))
	e.gauge(descJournalDisk, float64(j.Disk))
	if !j.Oldest.IsZero() {
		e.gauge(descJournalOldest, float64(j.Oldest.UnixMilli())/1000)
	}
}
