// Package support puts what helps to find out what is wrong with a mount into one
// archive. What the items of it are its caller says; this package asks for them beside
// each other, each for a bounded time, takes secrets out of all of them, and tells
// what is in it.
package support
