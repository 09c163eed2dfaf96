// Package relay carries what a process leaves to the program that takes its place by
// execve(2): in memory that outlives the process image, and nothing else. So a
// reboot, or the end of the process, loses it, and nobody finds it later.
//
// # Form
//
// A magic number, the version of the form, the CRC-32C of what follows, then each
// part with its length. All of it is there and whole, or it is refused.
//
// # What it does not do
//
// It does not know what the parts mean: those who write and read them have versions
// of their own.
package relay
