package sandboxstate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/apis/enum"
)

// of returns the row of a state; that of a state that this version does not know has no trait and allows nothing.
func of(s State) row {
	for _, r := range table {
		if r.state == s {
			return r
		}
	}
	return row{state: s}
}

// Live returns the states of sandboxes that are not deleted.
func Live() []State {
	var states []State
	for _, r := range table {
		if r.live {
			states = append(states, r.state)
		}
	}
	return states
}

// IsLive reports whether the reconciler works on a sandbox in this state.
func IsLive(s State) bool { return of(s).live }

// IsUp reports whether its containers run, are frozen, or are being started. A paused sandbox counts also when it is demoted.
func IsUp(s State) bool { return of(s).up }

// IsWhole reports whether every container and network of the sandbox was made.
func IsWhole(s State) bool { return of(s).whole }

// IsResumable reports whether a resume makes the sandbox READY again.
func IsResumable(s State) bool { return of(s).resumable }

// Allows reports whether a sandbox in this state may have the desired state.
func Allows(s State, want storev1.RunState) bool { return slices.Contains(of(s).wants, want) }

// Goal is the state that a desired state leads to.
func Goal(want storev1.RunState) State {
	return cmp.Or(map[storev1.RunState]State{stop: stopped, pause: paused, remove: deleted}[want], ready)
}

// Accepts reports whether cause is a legal transition of a sandbox in this state.
func Accepts(s State, cause Cause) bool { return len(of(s).moves[cause]) > 0 }

// After returns the state that events of type cause lead to; UNSPECIFIED if they lead to none, or to several.
func After(cause Cause) State {
	only := none
	for _, r := range table {
		for _, to := range r.moves[cause] {
			if only != none && only != to {
				return none
			}
			only = to
		}
	}
	return only
}

// ErrIllegal is what every error of Check is.
var ErrIllegal = errors.New("illegal transition of a sandbox")

// Check reports whether an event of type cause that names state to may follow while the sandbox is in state from; to is UNSPECIFIED
// for an event that names none. Errors: ErrIllegal of the class errdefs.ErrInternal, since only a bug makes such an event.
func Check(from State, cause Cause, to State) error {
	targets, moves := of(from).moves[cause]
	switch {
	case moves && slices.Contains(targets, to):
		return nil
	case !moves && to == none && !isTransition(cause) && IsLive(from):
		return nil
	}
	return fmt.Errorf("%w: %s from %s to %s: %w", ErrIllegal, enum.Word(cause), enum.Word(from), enum.Word(to), errdefs.ErrInternal)
}

// isTransition reports whether events of this type name a state.
func isTransition(cause Cause) bool {
	return slices.ContainsFunc(table, func(r row) bool { return len(r.moves[cause]) > 0 })
}

// Info describes a state for the reference page.
type Info struct {
	Word, Meaning string
	// Metric: sandboxes in this state are counted in agboxd_sandboxes.
	Metric bool
	// Moves are "EVENT -> STATE", sorted; a transition that keeps the state is not among them.
	Moves []string
}

// All describes every state of the API, in the order in which a sandbox usually passes through them.
func All() []Info {
	var all []Info
	for _, r := range table[1:] {
		info := Info{Word: enum.Word(r.state), Meaning: r.meaning, Metric: r.live}
		for _, cause := range slices.Sorted(maps.Keys(r.moves)) {
			for _, to := range r.moves[cause] {
				if to != r.state {
					info.Moves = append(info.Moves, enum.Word(cause)+" -> "+enum.Word(to))
				}
			}
		}
		all = append(all, info)
	}
	return all
}
