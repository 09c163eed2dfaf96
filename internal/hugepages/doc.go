// Package hugepages backs what a program runs and uses all the time with huge pages of
// memory.
//
// A processor finds memory by a table of its pages, of which it remembers some. Where a
// program is large and rests between what it does, as one that waits for locks, it looks up
// most of its pages of 4 kB anew each time: to hand a lock over, some 500 of code, 250 of
// read-only data and 400 of variables, which takes longer than what is done there, above all
// in a virtual machine, where each look is one in two tables. In pages of 2 MB these are a
// dozen.
//
// It moves memory of the program that it runs in, and knows nothing of what that does.
package hugepages
