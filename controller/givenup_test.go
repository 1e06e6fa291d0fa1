package controller_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
)

// vanish hides the primaries of all sandboxes without events, or shows them again.
func (p *player) vanish(hidden bool) {
	for _, c := range p.engine.Containers() {
		p.engine.HideContainer(c.ID, hidden)
	}
}

// twoHeld are two sandboxes that vanished together and wait for an operator.
func (p *player) twoHeld(t *testing.T) []string {
	t.Helper()
	boxes := []string{p.readyBox(t), p.readyBox(t)}
	p.vanish(true)
	pass(5 * time.Minute)
	p.wantHeld(t, boxes)
	return boxes
}

func (p *player) wantHeld(t *testing.T, boxes []string) {
	t.Helper()
	for _, id := range boxes {
		p.wantState(t, id, ready)
	}
	if n := p.daemon.Held(); n != len(boxes) {
		t.Fatalf("%d sandboxes wait for an operator, want %d; %q", n, len(boxes), p.daemon.Vanished())
	}
}

func (p *player) wantGivenUp(t *testing.T, want int) {
	t.Helper()
	if got, err := p.store.GivenUp(t.Context()); err != nil || len(got) != want {
		t.Errorf("%d confirmations are on record (%v), want %d", len(got), err, want)
	}
}

// confirmAndDie confirms as an operator and kills the daemon before it has judged anything: no inspection is answered.
func (p *player) confirmAndDie(t *testing.T) {
	t.Helper()
	p.engine.Fail(dockerx.OpInspectContainer, 1000, nil, false)
	if _, err := p.daemon.ConfirmEngine(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	p.engine.Heal()
}

func (p *player) comesBack(t *testing.T) {
	t.Helper()
	if err := p.start(-1); err != nil {
		t.Fatal(err)
	}
}

// The daemon dies right after an operator confirmed that sandboxes are gone: the next one uses the confirmation, once.
func TestAConfirmationOutlivesTheDaemon(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := p.twoHeld(t)
		p.confirmAndDie(t)
		p.comesBack(t)
		p.wantGivenUp(t, 2)
		pass(time.Minute)
		for _, id := range boxes {
			p.wantState(t, id, failed)
			if sb := p.sandbox(t, id); sb.ErrorCode != "CONTAINER_MISSING" {
				t.Errorf("%s failed with %s", id, sb.ErrorCode)
			}
		}
		p.wantGivenUp(t, 0)
		if p.daemon.Held() > 0 || p.daemon.Vanished() != "" {
			t.Errorf("%q", p.daemon.Vanished())
		}
	})
}

// A confirmation holds for one vanishing. For the next one an operator is asked again, whatever happened in between.
func TestAConfirmationJudgesNoLaterVanishing(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, p *player){
		"the sandboxes were seen in between": func(t *testing.T, p *player) {
			p.vanish(false)
			p.comesBack(t)
			pass(time.Minute)
			p.wantGivenUp(t, 0)
			p.vanish(true)
		},
		"they were seen, and the daemon died again": func(t *testing.T, p *player) {
			p.vanish(false)
			p.comesBack(t)
			pass(time.Minute)
			if err := p.kill(); err != nil {
				t.Fatal(err)
			}
			p.vanish(true)
			p.comesBack(t)
		},
		"the engine was restarted": func(t *testing.T, p *player) {
			p.engine.RestartEngine(true)
			p.comesBack(t)
		},
		"the verdict was withdrawn": func(t *testing.T, p *player) {
			p.comesBack(t)
			pass(time.Minute)
			for _, id := range p.boxes {
				p.wantState(t, id, failed)
			}
			p.vanish(false)
			pass(5 * time.Minute)
			for _, id := range p.boxes {
				p.wantState(t, id, ready)
			}
			p.vanish(true)
		},
		"the host was booted": func(t *testing.T, p *player) {
			p.boot++
			p.comesBack(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				boxes := p.twoHeld(t)
				p.confirmAndDie(t)
				between(t, p)
				pass(10 * time.Minute)
				p.wantHeld(t, boxes)
				p.vanish(false)
				pass(5 * time.Minute)
				p.wantHeld(t, nil)
				p.wantGivenUp(t, 0)
				for _, id := range boxes {
					p.wantState(t, id, ready)
				}
			})
		})
	}
}

