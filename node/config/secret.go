package nodeconfig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSecretBytes bounds a file that is taken for a secret.
const maxSecretBytes = 64 << 10

// source is where a secret is: a file, else an environment variable.
type source struct{ file, env string }

// source judges that exactly one of the two is given.
func (r *reader) source(path, what, file, env string) source {
	switch {
	case r.doc.Broken(path+"."+what+"_file") || r.doc.Broken(path+"."+what+"_env"):
		// Something is given, which is not known.
	case file == "" && env == "":
		r.problem(path, "%s_file or %s_env is missing: where the %s is", what, what, what)
	case file != "" && env != "":
		r.problem(path+"."+what+"_env", "%s_file and %s_env are both given; keep one", what, what)
	case strings.ContainsAny(env, "= \t"):
		// Not repeated: it looks like a secret in the place of its name.
		r.problem(path+"."+what+"_env", "found %d characters; expected the name of an environment variable", len(env))
	}
	return source{file: file, env: env}
}

// read returns the secret without the space around it. Errors name the place,
// never the secret.
func (s source) read() (string, error) {
	if s.file == "" {
		secret := strings.TrimSpace(os.Getenv(s.env))
		if secret == "" {
			return "", fmt.Errorf("environment variable %s is empty or not set", s.env)
		}
		return secret, usable(secret, s.env)
	}
	f, err := os.Open(s.file)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if len(text) > maxSecretBytes {
		return "", fmt.Errorf("%s has more than %d bytes: not a secret", s.file, maxSecretBytes)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", s.file)
	}
	return secret, usable(secret, s.file)
}

// usable refuses what no header can carry.
func usable(secret, place string) error {
	if strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return fmt.Errorf("%s holds spaces, line breaks or characters that are not ASCII: not a secret", place)
	}
	return nil
}
