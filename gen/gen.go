// Package gen holds what is generated and committed: messages and services in go
// and ts, and the dashboard in web, which is built from the folder of that name
// at the root.
package gen

import "embed"

// Web is the dashboard as it is served, in the folder "web".
//
//go:embed all:web
var Web embed.FS
