//go:build !windows

package winservice

import (
	"context"
	"io"
)

// Run tells that no service manager of Windows has started this process.
func Run(func(ctx context.Context, stderr io.Writer) int) (code int, isService bool) {
	return 0, false
}
