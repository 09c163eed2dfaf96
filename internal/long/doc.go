// Package long has tests run in two lengths, and ends those that hang. The
// test command of README is over within minutes; .ci/run sets DMXFS_TEST_LONG=1 and
// has all the repetitions.
//
// No test runs only when it is long: the shorter variant is the same test with
// fewer repetitions, rounds, seeds, combinations or kinds of storage, with
// programs that rest for longer, and in memory. (But for two in internal/firsthour, which
// build other versions of the program.)
//
// A test that has processes or mounts of its own calls Limit first.
package long
