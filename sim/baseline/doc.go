// Package baseline holds the algorithms that the papers compare with, for the
// simulator only: nothing of it is ever used on a mount.
//
//   - Ricart and Agrawala (Comm. ACM 24(1), 1981): permission of all.
//   - Suzuki and Kasami (ACM TOCS 3(4), 1985), "Broadcast" in the paper on
//     relative consensus voting: a token that is asked of all.
//   - The read/write algorithm of Liu, Liu, Qiu and Yan for whole files,
//     mended. What is shipped instead is locks/rw.
//
// They are pure machines: what is given to one decides what it does. Nobody
// fails, joins or leaves; nothing is withdrawn; messages are neither lost nor
// repeated, but may overtake each other.
//
// # What was mended
//
// Ricart-Agrawala is the original. The figure of it in the paper of Liu et al.
// raises the clock only where a reply is deferred, which lets two nodes in: the
// clock must be raised by every REQUEST.
//
// Suzuki-Kasami is the original but for one comparison (RN > LN instead of
// RN = LN+1), which makes no difference as long as nothing is withdrawn.
//
// The printed algorithm of Liu et al. puts two nodes in the critical section
// within four steps, in several ways; see liu.go for the rules that replace it.
package baseline
