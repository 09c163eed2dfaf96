// Package trouble tells what an error means: whether it may pass, so that it makes sense
// to try again, with which number a process ends for it, and what a person can do.
//
// What starts a daemon asks it, and who starts that anew.
package trouble
