// Package story makes one history of the journals of all members of a cluster, and
// tells that of a file in sentences. It is pure: records go in, text comes out.
//
// # Order
//
// [Merge] keeps the order of each journal, since that is the order in which things
// happened there whatever the clock did. Between journals it goes by
//
//  1. the epoch: what belongs to a view comes before what belongs to the next one;
//  2. fencing tokens: of two locks of a file that exclude one another the one with the
//     greater token was granted later, and after the end of the other one if the
//     journals have that;
//  3. the time of day on each host, which is as good as the hosts' clocks.
//
// Where clocks differ, times are therefore out of order, and the order is right all
// the same.
package story
