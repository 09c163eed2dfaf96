// Package member decides who is in the cluster. It is the membership protocol
// of one node as a pure state machine: inputs in, outputs out, no clock, no
// goroutine, no I/O.
//
// # Words
//
//   - A node is a peer (a libp2p identity) in one incarnation (a random number).
//   - A view is an epoch and the list of its members. View e+1 is a file on the
//     shared storage that gets its name by link(2), which fails if the name
//     exists: who links first decides. Views form one chain.
//   - A promise of x to y, "I have heard your heartbeat that you sent at T", says
//     that x will take part in no view without y before y's clock shows T + L
//     and a margin have passed.
//   - Tenure: y may grant locks, and start I/O under them, while every other
//     member has promised it so less than L ago, counted from when y sent, and
//     its last look at the storage began less than Ls ago. A node with tenure
//     is live.
//   - S is how old a listing of the storage may be: [Member.Cache].
//   - SYNC is what a node's lock machines hold and wait for. At a new epoch all
//     members send it to all.
//
// # What holds
//
//	S1  No two nodes are live in different epochs.
//	S2  A node that a view has dropped is not live from the moment of its link.
//	S3  No node grants at an epoch before it has the SYNC of all its members.
//	S4  All that are live in an epoch tell files apart by the same.
//	S5  A node goes on with what its former self held only if nobody has granted
//	    anything, since that was left to it, by a view with neither of them; and
//	    only one does. See succession.go.
//	L1  After the last fault all nodes that run are live in one view, within
//	    L + delta + 3 s + back-off (at most 2 s) + 1 s, and 7S, with Ls for L
//	    if that is longer. The 7S are the worst case, a node that must go on
//	    without any other: its ask, which others answered before they died,
//	    stands for 2S, and the next one as long; its view is seen after S, the
//	    others are dropped Ls + delta + S later, and that is seen after S.
//	L3  A fault costs two views per node that it happens to: one to go on
//	    without it and one for its return.
//
// It rests on this: link(2) is atomic, and what it acknowledged is not
// forgotten; a listing shows all names that existed S before it began; clocks
// of two nodes run apart by less than [Params.Drift]. The network may lose,
// delay, repeat and reorder, one way or both. Nodes may stop at any
// instruction, for any time, and die. A link request may be carried out long
// after its error.
//
// # The rules
//
// Every view follows from the one before it by one of two rules, whoever links it:
//
//   - Add: anybody may link a view that keeps all members and adds nodes. A node
//     is added on top of the one view that its incarnation was drawn for, so
//     one that was dropped never returns.
//   - Drop: a member may link a view without y if y is live in no epoch: (a) it has
//     promised y nothing for L + delta, and (b) it has heard y at an epoch with
//     both in, or has known this view for Ls + delta + S. A member may be dropped
//     at once with proof of death: its process, on this host, has ended, and
//     what it wrote is at the server.
//
// Who proposes a view without y promises y nothing from before the link is
// tried until it knows a view of that epoch, or above: also if the link
// failed, since it may be carried out still. The same file is linked again
// until then. A link is believed when a look shows it as the newest view; its
// name may have been one that was pruned.
//
// A newcomer that reaches the members waits until all of them have welcomed it,
// and is added by one. One that reaches none asks on the storage, and adds
// itself if nobody answers. The ask decides nothing: adding is safe at any time,
// and rule Drop protects who is there. It only keeps a newcomer that reaches
// the storage alone from disturbing a cluster that is alive; if the answer
// comes late, it goes again.
//
// The newest view may be damaged. Who cannot read it for Ls + delta + S, and is
// not sent it, gives up what it had and links a view above it, of itself alone
// (View.Unsure), and promises and grants nothing until every member of the
// damaged view has lost its look tenure.
//
// The storage may be restored from a copy. A node that has known a view above
// the newest that a look shows, which began more than S after its start, ends; or, if an
// admin has said so (Config.Restored), links a view far above all that it has
// known, of itself alone, and holds back as above a damaged one. A listing may also lack
// a view because a part of the storage is away: the look tells ([LookOp].Linked), and then
// it counts for nothing, neither for the tenure nor as a sign that anything is missing.
//
// Two processes may have the identity of one peer: the state directory was
// copied. A node that finds its own peer in the newest view, in an incarnation
// that is not proved to be dead, is offline, and asks on the storage
// (Challenge.Own). It ends if that incarnation answers; waits if only others do,
// who drop one that is dead; and goes on as after any other ask if nobody does.
//
// Who takes the place of a former self, with all that it held, links one view that
// drops the former self and has this node. Of a process that was killed it needs
// proof of death, as for any other drop, and the ledger of what that held. It keeps its
// incarnation beside the ledger before that link is tried ([LinkOp].Claim): if it is
// killed before the ledger names it the next one takes the place of whichever is in the
// view ([Heir]). One that was in neither has lost all. See succession.go.
//
// All members share the parameters that others rely on (Timing), what they say to
// each other (Protocol), and what they
// tell files apart by (FileID): both are in the view, and a node with others is
// refused. FileID changes only where a view has no member of another peer.
//
// The argument why S1 follows: let y be live at d, w live at e > d. w is live at
// e, so all members of e have installed e; y, at d, is not one. It was dropped
// by a member p of some view g, d < g <= e, under rule Drop. If p was in view d,
// y's tenure needs p's promise, and (a) excludes one that is young enough. If
// not, p heard y in a view after d, so that y is not at d any more; or p has
// known a view above d for longer than y's last look may be old, and that look
// showed none.
//
// # Driving a machine
//
// One goroutine calls [New], then [Machine.Step] for each input, and obeys the
// [Output] before it takes the next input. Its duties:
//
//  1. Time is CLOCK_BOOTTIME in milliseconds, read just before each Step by the
//     goroutine that calls it. The first input is [Start]. [Tick] comes every
//     Params.Tick; ticks that were missed are not made up for.
//  2. Obey the fields of Output in their order. First of all store LiveUntil in
//     one atomic word, after every Step. Who grants a lock, or begins a read or
//     write under one, compares that word with a clock read at that place:
//     locks may be granted while now < LiveUntil; I/O may begin while
//     now < LiveUntil - Params.Guard. Never keep the outcome of the comparison.
//     Offline is obeyed next: while it is set there is no connection to anybody,
//     and nothing tells others where this node could be reached.
//  3. Expelled: give it to the engine before anything that follows for the
//     engine. All locks and waits are lost: the tenure (locks.Tenure) grows, and
//     I/O under older ones fails, before a later LiveUntil can be seen together
//     with them. The driver need not wait: LiveUntil is 0 from here until the
//     Frozen of a later view, which the engine gives after it has obeyed this.
//  4. Freeze: give it to the engine and go on; do not wait for it. When the
//     engine has ended its turn and grants nothing more, it answers, and
//     [Frozen] with the same Seq is the next input. Freezes are answered in
//     their order. From a Freeze with a View on the engine is at that epoch:
//     its SYNC is what it holds and waits for at that moment, and messages of
//     older epochs are dropped. The machine sends nothing at the new epoch
//     before Frozen. Before the answer to a Freeze without a View, that of a
//     node that leaves, what was written under locks is written out. An engine
//     that does not answer for long has to end the process: the others wait
//     for it.
//  5. Synced: the engine has been given all states, restores its machines, and
//     grants while the tenure lasts. When Granting becomes true it resumes what
//     it left waiting.
//  6. Send: [Encode] each, hand it to the channel of the receiver, and forget it.
//     What cannot be sent at once is dropped, never queued: a message that
//     arrives late is harmless but useless, and all is sent again. Sending must
//     not block. What arrives goes through [Decode], with the peer ID that the
//     channel has authenticated, and is given in as [Received].
//  7. SendSync: send the engine's SYNC of the current epoch to that node, unless
//     that is under way already. When the SYNC of another node has arrived in
//     full, give [SyncArrived]; if the output says TakeSync, give the SYNC to
//     the engine at once, before Synced of the same output. Otherwise drop it,
//     or, if its epoch is above Epoch(), keep it and give SyncArrived again
//     when that is installed; it will also be sent again.
//  8. Storage: carry the operation out on a goroutine of its own, since it may
//     hang for ever, and give [Done] with its result, exactly once. Before a
//     look opens the directory read the clock: that is Look.Began. There is
//     one operation under way at most.
//  9. Fence: for a dead node call syncfs(2) on the backing file system, without a
//     time limit; for another one run the fence command, with one. Give
//     [Fenced]. Several members may fence one node at the same time.
//     A [LinkOp] with a Claim is tried only when that is kept for the node that is
//     succeeded, in place of what was kept for it. The ledger of this process, if
//     it has one, names its node before the answer to the Freeze of its first view,
//     and the ledger that was read is void from then on.
//  10. Save: write it to the state directory, and give it back in [Start].
//  11. Meet: tell the transport where peers can be reached. It should keep
//     connections to the members of View(), and to whom it was told of, and
//     have none with the peers in View().Revoked.
//  12. A node of this peer whose record has this host's boot ID, the device and
//     inode of the lock file that this process holds exclusively, an
//     incarnation that was noted beside that file (Output.Inc, Config.Former),
//     and no address but this host's, is taken for dead.
//     So Config.Self.Boot and Lock must be left empty unless the lock is held,
//     from before New until the process ends.
//  13. End: nothing is wanted any more, and no lock is held any more. Unmount,
//     or fail, as its code says; [End.Text] is for people.
//
// Three things are not in the outputs. The driver keeps its peer record on the
// storage fresh (package register). It watches that the engine turns at all.
// And it tells the engine to resume when a tenure is renewed that had ended, or
// had less than Params.Guard left, between two steps: Granting does not show
// that.
//
// # Parts
//
// A Machine says what an input means to which part, and what each has to do
// when the view changes (step.go, viewchange.go, decide.go). A part has its own
// state, which nobody else writes, and asks only those above it in this list.
// All know the position.
//
//   - base, identity, position: the time and the output of a step; who this
//     node is; what it is, its view, and the one that it is about to install.
//   - memory: what is kept over the end of the process.
//   - proofs: which members are known to be dead.
//   - succession: whether this node goes on with what its former self held.
//   - fences: members that are kept from the storage before they are dropped.
//   - engine: what the engine was told, and has answered.
//   - scans: what looks at the views have shown.
//   - troubles: what is wrong with the storage.
//   - proposer: the view that this node tries to link.
//   - asking: this node's ask on the storage.
//   - leaving: a member that goes.
//   - twins: whether another process has this node's identity.
//   - mail: what is said to other nodes.
//   - answering: asks of others on the storage.
//   - heartbeats: what members promise each other, and whose SYNC is here.
//   - lease: how long this node has tenure.
//   - silence: rule Drop.
//   - terms: what members have to agree on.
//   - sponsor: newcomers, who are welcomed and added.
//   - changes: what admins want.
//   - welcomes, joining: a node outside, which wants in.
//   - storage: which operation on the storage is next.
//
// # What it does not do
//
// It cannot protect from a hypervisor that stops a machine without its clock
// noticing, from storage that forgets a link it has acknowledged, or from a
// write that the kernel was given before the process was stopped. A fence
// command closes the first and the last.
package member
