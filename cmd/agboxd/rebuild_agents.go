package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/recordfile"
)

// rebuildAgents is how many agents come back at a time: they share commits.
const rebuildAgents = 16

// agentsFromFiles brings back the agents. One whose file can't be taken stops nothing: the file is set aside when the files are
// compared with the records.
func (r *rebuilder) agentsFromFiles(ctx context.Context) error {
	found, removed, problems, err := recordfile.ReadAgents(r.agentsRoot)
	if err != nil {
		return err
	}
	tellAgentProblems(r.log, problems)
	var unread atomic.Int64
	errs := make([]error, rebuildAgents)
	var wg sync.WaitGroup
	for w := range rebuildAgents {
		wg.Go(func() {
			for i := w; i < len(found) && errs[w] == nil; i += rebuildAgents {
				taken, err := r.agentFromFile(ctx, found[i])
				if errs[w] = err; !taken {
					unread.Add(1)
				}
			}
		})
	}
	wg.Wait()
	r.unread += int(unread.Load())
	r.skipped(r.unread)
	return errors.Join(append(errs, r.store.ReserveAgents(ctx, removed))...)
}

// agentFromFile returns an error only where the store is to blame.
func (r *rebuilder) agentFromFile(ctx context.Context, f recordfile.FoundAgent) (taken bool, err error) {
	rebuilt, err := r.store.RebuildAgent(ctx, f.ID, f.Replay)
	switch {
	case errdefs.IsDataLoss(err):
		r.log.Error("an agent can't be rebuilt from its record file", "agent_id", f.ID, "path", f.Path, "err", err)
		return false, nil
	case err == nil && rebuilt:
		r.log.Info("agent rebuilt", "agent_id", f.ID, "newest_change_missing", f.Torn)
	}
	return err == nil, err
}

func tellAgentProblems(log *slog.Logger, problems []recordfile.Problem) {
	for _, p := range problems {
		log.Warn("a record file of an agent can't be read, or not to its end", "path", p.Path, "err", p.Err)
	}
}
