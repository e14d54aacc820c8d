// Package webui serves what browsers get: the dashboard's files below
// /dashboard/, and the rules by which pages may call the typed APIs.
//
// It owns headers, caching, and which hosts and origins are trusted. It knows
// neither configuration nor tokens: the files are the same for everybody and hold
// no secret, and whoever calls an API shows its token there.
package webui
