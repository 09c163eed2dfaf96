// Package p2p carries what nodes of one cluster say to each other. It is in two
// parts: [Host] is this node in the network, by libp2p; [Transport] has the four
// channels, over a [Host] or any other [Network].
//
// # Words
//
//   - A peer is a host's identity: an Ed25519 key, named by its libp2p peer ID.
//   - A node is one incarnation of a peer, see [NodeID].
//   - A stream is one of many ordered flows of bytes on a connection.
//   - A session is one direction of the lock channel between two nodes in one
//     epoch. It outlives the streams that carry it.
//   - A lane is what the frames of a session go by: beside the streams of its
//     connection, and without the goroutines of the multiplexer.
//
// # Channels
//
//   - member: messages up to 1 MiB, to a peer. What can't be sent now is
//     dropped. Nothing else can hold them up: they have a stream, and at both
//     ends a goroutine, of their own. They also measure the round trip.
//   - lock: frames up to 1 MiB, to a member of the epoch. Within an epoch each
//     arrives exactly once and in order, over any number of lost connections.
//     An epoch ends at both ends with [Transport.SetView], and everything of it
//     is dropped.
//     On its way out a frame goes through lockChannel.send, sendQueue, appendFrame,
//     outSession.write and lanes.send; on its way in through lanes.Read,
//     laneReceiver.take and [Handlers].LockNow.
//   - sync: the state of a node at the begin of an epoch, up to 256 MiB, to a
//     member of it; at least once if SendSync returned nil.
//   - ask: a question up to 1 MiB to a peer, with an answer up to 64 MiB; at
//     most once.
//
// # Parts
//
// A Transport hands each call and each event of the network to a part. A part has
// its own state, and asks only those above it in this list.
//
//   - limitedLog: what is logged, the same no more than once in a minute.
//   - tasks: the goroutines, and their end.
//   - remotes: the peers that are wanted, connected, or in the view; dials them.
//   - slots: the streams of peers that are served, one of a kind for each.
//   - streams: opens streams, and refuses theirs.
//   - epochs: the present view, and who waits for the next.
//   - memberChannel, lockChannel, syncChannel, askChannel: both ends of each.
//
// Mutexes are taken in this order, and none is held while a handler runs:
//
//	epochs.mu
//	└── remotes.mu
//	    ├── tasks.mu
//	    └── remote.statMu
//	slots.mu, askChannel.mu, outSession.mu, mailbox.mu
//
// # Who may speak
//
//  1. Without the cluster secret a peer cannot even complete a handshake: the
//     secret makes the key of a private network (libp2p pnet), below Noise.
//  2. Noise proves the peer ID. Options.Allow and [Host.Revoke] decide by it.
//  3. On the lock and sync channels the incarnations of both ends and the epoch
//     are compared with the view, once for each stream.
//
// A peer that speaks another version, or what is no dmxfs at all, is refused
// with a line in the log, one in a minute for each peer and reason.
//
// # Guarantees of the lock channel
//
//  1. Of one session, frames are delivered in the order of their numbers, each
//     once. [recvCount] delivers only last+1, and a stream is served only
//     when the one before is not any more. Of the two goroutines that deliver what
//     comes by a lane one does so at a time, see laneReceiver.
//  2. A frame is kept by the sender until the receiver has acknowledged it,
//     which it does after its handler has returned. A new stream begins with
//     the number of the last delivered frame.
//  3. A frame is delivered only in the epoch it was sent in, and only when both
//     ends name each other with the right incarnation.
//  4. A session of an epoch that the receiver has not reached waits, before its
//     first frame. So nothing has to be kept for the future: it stays where it
//     is kept anyway, with the sender.
//
// Memory: a sender keeps what its member does not take until the epoch ends,
// which is when the members drop it; [SessionInfo] tells how much. A receiver
// holds, for each peer, what may be on its way: 256 KiB of each stream, and some MiB
// of its session where the handler is slow. Goroutines: for each peer three (to dial,
// to write and to read the member channel), for each session two at the sender and
// two at the receiver, one for each state and question under way, and those of libp2p.
//
// # Streams, byte by byte
//
// Streams are opened by the one who has something to say, under the names
// /dmxfs/member/2, /dmxfs/lock/1, /dmxfs/sync/1, /dmxfs/ask/1 (multistream).
// Numbers are unsigned and big-endian. Both directions begin with
//
//	"dmxfs"   5 bytes
//	kind      1 byte: 'M', 'L', 'S' or 'A'
//	version   1 byte: 1
//
// but for the member channel, where only the caller speaks. A hello is
//
//	epoch     8 bytes
//	from      8 bytes: incarnation of the caller
//	to        8 bytes: incarnation that is called
//
// and a verdict is
//
//	status    1 byte: 0 ok, 1 old epoch, 2 not a member, 3 busy, 4 failed
//	value     8 bytes
//	length    2 bytes: of the reason, at most 1024
//	reason    text, for people
//
// member, after the greeting of the caller, any number of
//
//	length    4 bytes: of the message
//	sent      8 bytes: clock of the caller when it wrote this, µs
//	echo      8 bytes: sent of the last message from the other side, or 0
//	held      8 bytes: time since that message came, µs
//	message
//
// lock, caller: hello; after the verdict, whose value is the number of the last
// delivered frame, any number of
//
//	length    4 bytes: of the frame
//	number    8 bytes: 1, 2, 3 …
//	frame
//
// lock, called: verdict, not before it has reached the epoch; then
// acknowledgements, each the number of a delivered frame in 8 bytes, that of the last
// one for every 32 frames or 64 KiB.
//
// Where the connection has lanes, the called one opens a lane, and tells its number
// after its verdict, in 4 bytes. The frames go by that lane, and nothing more on the
// stream. With each acknowledgement goes, in 8 bytes, how many bytes have come by the
// lane: the sender has no more than 256 KiB on their way. They are not told while that
// much waits for the handler.
//
// sync, caller: hello, length of the state in 8 bytes; after the first verdict
// the state. Called: verdict, not before it has reached the epoch; a second one
// when its handler has the state.
//
// ask, caller: time to wait in 4 bytes, ms; length of the question in 4 bytes;
// the question. Called: verdict, whose value is the length of the answer; the
// answer.
//
// # Connections, byte by byte
//
// TCP, the private network, Noise; in that, where both ends know them (they agree
// on /dmxfs/lanes/1 as their multiplexer), records, and else yamux at once:
//
//	length    4 bytes: of what follows, at most 65,515; the highest bit is set in
//	          records of lanes
//	          bytes of yamux; or the number of a lane in 4 bytes, and bytes of that
//
// # What it does not do
//
// It does not decide who is a member: package p2p/member does. It does not know
// what is in a message, and it does not log what goes well.
package p2p
