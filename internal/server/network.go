package server

import (
	"cmp"
	"fmt"
	"slices"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/store"
)

// acceptNetwork returns the mode that is recorded for the absence of a policy, and refuses what cannot be enforced. Where nothing can be
// enforced, an absent policy is open, unless the configuration requires one.
func (s *specs) acceptNetwork(spec *agboxv1.CreateSpec) (mode string, broken validate.Errors) {
	rules, problem := s.rules(), s.networkProblem()
	mode = cmp.Or(rules.NetworkMode, netrules.Open)
	if problem != "" && spec.GetNetwork() == nil && mode != netrules.Open {
		if rules.NetworkRequired {
			return mode, refuseNetwork(problem + "; runtime.network_required is set, so nothing is created without a policy")
		}
		mode = netrules.Open
	}
	if problem != "" && spec.GetNetwork() != nil {
		mode = netrules.Open // a closed policy is refused below, and without an open one the next spec finds no policy
	}
	return mode, s.checkNetwork(spec, mode)
}

// checkNetwork refuses a policy that cannot be enforced, or that the recorded mode makes senseless.
func (s *specs) checkNetwork(spec *agboxv1.CreateSpec, recorded string) validate.Errors {
	mode := netrules.ModeOf(spec.GetNetwork(), recorded)
	if problem := s.networkProblem(); problem != "" && netrules.Confines(mode, spec.GetNetwork()) {
		return refuseNetwork(problem + "; leave the policy out, or write {mode: open} without deny")
	}
	if inject.Has(spec) && mode != netrules.Internet && mode != netrules.Internal {
		why := fmt.Sprintf("secrets: their inject rules need a network policy, and this sandbox has the mode %q: write {mode: internet} or {mode: internal}", mode)
		if problem := s.networkProblem(); problem != "" {
			why = "secrets: their inject rules need a network policy, which cannot be enforced: " + problem
		}
		return validate.Errors{{Field: "secrets", Message: why}}
	}
	if mode == netrules.None && spec.GetNetwork() == nil && len(spec.GetRequiredServices())+len(spec.GetOptionalServices()) > 0 {
		return validate.Errors{{
			Field: "network", Message: `network: the daemon's runtime.network_mode, "none", cuts the sandbox off from its services: write {mode: internal}`,
		}}
	}
	return nil
}

func refuseNetwork(why string) validate.Errors {
	return validate.Errors{{Field: "network", Message: "network cannot be enforced: " + why}}
}

// fitsNetwork checks the policy of an update.
func (u *update) fitsNetwork(sb store.Sandbox) error {
	confinement := sb.Desired.GetConfinement()
	broken := u.checkNetwork(u.next, confinement.GetNetworkMode())
	if !netrules.RulesNames(networkMode(sb), sb.Spec) { // otherwise it has such a policy already, and may change it
		broken = append(broken, u.engineRefusesNetwork(u.next, confinement)...)
	}
	return broken.Err()
}

// engineRefusesNetwork returns why the engine cannot honour the network policy of a spec.
func (s *handles) engineRefusesNetwork(spec *agboxv1.CreateSpec, confinement *storev1.Confinement) validate.Errors {
	isOther := func(e validate.Error) bool { return e.Field != "network" }
	return slices.DeleteFunc(s.engineRefuses(spec, confinement), isOther)
}

// networkMode returns the mode of a sandbox's policy.
func networkMode(sb store.Sandbox) string {
	return netrules.ModeOf(sb.Spec.GetNetwork(), sb.Desired.GetConfinement().GetNetworkMode())
}

// networkWarnings says that a policy does not hold.
func (s *handles) networkWarnings(sb store.Sandbox) []string {
	problem := s.networkProblem()
	recorded := sb.Desired.GetConfinement().GetNetworkMode()
	switch {
	case problem == "":
		if !netrules.RulesNames(networkMode(sb), sb.Spec) { // for most; the engine's word takes longer
			return nil
		}
		if refused := s.engineRefusesNetwork(sb.Spec, sb.Desired.GetConfinement()); len(refused) > 0 {
			return []string{"its network policy does not hold for names: " + refused[0].Message}
		}
	case netrules.Confines(networkMode(sb), sb.Spec.GetNetwork()):
		return []string{"its network policy cannot be enforced now: " + problem + "; nothing of it is started until it can"}
	case sb.Spec.GetNetwork() == nil && recorded == netrules.Open && cmp.Or(s.rules().NetworkMode, netrules.Open) != netrules.Open:
		return []string{"it reaches whatever its host reaches, because no network policy can be enforced: " + problem}
	}
	return nil
}
