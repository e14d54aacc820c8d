// Package admin serves iop.admin.v1: what an operator may do to a running Edge.
// Who may call it is decided before it is reached.
package admin

import (
	"context"

	adminv1 "github.com/iop-dev/iop/gen/go/iop/admin/v1"
	"github.com/iop-dev/iop/services/rpcerr"
)

// Reload is what a refresh did.
type Reload struct {
	Revision     uint64
	Changes      []string
	NeedsRestart []string
	Warnings     []string
}

// Service implements adminv1connect.AdminServiceHandler.
type Service struct {
	// Reload re-reads the configuration, all or nothing.
	Reload func() (Reload, error)
}

// ReloadConfig re-reads the configuration file.
func (s *Service) ReloadConfig(context.Context, *adminv1.ReloadConfigRequest) (*adminv1.ReloadConfigResponse, error) {
	r, err := s.Reload()
	if err != nil {
		return nil, rpcerr.From(err)
	}
	return &adminv1.ReloadConfigResponse{
		ConfigRevision: r.Revision, Changes: r.Changes, NeedsRestart: r.NeedsRestart, Warnings: r.Warnings,
	}, nil
}
