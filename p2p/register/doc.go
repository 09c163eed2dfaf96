// Package register keeps the views of a cluster, and what nodes tell each other
// by way of the storage, in the directory .dmxfs below the shared directory. It
// carries out what package p2p/member decides.
//
// # Files
//
//	.dmxfs/cluster               {"format":1,"cluster":ID,"secret":fingerprint,"made":time}
//	.dmxfs/secret                what members need to know to talk to each other; 0600.
//	                             Gone when it was changed: the others are not on the storage
//	.dmxfs/secrets/<10 digits>   {"secret":fingerprint,"made":time}, of the changed ones; the last counts
//	.dmxfs/views/<20 digits>     a view, see member.EncodeView; never written again
//	.dmxfs/views/new-<peer>-*    the source of a link or a rename that is under way
//	.dmxfs/views/.<name>.new-*   an empty file, there for a moment, that shows whether <name> could be seen
//	.dmxfs/views/ask-<peer>      a newcomer that reaches no member asks
//	.dmxfs/views/ask-<node>      one asks whether another has its identity
//	.dmxfs/views/answer-<newcomer>-<member>
//	.dmxfs/room/<digit>          room for views while the storage is full
//	.dmxfs/peers/<peer>          where a peer can be reached; signed by it. Removed by one that
//	                             leaves, and has no mount any more; by others after a month, or
//	                             if an admin says that it is gone
//	.dmxfs/peers/<peer>.mark     its incarnation, and a number that it changes all the time, see Marker
//
// A file is written in full under a name of its own, and fsynced, before it
// gets the name that others look for: by link(2) where the name must be new
// (cluster, secret, secrets, views), by rename(2) elsewhere. So nobody reads half a
// file, and of two that link one name exactly one is told so. Storage that
// cannot do that is refused when a node starts.
//
// # Access
//
// Everything is opened relative to a descriptor of the shared directory that
// was opened before dmxfs covered its path; absolute paths would lead into the
// mount. A look opens the directory of views anew: that is what makes a client
// with close-to-open caching (NFS) ask its server.
//
// # Modes
//
// Who may create files in the shared directory may take part: .dmxfs, views
// and peers are open to the group, or to all, if and only if the shared
// directory is writable for them; they keep its set-group-ID and sticky bits.
// So on a directory of root alone, .dmxfs is 0700. The files in them can be
// read by those who may enter. The secret is 0600 in any case: nodes that run
// as another user than the founder (other accounts of sshfs, say) need a copy
// of it on their host, and --secret.
//
// # Parts
//
// [Dir] is put together from these, each of which asks those above it alone:
//
//   - storage, directory: files below the shared directory, and what their
//     errors mean.
//   - trials: what the storage can do.
//   - secrets: which secret of the cluster counts.
//   - asks: what newcomers and members tell each other by way of the storage.
//   - room: room for views, kept for when the storage is full.
//   - records: where peers can be reached.
//   - views: views are linked (viewlink.go), and looked for (viewlook.go).
//   - pruner: what is of no use any more is removed.
//   - founder: a cluster is opened, or founded.
//   - restorer: a cluster that was removed is made anew.
//
// # Failure
//
// Every operation may take as long as the storage likes, for ever if it hangs.
// An error of Link does not mean that the view was not linked, or will not be.
package register
