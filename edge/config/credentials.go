package config

import (
	"fmt"
	"strings"

	"github.com/iop-dev/iop/configs"
	"github.com/iop-dev/iop/edge/auth"
)

// credentials puts the hash of each secret that the file only points to in the
// place of the hash, so that everything behind it sees hashes alone. Files and
// environment variables are read now: a changed secret counts from the next
// refresh on, and one that is missing refuses it.
func (r *rules) credentials() {
	for i, k := range r.cfg.GetOpenai().GetApiKeys() {
		r.credential(fmt.Sprintf("openai.api_keys[%d]", i), "sha256", "key", &k.Sha256, k.GetKeyFile(), k.GetKeyEnv())
	}
	for i, t := range r.cfg.GetEdge().GetAdminTokens() {
		r.credential(fmt.Sprintf("edge.admin_tokens[%d]", i), "sha256", "token", &t.Sha256, t.GetTokenFile(), t.GetTokenEnv())
	}
	for i, t := range r.cfg.GetEdge().GetReadTokens() {
		r.credential(fmt.Sprintf("edge.read_tokens[%d]", i), "sha256", "token", &t.Sha256, t.GetTokenFile(), t.GetTokenEnv())
	}
	for i, n := range r.cfg.GetNodes() {
		if r.joins(i) {
			continue
		}
		r.credential(fmt.Sprintf("nodes[%d]", i), "token_sha256", "token", &n.TokenSha256, n.GetTokenFile(), n.GetTokenEnv())
	}
}

// joins reports whether a node has no token in the file and enters by a join token:
// where the Edge can keep what it gives for one.
func (r *rules) joins(node int) bool {
	n, path := r.cfg.GetNodes()[node], fmt.Sprintf("nodes[%d]", node)
	for _, key := range []string{"token_sha256", "token_file", "token_env"} {
		if r.doc.Broken(path + "." + key) {
			return false
		}
	}
	return n.GetTokenSha256() == "" && n.GetTokenFile() == "" && n.GetTokenEnv() == "" && r.cfg.GetEdge().GetStateDir() != ""
}

// credential settles one secret: its hash, or where it is. hashKey is the key of
// the hash, what names the other two: what_file and what_env.
func (r *rules) credential(path, hashKey, what string, hash *string, file, env string) {
	keys := []string{hashKey, what + "_file", what + "_env"}
	var given []string
	for i, value := range []string{*hash, file, env} {
		if value != "" {
			given = append(given, keys[i])
		}
		if r.doc.Broken(path + "." + keys[i]) {
			return // something is given, which is not known
		}
	}
	switch {
	case len(given) == 0:
		also := ""
		if strings.HasPrefix(path, "nodes[") {
			also = "; or set edge.state_dir, and the node enters by a join token"
		}
		r.problem(path, "missing; give %s, the SHA-256 of the %s, or %s or %s, which says where the %s is%s", keys[0], what, keys[1], keys[2], what, also)
	case len(given) > 1:
		r.problem(path+"."+given[len(given)-1], "%s are given; keep one", strings.Join(given, " and "))
	case *hash != "":
	case env != "" && !configs.IsVariable(env):
		r.problem(path+"."+keys[2], "found %d characters; expected the name of an environment variable", len(env))
	default:
		secret := configs.Secret{File: file, Env: env}
		text, err := secret.Read()
		if err != nil {
			var files configs.FileProblems
			files.AddSecret(r.doc, path+"."+keys[1], path+"."+keys[2], secret)
			if !r.elsewhere || len(files.Wrong) > 0 {
				r.problems = append(r.problems, files.All()...)
				return
			}
			r.absent = append(r.absent, files.Missing...)
			text = path // in its place, and nobody's secret: no two paths are the same
		}
		*hash = auth.HashToken(text)
		r.origins.Note(path+"."+hashKey, configs.FromInherited, "from "+given[0], path+"."+given[0])
	}
}
