//go:build !windows

package link

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/iop-dev/iop/cmd/edged"
	"github.com/iop-dev/iop/cmd/noded"
	nodeconfig "github.com/iop-dev/iop/node/config"
)

// StartHere starts an Edge and the Nodes of its configuration in this process,
// where a test can count goroutines, and waits until they are connected.
func StartHere(u Setup, log io.Writer) (*Site, error) {
	s, file, err := newSite(u)
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.closers = append(s.closers, running.Wait, stop)
	edge, err := edged.New(edged.Options{ConfigPath: file, Logger: logger})
	if err != nil {
		s.Close()
		return nil, err
	}
	running.Go(func() { _ = edge.Run(ctx) })
	s.serves(edge.Addr())
	for _, n := range u.Nodes {
		id := fmt.Sprint(n["id"])
		if err := s.runNode(ctx, &running, id, logger); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Site) runNode(ctx context.Context, running *sync.WaitGroup, id string, log *slog.Logger) error {
	file, err := nodeFile(s.dir, id, s.URL())
	if err != nil {
		return err
	}
	cfg, err := nodeconfig.Load(file)
	if err != nil {
		return err
	}
	node, err := noded.New(noded.Options{Config: cfg, Logger: log})
	if err != nil {
		return err
	}
	running.Go(func() { _ = node.Run(ctx) })
	return s.Until("node "+id+" connected", Connected(id, true))
}
