package server

import (
	"context"
	"errors"


	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// ConfirmEngine implements agbox.v1.AdminService. A server that stops does not wait for it.
func (s *Server) ConfirmEngine(ctx context.Context, _ *agboxv1.ConfirmEngineRequest) (*agboxv1.ConfirmEngineResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	resp, err := s.deps.ConfirmEngine(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return nil, errStopping
	}
	return resp, err
}
