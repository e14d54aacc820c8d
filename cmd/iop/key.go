package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/iop-dev/iop/cmd/iop/console"
	"github.com/iop-dev/iop/edge/auth"
	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
)

func newKey(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "API keys of clients: make, list and revoke them",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("key needs a subcommand: create, list or revoke") },
	}
	c.AddCommand(newKeyCreate(stdout, stderr), newKeyList(stdout, stderr), newKeyRevoke(stdout, stderr))
	return c
}

func newKeyCreate(stdout, stderr io.Writer) *cobra.Command {
	req := &adminv1.CreateKeyRequest{}
	var offline bool
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		req.Name = args[0]
		res, err := edge.admin().CreateKey(edge.bearer(c.Context()), req)
		return keyMade(res), err
	}}
	c := e.attach(&cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key and print it, once",
		Long: `Make an API key on a running Edge and print it: it is shown this once, and kept
as its SHA-256 in edge.state_dir. It counts at once.

With --offline no Edge is called: the key is printed with the line that goes into
openai.api_keys of edge.yaml.`,
		Args: oneArg("NAME", "laptop"),
	})
	c.Flags().StringArrayVar(&req.Models, "model", nil, "let the key name this `MODEL` only; may be repeated")
	c.Flags().Uint32Var(&req.MaxConcurrent, "max-concurrent", 0, "most requests of the key at once, waiting ones included; 0 = no limit")
	c.Flags().BoolVar(&offline, "offline", false, "call no Edge: print the key and the line for edge.yaml")
	online := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !offline {
			return online(c, args)
		}
		return operation(func(c *cobra.Command, args []string) error {
			req.Name = args[0]
			k := offlineKeyOf(auth.NewToken(auth.PrefixKey), req)
			if c.Flags().Lookup("output").Value.String() == "json" {
				return writeJSON(stdout, k)
			}
			return writeLines(stdout, k.lines())
		})(c, args)
	}
	return c
}

func keyMade(res *adminv1.CreateKeyResponse) shown {
	s := shown{json: res, text: func(width int) []string {
		return append([]string{res.GetSecret()}, console.Wrap(fmt.Sprintf("The API key %s is shown this once.", res.GetKey().GetName()), width, 0)...)
	}}
	if !res.GetAskedFor() {
		s.warn = "this Edge asks for no API key: edge.auth.mode is none"
	}
	return s
}

// offlineKey is a key that no Edge knows yet; its JSON is stable.
type offlineKey struct {
	Secret string `json:"secret"`
	SHA256 string `json:"sha256"`
	// Line is what goes into openai.api_keys.
	Line string `json:"line"`
}

func offlineKeyOf(secret string, req *adminv1.CreateKeyRequest) offlineKey {
	k := offlineKey{Secret: secret, SHA256: auth.HashToken(secret)}
	quoted := func(v any) string { // JSON is YAML, too
		text, _ := json.Marshal(v) // strings only
		return string(text)
	}
	k.Line = "- {name: " + quoted(req.GetName()) + `, sha256: "` + k.SHA256 + `"`
	if len(req.GetModels()) > 0 {
		k.Line += ", models: " + quoted(req.GetModels())
	}
	if n := req.GetMaxConcurrent(); n > 0 {
		k.Line += fmt.Sprintf(", max_concurrent: %d", n)
	}
	k.Line += "}"
	return k
}

func (k offlineKey) lines() []string {
	return []string{k.Secret, "", "# edge.yaml, under openai.api_keys:", k.Line}
}

func newKeyList(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, _ []string, edge *edgeCaller) (shown, error) {
		res, err := edge.admin().ListKeys(edge.bearer(c.Context()), &adminv1.ListKeysRequest{})
		return listedKeys(res), err
	}}
	return e.attach(&cobra.Command{Use: "list", Short: "List the API keys, those of the file first", Args: noArgs})
}

func listedKeys(res *adminv1.ListKeysResponse) shown {
	return shown{json: res, text: func(width int) []string { return console.Keys(res, width) }}
}

func newKeyRevoke(stdout, stderr io.Writer) *cobra.Command {
	e := &edgeCommand{role: administrator, stdout: stdout, stderr: stderr, call: func(c *cobra.Command, args []string, edge *edgeCaller) (shown, error) {
		res, err := edge.admin().RevokeKey(edge.bearer(c.Context()), &adminv1.RevokeKeyRequest{Name: args[0]})
		return keyRevoked(args[0], res), err
	}}
	return e.attach(&cobra.Command{
		Use:   "revoke NAME",
		Short: "Take an API key away, at once",
		Long: `Take an API key away, at once. Requests that wait or run go on; cancel them by
"iop request cancel". One that edge.yaml holds is taken out of the file instead.`,
		Args: oneArg("NAME", "laptop"),
	})
}

func keyRevoked(name string, res *adminv1.RevokeKeyResponse) shown {
	return shown{json: res, warn: notDurable(res.GetDurable(), res.GetNotDurableBecause()), text: func(width int) []string {
		return console.Wrap(fmt.Sprintf("%s: revoked; requests of it that go on: %d", name, res.GetRunning()), width, 0)
	}}
}

// notDurable warns of a revocation that a restart would undo.
func notDurable(durable bool, because string) string {
	if durable {
		return ""
	}
	return "it would pass again after a restart of the Edge: " + because
}
