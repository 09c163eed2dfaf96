// Package rotation gives a cluster a new secret while locks are held.
//
// It is done in steps:
//
//  1. The node that was asked makes it, and each member of the view keeps it
//     (prepare). From then on a member takes connections with either. If one
//     cannot, all forget it again (abort), and nothing was changed.
//  2. Its fingerprint gets on the storage, by link(2): from that moment the new one
//     counts (SetGeneration). Whatever crashes, a node that starts has both, and
//     takes the one that the storage says.
//  3. The members see that (look), and dial with the new one. When all of them
//     have, the old one counts no more, and connections that were made with it
//     are made anew (finish). A member that hears nothing does so by itself.
//
// The secret goes over connections of the members alone: it is never on the
// storage, which a node that was revoked may read.
//
// A daemon has one [Rotator], which changes the secret when an admin wants it and has this
// node's part when others do. How members are asked is given to it; it knows the register
// on the storage, and nothing of locks.
package rotation
