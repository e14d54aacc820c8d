package noded

import (
	"fmt"
	"sync"

	"github.com/iop-dev/iop/configs/durable"
)

// ownCredential is what the node shows its Edge. A registration waits for a write
// under way: it comes with what the disk has from then on.
type ownCredential struct {
	read func() (string, error)
	file string // where a next one is put

	mu sync.Mutex
}

func (c *ownCredential) token() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// keep replaces the credential on the disk.
func (c *ownCredential) keep(next string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := durable.Write(c.file, []byte(next+"\n")); err != nil {
		return fmt.Errorf("node.credential_file: %w", err)
	}
	return nil
}
