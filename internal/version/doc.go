// Package version says which dmxfs this program is: for people, for the other members
// and for a program that is to take its place.
//
// The build of packages sets the commit by -ldflags, see tools/packages/build.
package version