// refusingStore cannot record, or remove, a confirmation for a while. during runs while one is recorded.
type refusingStore struct {
	controller.Store
	giveUp error
	stuck  atomic.Bool // no confirmation is removed
	during func()
}

func (s *refusingStore) GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error {
	if s.during != nil {
		s.during()
	}
	if s.giveUp != nil {
		return s.giveUp
	}
	return s.Store.GiveUp(ctx, confirmed)
}

func (s *refusingStore) ForgetGivenUp(ctx context.Context, id string) error {
	if s.stuck.Load() {
		return errors.New("not now")
	}
	return s.Store.ForgetGivenUp(ctx, id)
}

func TestAnUnrecordedConfirmationGivesUpNothing(t *testing.T) {
	s := &refusingStore{giveUp: errdefs.ErrUnavailable}
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := p.twoHeld(t)
		if _, err := p.daemon.ConfirmEngine(t.Context()); !errdefs.IsUnavailable(err) {
			t.Fatalf("it was accepted: %v", err)
		}
		pass(10 * time.Minute)
		p.wantHeld(t, boxes)
	}, func(c *controller.Config) { s.Store, c.Store = c.Store, s })
}

// The engine briefly shows the sandboxes while the confirmation is recorded.
func TestAConfirmationThatComesTooLateJudgesNothing(t *testing.T) {
	s := &refusingStore{}
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := p.twoHeld(t)
		s.during = func() {
			p.vanish(false)
			pass(5 * time.Minute)
			p.vanish(true)
		}
		if _, err := p.daemon.ConfirmEngine(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		p.wantHeld(t, boxes)
		p.wantGivenUp(t, 0)
	}, func(c *controller.Config) { s.Store, c.Store = c.Store, s })
}

// While a confirmation cannot be removed from the record, nothing is decided about its sandbox.
func TestAConfirmationThatCannotBeRemovedHoldsTheSandbox(t *testing.T) {
	s := &refusingStore{}
	s.stuck.Store(true)
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := p.twoHeld(t)
		p.confirmAndDie(t)
		p.vanish(false)
		p.comesBack(t)
		pass(time.Minute)
		p.wantGivenUp(t, 2)
		p.vanish(true)
		pass(10 * time.Minute)
		for _, id := range boxes {
			p.wantState(t, id, ready)
		}
		s.stuck.Store(false)
		pass(10 * time.Minute)
		p.wantGivenUp(t, 0)
		p.wantHeld(t, slices.Sorted(slices.Values(boxes)))
		if states := p.types(t, boxes[0]); states != "ACCEPTED PREPARING READY" {
			t.Errorf("%s", states)
		}
	}, func(c *controller.Config) { s.Store, c.Store = c.Store, s })
}

// confirms confirms as an operator, and checks which sandboxes are given up and which are undecided.
func (p *player) confirms(t *testing.T, givenUp, undecided []string) {
	t.Helper()
	resp, err := p.daemon.ConfirmEngine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sorted := func(ids []string) []string { return slices.Sorted(slices.Values(ids)) }
	if !slices.Equal(resp.GetGivenUp(), sorted(givenUp)) || !slices.Equal(resp.GetUndecided(), sorted(undecided)) {
		t.Errorf("given up %v, undecided %v; want %v and %v", resp.GetGivenUp(), resp.GetUndecided(), givenUp, undecided)
	}
}

func TestAConfirmationNamesWhatItGaveUp(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		other := p.readyBox(t)
		p.confirms(t, nil, nil)
		boxes := []string{p.readyBox(t), p.readyBox(t)}
		for n := range boxes {
			p.engine.HideContainer(p.container(n+1), true)
		}
		pass(5 * time.Minute)
		p.wantHeld(t, boxes)
		begun := time.Now()
		p.confirms(t, boxes, nil)
		if took := time.Since(begun); took > 0 {
			t.Errorf("it took %s though all had been looked for", took)
		}
		pass(time.Minute)
		for _, id := range boxes {
			p.wantState(t, id, failed)
		}
		p.wantState(t, other, ready)
		p.confirms(t, nil, nil)
	})
}

