// Package trial tries the storage before the first start with a state directory, by a
// process of its own: a call to storage that does not answer cannot be interrupted, and
// what a process has open or locked stays so until the call has ended. That process has
// nothing that others need, so it can be left behind.
//
// Who mounts calls [Try], and so does the doctor; the program serves the hidden command
// [Command] with [Serve]. It knows no daemon and no cluster, and leaves nothing on the
// storage.
package trial
