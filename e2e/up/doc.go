// Package up starts the real binary as `iop up` and does what its first lines
// say: the printed curl line is run by a shell, as a person would paste it.
package up
