package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// Bounds of a page of a list.
const (
	pageSize    = 100
	maxPageSize = 1000
	// leastRead is how many sandboxes are read at once at least, as a filter may select few of them.
	leastRead = 256
)

// Words for states.
const (
	wordRunning = "running"
	wordPaused  = "paused"
)

// item is a sandbox in a list.
type item struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
}

func itemOf(sb *agboxv1.SandboxHandle) item {
	spec := sb.GetSpec()
	i := item{
		SandboxID: sb.GetSandboxId(), TemplateID: spec.GetGateway().GetTemplate(), Alias: spec.GetGateway().GetTemplate(), ClientID: clientID,
		StartedAt: sb.GetCreatedAt().AsTime(), CPUCount: cpus(spec), MemoryMB: megabytes(spec.GetMemoryLimit(), hostMemory()),
		DiskSizeMB: megabytes(spec.GetDiskLimit(), 0), State: wordPaused, EnvdVersion: envdVersion, Metadata: spec.GetGateway().GetMetadata(),
	}
	if s := stateOf(sb); s == starting || s == running {
		i.State = wordRunning
	}
	switch at := sb.GetDeadlineAt(); {
	case at != nil:
		i.EndAt = at.AsTime()
	case stateOf(sb) == starting:
		i.EndAt = sb.GetStateChangedAt().AsTime().Add(spec.GetTimeout().AsDuration())
	default: // it was stopped, which clears the deadline
		i.EndAt = sb.GetStateChangedAt().AsTime()
	}
	if i.Metadata == nil {
		i.Metadata = map[string]string{}
	}
	return i
}

// cpus returns the number of processors of a sandbox, rounded up; without a limit the host's.
func cpus(spec *agboxv1.CreateSpec) int {
	if limit := spec.GetCpuLimit(); limit > 0 {
		return int(math.Ceil(limit))
	}
	return hostCPUs
}

// megabytes returns a size of a spec in MiB, or none for one that is not set.
func megabytes(size string, none int64) int64 {
	bytes, _ := validate.MemoryBytes(size) // it was validated
	return cmp.Or(bytes, none) >> 20
}

// hostMemory returns the memory of this host in bytes.
func hostMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:gosec // less than 8 EiB
}

func (g *Gateway) listRunning(w http.ResponseWriter, r *http.Request, owner string) error {
	return g.listStates(w, r, owner, wordRunning)
}

func (g *Gateway) list(w http.ResponseWriter, r *http.Request, owner string) error {
	return g.listStates(w, r, owner, wordRunning, wordPaused)
}

// listStates answers a page of the owner's sandboxes, newest first unless the request has another order. A page follows the sandbox that the
// token names, whether or not that still exists.
func (g *Gateway) listStates(w http.ResponseWriter, r *http.Request, owner string, states ...string) error {
	f, err := filterOf(r.URL.Query(), states)
	if err != nil {
		return err
	}
	items, err := g.page(r.Context(), owner, f)
	if err != nil {
		return err
	}
	if len(items) > f.limit {
		items = items[:f.limit]
		w.Header().Set("X-Next-Token", tokenOf(items[f.limit-1]))
	}
	answer(w, http.StatusOK, items)
	return nil
}

