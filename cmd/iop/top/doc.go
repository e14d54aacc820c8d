// Package top is the live terminal view of an Edge: slots and who holds them, who
// waits and what for, in the fixed order of the machines. It shows one snapshot at
// a time, invents no number, and keeps the last state, marked as stale, while the
// Edge is away. How the Edge is reached, and what an order does there, is the
// caller's.
package top
