package configs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// maxSecretBytes bounds a file that is taken for a secret.
const maxSecretBytes = 64 << 10

// Secret is where a secret is: a file, else an environment variable. The secret
// itself is never kept.
type Secret struct{ File, Env string }

// IsVariable reports whether text can be the name of an environment variable
// rather than the secret itself by mistake; what cannot is not to be repeated.
func IsVariable(text string) bool {
	return len(text) < 64 && variable.MatchString(text) // 64: a token in hexadecimal
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// UnsetError says that the environment variable of a secret is not set.
type UnsetError struct{ Env string }

func (e *UnsetError) Error() string {
	return fmt.Sprintf("environment variable %s is empty or not set", e.Env)
}

// Read returns the secret without the space around it. Errors name the place,
// never the secret.
func (s Secret) Read() (string, error) {
	if s.File == "" {
		secret := strings.TrimSpace(os.Getenv(s.Env))
		if secret == "" {
			return "", &UnsetError{s.Env}
		}
		return secret, usable(secret, s.Env)
	}
	text, err := readRegular(s.File, maxSecretBytes)
	if err != nil {
		return "", err
	}
	if len(text) > maxSecretBytes {
		return "", fmt.Errorf("%s has more than %d bytes: not a secret", s.File, maxSecretBytes)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", s.File)
	}
	return secret, usable(secret, s.File)
}

// usable refuses what no header can carry.
func usable(secret, place string) error {
	if strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return fmt.Errorf("%s holds spaces, line breaks or characters that are not ASCII: not a secret", place)
	}
	return nil
}
