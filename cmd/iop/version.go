package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/proto/framecodec"
)

// buildVersion is what the linker set, or else what the Go toolchain recorded.
type buildVersion struct {
	Version          string   `json:"version"`
	Commit           string   `json:"commit"`
	Go               string   `json:"go"`
	Platform         string   `json:"platform"`
	ProtocolVersions []uint32 `json:"protocol_versions"`
}

func currentVersion() buildVersion {
	v := buildVersion{
		Version:          version,
		Commit:           commit,
		Go:               runtime.Version(),
		Platform:         runtime.GOOS + "/" + runtime.GOARCH,
		ProtocolVersions: protocolVersions(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && v.Commit == "" {
				v.Commit = s.Value
			}
		}
	}
	if v.Version == "" {
		v.Version = "dev"
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	return v
}

func newVersion(stdout io.Writer) *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go and protocol versions",
		Args:  noArgs,
		RunE: operation(func(*cobra.Command, []string) error {
			v := currentVersion()
			if output.isJSON() {
				return json.NewEncoder(stdout).Encode(v)
			}
			protocols := make([]string, len(v.ProtocolVersions))
			for i, p := range v.ProtocolVersions {
				protocols[i] = fmt.Sprint(p)
			}
			_, err := fmt.Fprintf(stdout, "iop %s (commit %s, %s, %s, Edge–Node protocol %s)\n",
				v.Version, v.Commit, v.Go, v.Platform, strings.Join(protocols, ", "))
			return err
		}),
	}
	output.register(c.Flags())
	return c
}

// protocolVersions are the versions of the Edge–Node wire that this build
// speaks, oldest first.
func protocolVersions() []uint32 {
	var versions []uint32
	for v := uint32(framecodec.OldestProtocolVersion); v <= framecodec.ProtocolVersion; v++ {
		versions = append(versions, v)
	}
	return versions
}
