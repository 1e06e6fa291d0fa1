package conversation

import agboxv1 "github.com/agbox/agbox/apis/agbox/v1"

// The defaults, and the minimum size of a context.
const (
	DefaultMaxTurns      = 50
	DefaultMaxCharacters = 40_000
	MinCharacters        = 1_000
)

// Policy bounds a context. Zeros are the defaults.
type Policy struct {
	// MaxTurns is how many of the newest turns are included in full.
	MaxTurns int
	// MaxCharacters bounds the whole context, including the frame.
	MaxCharacters int
	// ModelWindowTokens limits it to a fifth of the window, at four characters per token; 0: unknown.
	ModelWindowTokens int
}

// PolicyOf converts a spec's policy; nil gives the defaults.
func PolicyOf(p *agboxv1.AgentContextPolicy) Policy {
	return Policy{
		MaxTurns: int(p.GetMaxTurns()), MaxCharacters: int(p.GetMaxCharacters()), ModelWindowTokens: int(p.GetModelWindowTokens()),
	}
}

// Budget returns the maximum size of a context in characters; at least MinCharacters.
func (p Policy) Budget() int {
	budget := p.MaxCharacters
	if budget <= 0 {
		budget = DefaultMaxCharacters
	}
	if p.ModelWindowTokens > 0 {
		budget = min(budget, p.ModelWindowTokens/5*4)
	}
	return max(budget, MinCharacters)
}

func (p Policy) turns() int {
	if p.MaxTurns <= 0 {
		return DefaultMaxTurns
	}
	return p.MaxTurns
}
