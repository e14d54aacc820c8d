// Command write writes the counting model to a file, for trying it by hand.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/iop-dev/iop/e2e/engines/countmodel"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: write FILE.gguf")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "write:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = countmodel.New().WriteTo(f)
	return errors.Join(err, f.Close())
}