// page returns the sandboxes of a page, and the one that follows if there is one. The daemon selects by all but the state and the time, and is
// asked again until there are enough.
func (g *Gateway) page(ctx context.Context, owner string, f filter) ([]item, error) {
	req := &agboxv1.ListSandboxesRequest{
		GatewayOwner: owner, GatewayTemplate: f.template, GatewayMetadata: f.metadata, OldestFirst: f.ascending,
		Limit: uint32(max(f.limit+1, leastRead)), //nolint:gosec // it is checked
	}
	if f.after != nil {
		req.AfterCreatedAt, req.AfterSandboxId = timestamppb.New(f.after.StartedAt), f.after.SandboxID
	}
	items := []item{}
	for {
		some, err := g.api.GatewaySandboxPage(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, sb := range some {
			if i := itemOf(sb); !isGone(sb) && f.selects(i) {
				items = append(items, i)
			}
		}
		if len(items) > f.limit || len(some) < int(req.GetLimit()) {
			return items, nil
		}
		last := some[len(some)-1]
		if !f.ascending && !f.startedAfter.IsZero() && !last.GetCreatedAt().AsTime().After(f.startedAfter) {
			return items, nil // all others are older
		}
		req.AfterCreatedAt, req.AfterSandboxId = last.GetCreatedAt(), last.GetSandboxId()
	}
}

// filter is the query of a list.
type filter struct {
	metadata     map[string]string
	states       []string
	template     string
	startedAfter time.Time
	ascending    bool
	limit        int
	after        *item // nil: the first page
}

// filterOf reads the query of a list. Errors: 400.
func filterOf(query url.Values, states []string) (f filter, err error) {
	f = filter{states: states, template: query.Get("template"), limit: pageSize}
	if !utf8.ValidString(f.template) { // the daemon takes no such text, here and below
		return f, failf(http.StatusBadRequest, "template: %q is not UTF-8", f.template)
	}
	if f.metadata, err = metadataOf(query.Get("metadata")); err != nil {
		return f, err
	}
	if list := query["state"]; len(list) > 0 {
		f.states = nil
		for _, word := range strings.Split(strings.Join(list, ","), ",") {
			if word != wordRunning && word != wordPaused {
				return f, failf(http.StatusBadRequest, `state: %q is unknown; write "running" or "paused"`, word)
			}
			f.states = append(f.states, word)
		}
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		f.ascending = true
	default:
		return f, failf(http.StatusBadRequest, `order: %q is unknown; write "asc" or "desc"`, order)
	}
	if at := query.Get("startedAfter"); at != "" {
		if f.startedAfter, err = time.Parse(time.RFC3339, at); err != nil {
			return f, failf(http.StatusBadRequest, "startedAfter: %q is not a time such as 2026-12-01T10:00:00Z", at)
		}
	}
	if text := query.Get("limit"); text != "" {
		if f.limit, err = strconv.Atoi(text); err != nil || f.limit < 1 || f.limit > maxPageSize {
			return f, failf(http.StatusBadRequest, "limit: %q is out of range; write 1 to %d", text, maxPageSize)
		}
	}
	if token := query.Get("nextToken"); token != "" {
		if f.after, err = afterToken(token); err != nil {
			return f, err
		}
	}
	return f, nil
}

// metadataOf reads the filter for metadata. Clients escape it three times: as a value of the query, which has been undone, as a form, and each
// key and value before that. Errors: 400.
func metadataOf(text string) (map[string]string, error) {
	form, err := url.ParseQuery(text)
	if err != nil {
		return nil, failf(http.StatusBadRequest, "metadata: %q is not a form", text)
	}
	found := map[string]string{}
	for k, values := range form {
		key, keyErr := url.PathUnescape(k)
		value, valueErr := url.PathUnescape(values[len(values)-1])
		if keyErr != nil || valueErr != nil {
			return nil, failf(http.StatusBadRequest, "metadata: %q is not escaped", k)
		}
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, failf(http.StatusBadRequest, "metadata: %q is not UTF-8", k)
		}
		found[key] = value
	}
	return found, nil
}

// selects reports whether an item that the daemon has selected is in the list.
func (f filter) selects(i item) bool {
	return slices.Contains(f.states, i.State) && (f.startedAfter.IsZero() || i.StartedAt.After(f.startedAfter))
}

func (f filter) compare(a, b item) int {
	order := cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(a.SandboxID, b.SandboxID))
	if f.ascending {
		return -order
	}
	return order
}

// tokenOf names an item as the last one of a page.
func tokenOf(i item) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", i.StartedAt.UnixNano(), i.SandboxID))
}

func afterToken(token string) (*item, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	at, id, ok := strings.Cut(string(text), " ")
	nanos, bad := strconv.ParseInt(at, 10, 64)
	if err != nil || !ok || bad != nil || !utf8.ValidString(id) {
		return nil, failf(http.StatusBadRequest, "nextToken: %q is none of this daemon", token)
	}
	return &item{StartedAt: time.Unix(0, nanos), SandboxID: id}, nil
}

// details is a sandbox by itself.
type details struct {
	item
	Lifecycle           map[string]any `json:"lifecycle"`
	Network             map[string]any `json:"network"`
	Domain              string         `json:"domain"`
	AllowInternetAccess bool           `json:"allowInternetAccess"`
	VolumeMounts        []struct{}     `json:"volumeMounts"`
	EnvdAccessToken     string         `json:"envdAccessToken"`
}

func (g *Gateway) info(w http.ResponseWriter, r *http.Request, owner string) error {
	sb, err := g.sandbox(r.Context(), owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	token, err := g.token(r.Context(), sb.GetSandboxId())
	if err != nil {
		return err
	}
	action := "kill"
	if sb.GetSpec().GetOnTimeout() == onTimeoutPause {
		action = "pause"
	}
	network, internet := networkOf(sb)
	answer(w, http.StatusOK, details{
		item: itemOf(sb), Lifecycle: map[string]any{"onTimeout": action, "autoResume": sb.GetSpec().GetAutoResume()},
		Network: network, Domain: g.Domain, AllowInternetAccess: internet, VolumeMounts: []struct{}{}, EnvdAccessToken: token,
	})
	return nil
}