// An operator who confirms right after a start need not repeat it: the call waits for both looks.
func TestAConfirmationWaitsForBothObservations(t *testing.T) {
	for name, vanish := range map[string]func(*player){
		"the daemon has just started":  func(p *player) { p.vanish(true) },
		"the engine was wiped":         func(p *player) { p.engine.Replace() },
		"the engine moved its storage": func(p *player) { p.engine.SwapStorage("vfs") },
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				boxes := []string{p.readyBox(t), p.readyBox(t)}
				if err := p.kill(); err != nil {
					t.Fatal(err)
				}
				vanish(p)
				p.comesBack(t)
				pass(3 * time.Second)
				p.confirms(t, boxes, nil)
				pass(time.Minute)
				for _, id := range boxes {
					p.wantState(t, id, failed)
				}
				p.wantGivenUp(t, 0)
			})
		})
	}
}

// A sandbox that vanished alone needs no operator. The answer to a confirmation still names it.
func TestAConfirmationNamesTheOnlyOneThatVanished(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.vanish(true)
		p.confirms(t, []string{id}, nil)
		p.wantState(t, id, failed)
	})
}

// A sandbox that vanishes, or is observed again, while a confirmation waits is not given up.
func TestAConfirmationGivesUpOnlyWhatHadVanished(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		var boxes, primaries []string
		for n := range 4 {
			boxes = append(boxes, p.readyBox(t))
			primaries = append(primaries, p.container(n))
		}
		p.engine.HideContainer(primaries[0], true)
		p.engine.HideContainer(primaries[1], true)
		time.AfterFunc(3*time.Second, func() {
			p.engine.HideContainer(primaries[1], false)
			p.engine.HideContainer(primaries[2], true)
			p.engine.HideContainer(primaries[3], true)
		})
		p.confirms(t, boxes[:1], nil)
		pass(5 * time.Minute)
		p.wantState(t, boxes[0], failed)
		p.wantState(t, boxes[1], ready)
		p.wantHeld(t, boxes[2:])
	})
}

func TestAConfirmationReportsUndecidedSandboxes(t *testing.T) {
	for name, confuse := range map[string]func(*player){
		"an exec runs in it":       func(*player) {},
		"the lists are empty only": func(p *player) { p.vanish(false); p.engine.EmptyLists(dockerx.OpListContainers) },
		"the engine restarts": func(p *player) { // between two looks: a look that it interrupts is ErrUnavailable
			time.AfterFunc(5500*time.Millisecond, func() { p.engine.RestartEngine(true) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				boxes := []string{p.readyBox(t), p.readyBox(t)}
				p.run(t, "exec-long", "3600000")
				pass(time.Second)
				p.vanish(true)
				confuse(p)
				given, undecided := boxes[1:], boxes[:1]
				if name != "an exec runs in it" {
					given, undecided = nil, boxes
				}
				begun := time.Now()
				p.confirms(t, given, undecided)
				if took := time.Since(begun); took > 16*time.Second {
					t.Errorf("it took %s", took)
				}
				pass(time.Second) // given-up sandboxes are judged, and a verdict removes the confirmation
				for _, id := range undecided {
					p.wantState(t, id, ready)
				}
				for _, id := range given {
					p.wantState(t, id, failed)
				}
				p.wantGivenUp(t, 0)
			})
		})
	}
}

// A caller whose context ends, as on a stop of the daemon, gives up nothing.
func TestAConfirmationThatIsCutOffGivesUpNothing(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := []string{p.readyBox(t), p.readyBox(t)}
		p.vanish(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := p.daemon.ConfirmEngine(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		pass(5 * time.Minute)
		p.wantHeld(t, boxes)
		p.wantGivenUp(t, 0)
	})
}

func TestTwoConfirmationsAtOnceAreOne(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := []string{p.readyBox(t), p.readyBox(t)}
		p.vanish(true)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { p.confirms(t, boxes, nil) })
		}
		both.Wait()
		pass(time.Minute)
		for _, id := range boxes {
			p.wantState(t, id, failed)
		}
		p.wantGivenUp(t, 0)
	})
}
