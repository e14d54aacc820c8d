// Package events fans out what has happened on an Edge, after the fact, to whoever
// wants to know: logs, metrics, watchers. It is droppable: a subscriber that does
// not keep up loses events, which the bus counts, and nothing that must be right
// depends on one arriving (S02, S13).
package events
