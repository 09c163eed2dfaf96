// Package recent is what this host has changed lately on the shared directory, for those who
// have to know whether it was this host that did something.
//
// A daemon that goes on after one that was killed finds changes that were begun, and of which
// nobody noted the outcome. What looks done may have been done by another host. So it asks the
// others. For that each daemon notes every change in its [Memory], before the system call and
// after it, and answers a [Question] by it.
//
// # What is noted
//
// A change is under way in a cell, from before the call until its outcome is known. If it has
// changed a name it goes to a log then, with the times of its begin and its end; the log has
// room for some 30,000, and says since when it is complete. Of the content and the attributes
// of a file it is noted when they were last changed, by the number of the file; another file
// may fall into the same place, which only makes an answer less sure. A call that has failed
// such that it changed nothing is forgotten.
//
// The memory can be one that outlives the process. The next one goes on with it ([Open]): what
// was under way then may have been made until then, and not later. Which it was is noted if that
// process finds it out, or the one after it; whoever makes it again begins a change of its own.
//
// # What follows
//
// [Decide] finds out whether a change was made: by whether all that is known to have happened
// to the name can have happened in some order, if it was, and if it was not. It is pure.
//
// Names are told apart by a hash that nobody can make two names have in common, since it is
// concluded from changes of a name that it was there, or was not. Storage may take two names
// for one, as by case: who asks is told of changes of names that may be the same, too.
package recent
