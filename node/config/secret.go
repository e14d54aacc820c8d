package nodeconfig

import "github.com/iop-dev/iop/configs"

// source judges that exactly one of the two is given.
func (r *reader) source(path, what, file, env string) configs.Secret {
	switch {
	case r.doc.Broken(path+"."+what+"_file") || r.doc.Broken(path+"."+what+"_env"):
		// Something is given, which is not known.
	case file == "" && env == "":
		r.problem(path, "missing; give %s_file or %s_env, which says where the %s is", what, what, what)
	case file != "" && env != "":
		r.problem(path+"."+what+"_env", "%s_file and %s_env are both given; keep one", what, what)
	case env != "" && !configs.IsVariable(env):
		// Not repeated: it looks like a secret in the place of its name.
		r.problem(path+"."+what+"_env", "found %d characters; expected the name of an environment variable", len(env))
	}
	return configs.Secret{File: file, Env: env}
}

// tokenSource is where the node's token is: a file, an environment variable, or the
// file of a credential that the Edge replaces.
func (r *reader) tokenSource() configs.Secret {
	n := r.msg.GetNode()
	if n.GetCredentialFile() == "" {
		return r.source("node", "token", n.GetTokenFile(), n.GetTokenEnv())
	}
	if n.GetTokenFile() != "" {
		r.problem("node.token_file", "credential_file and token_file are both given; keep one")
	}
	if n.GetTokenEnv() != "" {
		r.problem("node.token_env", "credential_file and token_env are both given; keep one")
	}
	return configs.Secret{File: n.GetCredentialFile()}
}
