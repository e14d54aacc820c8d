// Package history keeps minutes of Edges in an embedded SQLite database
// (ADR 0011), in a file or in memory.
//
// A file that is damaged is set aside and begun anew, and one that cannot be used
// is left alone and memory taken in its place: [Store.Notice] says so. The package
// decides nothing about what is kept but its form: one row a minute and Edge, the
// point as the message that it is, so that what a newer version adds survives.
package history
