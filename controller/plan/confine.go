package plan

import "slices"

// confine adds the steps that bring the packet filter rules of the sandbox's networks to its policy. If the sandbox is to run, they come before
// everything that may let a process run, and a pass that cannot set them does nothing else. Otherwise they come last: nothing keeps a sandbox
// from being stopped.
func confine(r Record, w World, p Plan) Plan {
	if r.Departs() {
		return p
	}
	var steps []Step
	for _, n := range w.Networks {
		removed := func(s Step) bool { return s.Kind == RemoveNetwork && s.ID == n.ID }
		if n.Unconfined && !slices.ContainsFunc(p.Steps, removed) {
			steps = append(steps, Step{Kind: ConfineNetwork, ID: n.ID, Reason: BecausePolicy})
		}
	}
	if !r.WantsRun() {
		p.add(steps...)
		return p
	}
	created := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind == CreateNetwork })
	if created >= 0 && r.Wanted.Confined {
		p.Steps = slices.Insert(slices.Clone(p.Steps), created+1, Step{Kind: ConfineNetwork, Reason: BecausePolicy})
	}
	p.Steps = slices.Concat(steps, p.Steps)
	return p
}
