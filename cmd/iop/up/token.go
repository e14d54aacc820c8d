package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/iop-dev/iop/edge/auth"
)

// adminTokenFile is the name of the admin token's file in the state folder.
const adminTokenFile = "admin.token"

// AdminToken reads the admin token of a state folder, or makes folder and token
// on the first start. Only the user may read the file.
func AdminToken(stateDir string) (token, file string, err error) {
	file = filepath.Join(stateDir, adminTokenFile)
	text, err := os.ReadFile(file)
	if err == nil {
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", "", fmt.Errorf("admin token: %s is empty; delete it to get a new one", file)
		}
		return token, file, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("admin token: %w", err)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", "", fmt.Errorf("state folder: %w", err)
	}
	token = auth.NewToken(auth.PrefixAdmin)
	// O_EXCL: of two processes that start at once, one makes the token and the
	// other fails rather than show a token that is not in the file.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", "", fmt.Errorf("admin token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return "", "", fmt.Errorf("admin token: write %s: %w", file, err)
	}
	return token, file, nil
}

// KnownAdminToken is the admin token of a state folder, or empty if there is none.
func KnownAdminToken(stateDir string) string {
	text, err := os.ReadFile(filepath.Join(stateDir, adminTokenFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
