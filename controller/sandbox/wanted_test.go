package sandbox

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// The wait for health is start_period + (retries + 1) x max(interval, timeout), with the engine's defaults for what is
// absent, and never longer than runtime.health_timeout.
func TestHealthWait(t *testing.T) {
	second := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
	const most = 5 * time.Minute
	for name, row := range map[string]struct {
		check *agboxv1.HealthcheckConfig
		most  time.Duration
		want  time.Duration
	}{
		"nothing set: 4 x 30 s":         {&agboxv1.HealthcheckConfig{}, most, 2 * time.Minute},
		"no healthcheck at all":         {nil, most, 2 * time.Minute},
		"the interval is longer":        {&agboxv1.HealthcheckConfig{Interval: second(5), Timeout: second(2), Retries: 2}, most, 15 * time.Second},
		"the timeout is longer":         {&agboxv1.HealthcheckConfig{Interval: second(2), Timeout: second(5), Retries: 2}, most, 15 * time.Second},
		"the start_period counts too":   {&agboxv1.HealthcheckConfig{Interval: second(1), Timeout: second(1), Retries: 1, StartPeriod: second(10)}, most, 12 * time.Second},
		"the retries' default is three": {&agboxv1.HealthcheckConfig{Interval: second(1), Timeout: second(1)}, most, 4 * time.Second},
		"a long start_period is cut":    {&agboxv1.HealthcheckConfig{Interval: second(1), Timeout: second(1), StartPeriod: second(3600)}, most, most},
		"many retries are cut":          {&agboxv1.HealthcheckConfig{Interval: second(24 * 3600), Retries: 1000}, most, most},
		"what is just allowed":          {&agboxv1.HealthcheckConfig{Interval: second(60), Retries: 4}, most, most},
		"a shorter bound":               {&agboxv1.HealthcheckConfig{}, time.Second, time.Second},
	} {
		if got := healthWait(row.check, row.most); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// engineOf is a link to an engine that is as info says.
type engineOf struct {
	EngineLink
	info dockerx.Info
}

func (e engineOf) Info() dockerx.Info { return e.info }

// An engine that asks for names from the host's network gets no policy about names for containers that it would ask for there.
func TestPoliciesAboutNamesNeedServersOfTheContainers(t *testing.T) {
	closed := &agboxv1.NetworkSpec{Mode: "internal"}
	for name, tt := range map[string]struct {
		asksFromHost bool
		policy       *agboxv1.NetworkSpec
		c            *storev1.Confinement
		refused      bool
	}{
		"an older engine":         {false, closed, &storev1.Confinement{NetworkMode: "internet"}, false},
		"without servers":         {true, closed, &storev1.Confinement{NetworkMode: "internet"}, true},
		"with servers":            {true, closed, &storev1.Confinement{NetworkMode: "internet", DnsServers: []string{"192.0.2.1"}}, false},
		"another policy":          {true, &agboxv1.NetworkSpec{Mode: "internet"}, &storev1.Confinement{NetworkMode: "internet"}, false},
		"closed on record":        {true, nil, &storev1.Confinement{NetworkMode: "none"}, true},
		"older than policies":     {true, nil, &storev1.Confinement{}, false},
		"nothing is resolved yet": {true, closed, nil, false},
	} {
		r := &Reconciler{o: Options{Link: engineOf{info: dockerx.Info{Version: "1", AsksFromHost: tt.asksFromHost}}}}
		errs := r.EngineRefuses(&agboxv1.CreateSpec{Network: tt.policy}, tt.c)
		if refused := len(errs) == 1 && errs[0].Field == "network"; refused != tt.refused || len(errs) > 1 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// An engine that can't freeze containers gets no spec that asks for it, and one of another user none at all.
func TestWhatARootlessEngineRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		info   dockerx.Info
		spec   *agboxv1.CreateSpec
		want   string
		freeze bool
	}{
		"no freezer":         {dockerx.Info{Version: "1"}, &agboxv1.CreateSpec{OnTimeout: "pause"}, "on_timeout cannot be pause", true},
		"no freezer is used": {dockerx.Info{Version: "1"}, &agboxv1.CreateSpec{OnTimeout: "stop"}, "", true},
		"a freezer":          {dockerx.Info{Version: "1", Freezes: true}, &agboxv1.CreateSpec{OnTimeout: "pause"}, "", false},
		"another's engine":   {dockerx.Info{Version: "1", Freezes: true, OtherUser: 1000}, &agboxv1.CreateSpec{}, "user 1000", false},
		"no engine yet":      {dockerx.Info{}, &agboxv1.CreateSpec{OnTimeout: "pause"}, "", false},
	} {
		r := &Reconciler{o: Options{Link: engineOf{info: tt.info}}}
		errs := r.EngineRefuses(tt.spec, nil)
		if (len(errs) > 0) != (tt.want != "") || !strings.Contains(errs.Error(), tt.want) {
			t.Errorf("%s: %v", name, errs)
		}
		if why := r.FreezeRefusal(); (why != "") != tt.freeze {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// The delete of a rebuilt sandbox looks for volumes of a read-only root, of which its spec may know nothing.
func TestADeleteOfARebuiltSandboxRemovesVolumes(t *testing.T) {
	r := &Reader{o: readerOptions{Settings: func() Settings { return Settings{} }}}
	for want, d := range map[bool]*storev1.Desired{true: {Rehydrated: &agboxv1.RehydratedDetails{}}, false: {}} {
		if got := r.RecordOf(store.Sandbox{Spec: &agboxv1.CreateSpec{}, Desired: d}).RemoveVolumes; got != want {
			t.Errorf("rebuilt %t: %t", want, got)
		}
	}
}
