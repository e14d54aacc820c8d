package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/admission"
	"github.com/iop-dev/iop/edge/config"
	"github.com/iop-dev/iop/edge/state"
	fleetconfig "github.com/iop-dev/iop/fleet/config"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

func newConfig(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Look at configuration files, and have them read again",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return usagef("config needs a subcommand: check, migrate, reload")
		},
	}
	c.AddCommand(newConfigCheck(stdout, stderr), newConfigMigrate(stdout, stderr), newConfigReload(stdout, stderr))
	return c
}

func newConfigCheck(stdout, stderr io.Writer) *cobra.Command {
	var file string
	var strict bool
	var output outputFlag
	c := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Check an edge.yaml, node.yaml or controlplane.yaml and print the effective values",
		Long: `Check a configuration: exit code 0 and the effective values, or 1 and every
error with file:line:column. The file's top-level key (edge, node, controlplane)
tells what it is. Each value is followed by where it comes from: a line of the file, a default,
another key that governs it, legacy keys, or an override of an admin that the
state folder holds. Files and environment variables that
it names and that are missing here are warnings, since it may be meant for
another machine; --strict makes every warning fail the check. Nothing is started
and no port is bound.`,
		Args: noArgs,
		RunE: operation(func(*cobra.Command, []string) error {
			if file == "" {
				return usagef("config check needs a file: -c FILE")
			}
			r := check(file)
			if strict && len(r.Warnings) > 0 {
				r.Valid = false
			}
			if output.isJSON() {
				if err := json.NewEncoder(stdout).Encode(r); err != nil {
					return err
				}
			} else {
				r.write(stdout, stderr)
			}
			if !r.Valid {
				return errReported
			}
			return nil
		}),
	}
	registerFile(c, &file, "edge.yaml, node.yaml or controlplane.yaml")
	c.Flags().BoolVar(&strict, "strict", false, "let warnings fail the check too")
	output.register(c.Flags())
	return c
}

// checkResult is what is known of a file; its JSON is stable.
type checkResult struct {
	File     string         `json:"file"`
	Kind     configs.Kind   `json:"kind,omitempty"`
	Valid    bool           `json:"valid"`
	Problems []checkProblem `json:"problems"`
	Warnings []string       `json:"warnings"`
	// Effective is the configuration with every default, as YAML, secrets masked.
	Effective string `json:"effective,omitempty"`
	// Values are the same, one by one, each with where it comes from.
	Values configs.Effective `json:"values,omitempty"`
}

// checkProblem is one error; without a place it is about the file itself.
type checkProblem struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// text is the line for people.
	text string
}

// check reads a file and judges it as what it says it is. Files that it names
// and that are not here are warnings: the process may run on another machine.
func check(file string) checkResult {
	r := checkResult{File: file, Problems: []checkProblem{}, Warnings: []string{}}
	text, err := configs.ReadOnce(file)
	if err != nil {
		return r.failed(err)
	}
	var read readConfig
	var warnings []string
	switch r.Kind = configs.KindOf(text); r.Kind {
	case configs.KindNode:
		c, err := nodeconfig.Parse(file, text)
		if err != nil {
			return r.failed(err)
		}
		read, warnings = c, c.Warnings
	case configs.KindControlPlane:
		c, err := fleetconfig.ParseElsewhere(file, text)
		if err != nil {
			return r.failed(err)
		}
		read, warnings = c, c.Warnings
	default:
		s, err := config.ParseElsewhere(file, text)
		if err != nil {
			return r.failed(err)
		}
		overrides, err := overridesOf(s)
		warnings = s.Warnings
		if err != nil {
			warnings = append(slices.Clone(warnings), fmt.Sprintf("%s: overrides of admins are not known: %v", file, err))
		}
		warnings = append(slices.Clone(warnings), notJoined(file, s)...)
		read = edgeConfig{s, overrides}
	}
	r.Warnings = append(r.Warnings, warnings...)
	files := read.CheckFiles()
	for _, p := range files.Missing.Sorted() {
		r.Warnings = append(r.Warnings, p.String())
	}
	if err := files.Wrong.Err(); err != nil {
		return r.failed(err)
	}
	r.Values = read.Effective()
	var out bytes.Buffer
	if err := r.Values.Write(&out); err != nil {
		return r.failed(err)
	}
	r.Valid, r.Effective = true, out.String()
	return r
}

// readConfig is a configuration that was read.
type readConfig interface {
	Effective() configs.Effective
	CheckFiles() configs.FileProblems
}

// edgeConfig is an Edge's file and what admins have set on its Edge.
type edgeConfig struct {
	*config.Snapshot
	overrides []config.Override
}

func (c edgeConfig) Effective() configs.Effective { return c.Snapshot.Effective(c.overrides...) }

// overridesOf are the overrides that the Edge's state folder holds and that the
// file does not end. A node's exclusion holds for all its providers, so it comes
// after theirs.
func overridesOf(s *config.Snapshot) (out []config.Override, err error) {
	dir := s.Config.GetEdge().GetStateDir()
	if dir == "" {
		return nil, nil
	}
	all, err := state.Read(dir)
	if err != nil {
		return nil, err
	}
	var nodes []admission.NodeID
	for _, n := range s.Config.GetNodes() {
		nodes = append(nodes, admission.NodeID(n.GetId()))
	}
	stand, _ := all.Settle(nodes, s.Admission)
	slices.SortStableFunc(stand, func(a, b state.Override) int {
		return cmp.Compare(len(b.Provider), len(a.Provider))
	})
	words := map[state.Mode]string{state.Enabled: "true", state.Disabled: "false", state.Draining: "draining"}
	for _, o := range stand {
		out = append(out, config.Override{
			Node: string(o.Node), Provider: string(o.Provider), Value: words[o.Mode],
			By: fmt.Sprintf("%s at %s", o.By, o.Since.UTC().Format(time.RFC3339)),
		})
	}
	return out, nil
}

// failed adds what an error says, each problem by itself.
func (r checkResult) failed(err error) checkResult {
	var problems configs.Problems
	if !errors.As(err, &problems) {
		r.Problems = append(r.Problems, checkProblem{Message: err.Error(), text: fmt.Sprintf("%s: %v", r.File, err)})
		return r
	}
	for _, p := range problems {
		r.Problems = append(r.Problems, checkProblem{p.Line, p.Column, p.Path, p.Message, p.String()})
	}
	return r
}

// write is for people: the values on stdout, what is wrong on stderr.
func (r checkResult) write(stdout, stderr io.Writer) {
	for _, p := range r.Problems {
		fmt.Fprintln(stderr, p.text)
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(stderr, "warning: "+w)
	}
	fmt.Fprint(stdout, r.Effective)
}

// notJoined warns of nodes that have no token in the file and have not joined, by
// what the state folder of this machine holds.
func notJoined(file string, s *config.Snapshot) (warnings []string) {
	if len(s.Credentials.Joined) == 0 {
		return nil
	}
	kept, err := state.ReadCredentials(s.Config.GetEdge().GetStateDir())
	if err != nil {
		return []string{fmt.Sprintf("%s: which nodes have joined is not known: %v", file, err)}
	}
	for _, id := range s.Credentials.Joined {
		if kept.Node(id) == nil {
			warnings = append(warnings, fmt.Sprintf("%s: node %q has no token here and has not joined yet: \"iop node token create %s\"", file, id, id))
		}
	}
	return warnings
}
