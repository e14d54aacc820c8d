// Package edged puts an Edge together and runs it: configuration, broker,
// dispatch, the OpenAI surface, the node link and the typed services on their
// listeners.
//
// It owns what belongs to the process: listeners, the two phases of a refresh,
// the order of a stop, and which role each route asks for. It decides nothing
// about requests.
package edged
