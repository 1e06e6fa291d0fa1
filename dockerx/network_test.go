package dockerx

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"

	"github.com/agbox/agbox/dockerx/internal/subnet"
)

// subnetServer is an engine that answers network creates with statuses that the test chooses.
type subnetServer struct {
	mu      sync.Mutex
	asked   []string // subnets, in order
	lists   int
	list    []network.Inspect
	respond func(subnet string) int // 0: hang up
}

func (s *subnetServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.lists++
		answer(w, http.StatusOK, s.list)
		return
	}
	var body network.CreateRequest
	_ = json.NewDecoder(r.Body).Decode(&body)
	subnet := body.IPAM.Config[0].Subnet
	s.asked = append(s.asked, subnet)
	switch status := s.respond(subnet); status {
	case 0:
		panic(http.ErrAbortHandler)
	case http.StatusCreated:
		answer(w, status, map[string]string{"Id": "id of " + subnet})
	default:
		answer(w, status, map[string]string{"message": "no"})
	}
}

func networkEngine(t *testing.T, s *subnetServer) *Engine {
	t.Helper()
	e, _ := newEngine(t, newServer(t, s.ServeHTTP).host)
	e.routes = func() ([]netip.Prefix, error) { return nil, nil } // the host's routes don't matter here
	return e
}

func (s *subnetServer) wantAsked(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.asked, want) {
		t.Errorf("asked for %v, want %v", s.asked, want)
	}
}

func TestCreateNetworkSkipsSubnetsInUse(t *testing.T) {
	s := &subnetServer{
		respond: func(string) int { return http.StatusCreated },
		list: []network.Inspect{{ID: "other", IPAM: network.IPAM{Config: []network.IPAMConfig{
			{Subnet: "10.213.0.0/27"}, {Subnet: "fd00::/64"}, {},
		}}}},
	}
	e := networkEngine(t, s)
	for range 3 {
		if _, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n"}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n", PrefixBits: 26, Labels: map[string]string{"a": "b"}})
	if err != nil || n.ID != "id of 10.213.0.128/26" || n.Subnet.String() != "10.213.0.128/26" || n.Labels["a"] != "b" {
		t.Errorf("got %+v, %v", n, err)
	}
	s.wantAsked(t, "10.213.0.32/28", "10.213.0.48/28", "10.213.0.64/28", "10.213.0.128/26")
	if s.lists != 1 {
		t.Errorf("%d lists for 4 creates, want 1", s.lists)
	}
}

func TestCreateNetworkTriesTheNextSubnetAfterAnOverlap(t *testing.T) {
	s := &subnetServer{respond: func(subnet string) int {
		if subnet < "10.213.0.32/28" { // the first two
			return http.StatusForbidden
		}
		return http.StatusCreated
	}}
	e := networkEngine(t, s)
	for range 2 { // the second call remembers the refusals
		if _, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n"}); err != nil {
			t.Fatal(err)
		}
	}
	s.wantAsked(t, "10.213.0.0/28", "10.213.0.16/28", "10.213.0.32/28", "10.213.0.48/28")
}

func TestCreateNetworkGivesUpAfterSomeRefusals(t *testing.T) {
	s := &subnetServer{respond: func(string) int { return http.StatusForbidden }}
	_, err := networkEngine(t, s).CreateNetwork(t.Context(), NetworkSpec{Name: "n"})
	wantClass(t, err, errdefs.ErrPermissionDenied)
	if len(s.asked) != maxSubnetTries {
		t.Errorf("%d tries, want %d", len(s.asked), maxSubnetTries)
	}
}

func TestCreateNetworkWithALostReplyDoesNotReuseTheSubnet(t *testing.T) {
	s := &subnetServer{respond: func(string) int { return 0 }}
	e := networkEngine(t, s)
	for range 2 {
		_, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n"})
		wantClass(t, err, errdefs.ErrUnavailable)
	}
	s.wantAsked(t, "10.213.0.0/28", "10.213.0.16/28")
}

// After one round through the pool the engine refuses what it got since the last list; a new list corrects that.
func TestCreateNetworkListsAgainAfterARoundThroughThePool(t *testing.T) {
	s := &subnetServer{}
	s.respond = func(subnet string) int {
		if slices.ContainsFunc(s.list, func(n network.Inspect) bool { return n.IPAM.Config[0].Subnet == subnet }) {
			return http.StatusForbidden
		}
		s.list = append(s.list, network.Inspect{IPAM: network.IPAM{Config: []network.IPAMConfig{{Subnet: subnet}}}})
		return http.StatusCreated
	}
	e := networkEngine(t, s)
	e.o.SubnetPool = netip.MustParsePrefix("10.213.0.0/26")
	e.subnets, _ = subnet.NewAllocator(e.o.SubnetPool)
	for range 4 {
		if _, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n"})
	wantClass(t, err, errdefs.ErrFailedPrecondition)
	s.list = slices.Delete(s.list, 2, 3) // removed
	if n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: "n"}); err != nil || n.Subnet.String() != "10.213.0.32/28" {
		t.Errorf("got %s, %v", n.Subnet, err)
	}
}

func TestCreateNetworkWithANameInUse(t *testing.T) {
	s := &subnetServer{respond: func(string) int { return http.StatusConflict }}
	_, err := networkEngine(t, s).CreateNetwork(t.Context(), NetworkSpec{Name: "n"})
	wantClass(t, err, errdefs.ErrAlreadyExists)
	s.wantAsked(t, "10.213.0.0/28")
}

func TestCreateNetworkFromAnExhaustedPool(t *testing.T) {
	s := &subnetServer{
		respond: func(string) int { return http.StatusCreated },
		list:    []network.Inspect{{ID: "other", IPAM: network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.0.0.0/8"}}}}},
	}
	_, err := networkEngine(t, s).CreateNetwork(t.Context(), NetworkSpec{Name: "n"})
	wantClass(t, err, errdefs.ErrFailedPrecondition)
	if !strings.Contains(err.Error(), "docker.subnet_pool") {
		t.Errorf("%q does not name the key", err)
	}
	s.wantAsked(t)
}

func TestCreateNetworkOfASizeThatDoesNotFit(t *testing.T) {
	for _, bits := range []int{8, 15, 29, 32} {
		s := &subnetServer{}
		_, err := networkEngine(t, s).CreateNetwork(t.Context(), NetworkSpec{Name: "n", PrefixBits: bits})
		wantClass(t, err, errdefs.ErrInvalidArgument)
	}
}
