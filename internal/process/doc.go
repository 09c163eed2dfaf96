// Package process is what Linux lets one know of processes, and do with them: one
// that can only end when its mount is cut off, one that executes another program in
// its place with files that stay open, one that gives back memory, has a name, and
// outlives who takes its log.
//
// The two processes of a mount use it, and the commands that look at them. It knows
// neither mounts nor daemons.
package process
