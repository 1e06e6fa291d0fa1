package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/e2b"
	"github.com/agbox/agbox/internal/testing/conformance"
	"github.com/agbox/agbox/internal/testing/conformance/fakedaemon"
	"github.com/agbox/agbox/internal/testing/conformance/fakehost"
)

func TestMain(m *testing.M) {
	fakehost.RunShim()
	os.Exit(m.Run())
}

// fixture is a gateway of a daemon on the fake engine.
type fixture struct {
	testing.TB
	daemon *fakedaemon.Daemon
	api    *client.Client
	url    string
	key    string

	gateway  *httptest.Server
	mu       sync.Mutex
	answered []string // sandboxes of their answers
}

func newFixture(t testing.TB, settings conformance.Settings, change ...func(*e2b.Options)) *fixture {
	t.Helper()
	f := &fixture{TB: t, daemon: fakedaemon.Start(t, settings)}
	conn, err := f.daemon.Dial()
	f.must(err)
	t.Cleanup(func() { conn.Close() })
	f.api = client.New(conn)
	o := e2b.Options{
		Conn: conn, Domain: "localhost:3000", Log: slog.New(slog.DiscardHandler),
		Templates: func() map[string]string {
			return map[string]string{"base": fakedaemon.Image, "missing": "no/such:image"}
		},
		MaxFrozen: func() int { return settings.MaxFrozen },
	}
	for _, c := range change {
		c(&o)
	}
	g := e2b.New(o)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes") {
			w = &createAnswer{ResponseWriter: w, f: f}
		}
		g.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.Close(); g.Wait() })
	f.gateway, f.url, f.key = srv, srv.URL, f.newKey("")
	return f
}

// createAnswer notes the sandbox of the answer to a create, whether its client reads it or has left.
type createAnswer struct {
	http.ResponseWriter
	f    *fixture
	code int
}

func (a *createAnswer) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

func (a *createAnswer) Write(body []byte) (int, error) {
	var made sandbox
	if a.code == http.StatusCreated && json.Unmarshal(body, &made) == nil {
		a.f.mu.Lock()
		a.f.answered = append(a.f.answered, made.SandboxID)
		a.f.mu.Unlock()
	}
	return a.ResponseWriter.Write(body)
}

func (f *fixture) newKey(owner string) string {
	f.Helper()
	made, err := f.api.CreateGatewayKey(f.Context(), owner)
	f.must(err)
	return "e2b_" + made.GetKey()
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// answer is a response with its body.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
}

// call makes a request of the control plane. body is a text, or is written as JSON.
func (f *fixture) call(method, path string, body any) answer {
	f.Helper()
	a, err := f.try(f.Context(), f.key, method, path, body)
	f.must(err)
	return a
}

func (f *fixture) try(ctx context.Context, key, method, path string, body any) (answer, error) {
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	default:
		data, _ = json.Marshal(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, bytes.NewReader(data))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-API-KEY", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// want checks the status of a request, and of an error that the body has it too, and its text.
func (f *fixture) want(code int, text, method, path string, body any) answer {
	f.Helper()
	a := f.call(method, path, body)
	if a.code != code || !strings.Contains(a.body, text) {
		f.Errorf("%s %s: got %d %s, want %d with %q", method, path, a.code, a.body, code, text)
	}
	if code >= 400 {
		var fail struct{ Code int }
		a.into(f, &fail)
		if fail.Code != code {
			f.Errorf("%s %s: the body has the code %d, want %d", method, path, fail.Code, code)
		}
	}
	return a
}

// create makes a sandbox and returns its ID.
func (f *fixture) create(body map[string]any) string {
	f.Helper()
	a := f.want(http.StatusCreated, "", "POST", "/v2/sandboxes", body)
	var made struct{ SandboxID string }
	a.into(f, &made)
	return made.SandboxID
}

type sandbox struct {
	SandboxID, TemplateID, State, EnvdAccessToken string
	TrafficAccessToken                            *string
	StartedAt, EndAt                              time.Time
	Metadata                                      map[string]string
	CPUCount, MemoryMB                            int
	Lifecycle                                     struct {
		OnTimeout  string
		AutoResume bool
	}
	Network struct{ AllowPublicTraffic bool }
}

func (f *fixture) info(id string) (sb sandbox) {
	f.Helper()
	f.want(http.StatusOK, "", "GET", "/sandboxes/"+id, nil).into(f, &sb)
	return sb
}

func (f *fixture) deadline(id string, want time.Duration) {
	f.Helper()
	if left := time.Until(f.info(id).EndAt); left > want || left < want-20*time.Second {
		f.Errorf("%v are left, want %v", left, want)
	}
}

func TestOneSandbox(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	made := f.want(http.StatusCreated, `"domain":"localhost:3000"`, "POST", "/sandboxes", map[string]any{
		"templateID": "base", "timeout": 100, "metadata": map[string]string{"a": "b"}, "envVars": map[string]string{"X": "1"}, "secure": true,
		"allow_internet_access": true, "autoPause": false, "mcp": nil, "volumeMounts": []string{}, "network": map[string]any{"allowPublicTraffic": true},
	})
	var sb, again sandbox
	made.into(f, &sb)
	id := sb.SandboxID
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || id == "" {
		t.Errorf("the ID %q is no host label", id)
	}
	f.deadline(id, 100*time.Second)
	info := f.info(id)
	if info.State != "running" || info.TemplateID != "base" || info.Metadata["a"] != "b" || info.CPUCount == 0 || info.MemoryMB == 0 || info.Lifecycle.OnTimeout != "kill" {
		t.Errorf("%+v", info)
	}
	handle, err := f.api.GetSandbox(t.Context(), id)
	f.must(err)
	if spec := handle.GetSpec(); spec.GetIdleTtl() == nil || spec.GetIdleTtl().AsDuration() != 0 || spec.GetOnTimeout() != "delete" || !spec.GetKeepStopped() {
		t.Errorf("%v", spec)
	}

	f.want(http.StatusOK, id, "POST", "/sandboxes/"+id+"/connect", map[string]any{"timeout": 10})
	f.deadline(id, 100*time.Second) // a connect never shortens
	f.want(http.StatusOK, id, "POST", "/v2/sandboxes/"+id+"/connect", nil)
	f.deadline(id, 300*time.Second)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/timeout", map[string]any{"timeout": 50})
	f.deadline(id, 50*time.Second)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/refreshes", map[string]any{"duration": 10})
	f.deadline(id, 50*time.Second)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/refreshes", map[string]any{"duration": 70})
	f.deadline(id, 70*time.Second)

	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/pause", nil)
	f.want(http.StatusConflict, "paused already", "POST", "/sandboxes/"+id+"/pause", nil)
	if state := f.info(id).State; state != "paused" {
		t.Errorf("it is %s", state)
	}
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/timeout", map[string]any{"timeout": 33})
	f.want(http.StatusCreated, id, "POST", "/sandboxes/"+id+"/connect", map[string]any{"timeout": 40}).into(f, &again)
	f.deadline(id, 40*time.Second)
	if again.EnvdAccessToken != sb.EnvdAccessToken || len(sb.EnvdAccessToken) != 64 {
		t.Errorf("the token was %q and is %q", sb.EnvdAccessToken, again.EnvdAccessToken)
	}

	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/pause", map[string]any{"memory": false})
	if state := f.info(id).State; state != "paused" {
		t.Errorf("without its memory it is %s", state)
	}
	f.want(http.StatusConflict, "", "POST", "/sandboxes/"+id+"/pause", nil)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/timeout", map[string]any{"timeout": 33})
	if state := f.info(id).State; state != "paused" {
		t.Errorf("after a timeout was set it is %s", state)
	}
	f.want(http.StatusCreated, id, "POST", "/sandboxes/"+id+"/resume", map[string]any{"timeout": 45})
	f.deadline(id, 45*time.Second)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/pause", nil)
	f.want(http.StatusCreated, id, "POST", "/sandboxes/"+id+"/connect", map[string]any{"timeout": 45, "memory": false})
	f.deadline(id, 45*time.Second)

	f.want(http.StatusOK, "SANDBOX_READY", "GET", "/sandboxes/"+id+"/logs", nil)
	f.want(http.StatusOK, "SANDBOX_PAUSED (pause_requested)", "GET", "/v2/sandboxes/"+id+"/logs", nil)
	f.want(http.StatusOK, "[", "GET", "/sandboxes/"+id+"/metrics?start=0&end=1", nil)
	f.want(http.StatusOK, `"sandboxes"`, "GET", "/sandboxes/metrics?sandbox_ids="+id+",nope", nil)

	f.want(http.StatusNoContent, "", "DELETE", "/sandboxes/"+id, nil)
	for _, c := range [][2]string{
		{"DELETE", ""}, {"GET", ""}, {"POST", "/connect"}, {"POST", "/pause"}, {"POST", "/resume"}, {"GET", "/logs"}, {"GET", "/metrics"},
	} {
		f.want(http.StatusNotFound, "was not found", c[0], "/sandboxes/"+id+c[1], nil)
	}
}

func TestRefusals(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(nil)
	for _, row := range []struct {
		code   int
		text   string
		method string
		path   string
		body   any
	}{
		{404, "e2b.templates", "POST", "/sandboxes", map[string]any{"templateID": "nope"}},
		{500, "no/such:image", "POST", "/sandboxes", map[string]any{"templateID": "missing"}},
		{501, "network.rules", "POST", "/sandboxes", map[string]any{"network": map[string]any{"rules": map[string]any{"x.example": []any{}}}}},
		{400, "network.allowOut[0]", "POST", "/sandboxes", map[string]any{"network": map[string]any{"allowOut": []string{"host:80"}}}},
		{400, "network.allowPublicTraffic", "POST", "/sandboxes", map[string]any{"network": map[string]any{"allowPublicTraffic": "no"}}},
		{501, "the field mcp", "POST", "/sandboxes", map[string]any{"mcp": map[string]any{"x": 1}}},
		{501, "the field volumeMounts", "POST", "/sandboxes", map[string]any{"volumeMounts": []int{1}}},
		{501, "the field future", "POST", "/sandboxes", map[string]any{"future": true}},
		{400, "lifecycle.onTimeout", "POST", "/sandboxes", map[string]any{"lifecycle": map[string]any{"onTimeout": "explode"}}},
		{400, "timeout", "POST", "/sandboxes", map[string]any{"timeout": 0}},
		{400, "timeout", "POST", "/sandboxes", map[string]any{"timeout": -1}},
		{400, "timeout", "POST", "/sandboxes", map[string]any{"timeout": 1 << 40}},
		{400, "does not decode", "POST", "/sandboxes", map[string]any{"timeout": "soon"}},
		{400, "not a JSON object", "POST", "/sandboxes", "nonsense"},
		{400, "envs[A B]", "POST", "/sandboxes", map[string]any{"envVars": map[string]string{"A B": "x"}}},
		{413, "larger", "POST", "/sandboxes", `{"metadata":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`},
		{400, "the limit is", "POST", "/sandboxes", `{"metadata":{"a":"` + strings.Repeat("x", 3<<19) + `"}}`},
		{400, "timeout is required", "POST", "/sandboxes/" + id + "/timeout", nil},
		{501, "the field name", "POST", "/sandboxes/" + id + "/snapshots", map[string]any{"name": "x"}},
		{404, "was not found", "POST", "/sandboxes/nosuchsandbox/snapshots", nil},
		{404, "was not found", "DELETE", "/templates/nosuchsnapshot", nil},
		{404, "was not found", "DELETE", "/templates/base", nil},
		{400, "limit", "GET", "/snapshots?limit=0", nil},
		{400, "nextToken", "GET", "/snapshots?nextToken=zz", nil},
		{501, "fork", "POST", "/sandboxes/" + id + "/fork", nil},
		{501, "template build of this version", "POST", "/v2/templates", nil},
		{404, "no route", "GET", "/nowhere", nil},
		{400, "state", "GET", "/v2/sandboxes?state=odd", nil},
		{400, "limit", "GET", "/v2/sandboxes?limit=0", nil},
		{400, "nextToken", "GET", "/v2/sandboxes?nextToken=zz", nil},
		{400, "nextToken", "GET", "/v2/sandboxes?nextToken=MSD_", nil}, // its ID is no UTF-8
		{400, "order", "GET", "/v2/sandboxes?order=up", nil},
		{400, "UTF-8", "GET", "/v2/sandboxes?template=%ff", nil},
		{400, "UTF-8", "GET", "/v2/sandboxes?metadata=a%3D%25ff", nil},
		{400, "startedAfter", "GET", "/v2/sandboxes?startedAfter=now", nil},
	} {
		f.want(row.code, row.text, row.method, row.path, row.body)
	}
	f.leftOnly(id)
	for _, key := range []string{"", "e2b_", "x", f.key[:len(f.key)-1] + "x", "e2b_" + strings.Repeat("0", 56)} {
		a, err := f.try(t.Context(), key, "GET", "/sandboxes", nil)
		if f.must(err); a.code != http.StatusUnauthorized || !strings.Contains(a.body, `"code":401`) {
			t.Errorf("key %q: %d %s", key, a.code, a.body)
		}
	}
}

// leftOnly waits until the daemon has no live sandbox but these.
func (f *fixture) leftOnly(ids ...string) {
	f.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		all, err := f.api.ListSandboxes(f.Context(), false, nil)
		f.must(err)
		var left []string
		for _, sb := range all {
			left = append(left, sb.GetSandboxId())
		}
		slices.Sort(left)
		slices.Sort(ids)
		if slices.Equal(left, ids) {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("there are %v, want %v", left, ids)
		}
	}
}

// TestOwnersAreApart: what another owner, or agbox itself, has created is neither listed nor found. Keys of one owner share.
func TestOwnersAreApart(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	_, err := f.api.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "native", CreateSpec: &agboxv1.CreateSpec{Image: fakedaemon.Image}})
	f.must(err)
	mine := f.create(nil)
	other := f.newKey("other")
	for _, id := range []string{mine, "native"} {
		for _, c := range [][2]string{
			{"GET", ""}, {"DELETE", ""}, {"POST", "/connect"}, {"POST", "/pause"}, {"POST", "/resume"}, {"GET", "/logs"}, {"GET", "/metrics"}, {"POST", "/refreshes"},
		} {
			a, err := f.try(t.Context(), other, c[0], "/sandboxes/"+id+c[1], nil)
			if f.must(err); a.code != http.StatusNotFound {
				t.Errorf("%s %s%s: %d", c[0], id, c[1], a.code)
			}
		}
	}
	if a, err := f.try(t.Context(), other, "GET", "/v2/sandboxes", nil); err != nil || strings.TrimSpace(a.body) != "[]" {
		t.Errorf("%v, %v", a, err)
	}
	rotated := f.newKey("")
	keys, err := f.api.GatewayKeys(t.Context())
	f.must(err)
	f.must(f.api.RevokeGatewayKey(t.Context(), keys[0].GetKeyId()))
	if a, err := f.try(t.Context(), f.key, "GET", "/sandboxes/"+mine, nil); err != nil || a.code != http.StatusUnauthorized {
		t.Errorf("a revoked key: %v, %v", a, err)
	}
	f.key = rotated
	f.info(mine)
}

func TestListPages(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	var ids []string
	for i := range 23 {
		id := fmt.Sprintf("page%02d", i)
		_, err := f.api.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
			Image: fakedaemon.Image, Gateway: &agboxv1.GatewaySpec{Owner: "default", Template: fmt.Sprint("t", i%2), Metadata: map[string]string{"n =&%+": fmt.Sprint(i % 3)}},
		}})
		f.must(err)
		ids = append(ids, id)
	}
	pages := func(query string) (got []string) {
		token := ""
		for range 30 {
			a := f.want(http.StatusOK, "", "GET", "/v2/sandboxes?limit=5&"+query+"&nextToken="+url.QueryEscape(token), nil)
			var page []sandbox
			a.into(t, &page)
			for _, sb := range page {
				got = append(got, sb.SandboxID)
			}
			if len(got) == 5 {
				f.must(f.api.DeleteSandbox(t.Context(), got[4])) // a page that follows a sandbox which is gone
			}
			if token = a.header.Get("X-Next-Token"); token == "" {
				return got
			}
		}
		t.Fatal("too many pages")
		return nil
	}
	if got, want := pages("order=asc"), ids; !slices.Equal(got, want) {
		t.Errorf("oldest first: %v", got)
	}
	ids = slices.Delete(ids, 4, 5)
	slices.Reverse(ids)
	if got := pages(""); !slices.Equal(got, ids) {
		t.Errorf("newest first: %v, want %v", got, ids)
	}
	filter := url.QueryEscape(url.Values{url.PathEscape("n =&%+"): {"1"}}.Encode())
	for _, id := range pages("template=t0&metadata=" + filter) {
		if i := f.info(id); i.TemplateID != "t0" || i.Metadata["n =&%+"] != "1" {
			t.Errorf("%+v", i)
		}
	}
	if got := pages("state=paused"); len(got) != 0 {
		t.Errorf("paused: %v", got)
	}
}

// TestConcurrentConnects: each of several connects to a paused sandbox succeeds, and the longest timeout wins.
func TestConcurrentConnects(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(nil)
	for _, memory := range []bool{true, false} {
		f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/pause", map[string]any{"memory": memory})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				a, err := f.try(t.Context(), f.key, "POST", "/sandboxes/"+id+"/connect", map[string]any{"timeout": 1000 - 100*i})
				if err != nil || a.code != http.StatusCreated && a.code != http.StatusOK {
					t.Errorf("connect %d: %v, %v", i, a, err)
				}
			})
		}
		wg.Wait()
		f.deadline(id, 1000*time.Second)
	}
}

// TestAbortedCreatesLeakNothing: a client that leaves at a random moment of a create leaves no sandbox.
func TestAbortedCreatesLeakNothing(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	begun := time.Now()
	f.create(nil)
	usual := time.Since(begun)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 12 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*usual)+time.Millisecond)
				_, _ = f.try(ctx, f.key, "POST", "/v2/sandboxes", nil)
				cancel()
			}
		})
	}
	wg.Wait()
	f.gateway.Close() // after it no create arrives, and none is under way
	// One whose answer was on its way can't be known to be unwanted; its deadline deletes it.
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leftOnly(f.answered...)
}

// slowCreate is a daemon that carries out a create late, whether its caller waits or not.
type slowCreate struct {
	grpc.ClientConnInterface
	begun, goOn, made, deleted chan struct{}
}

func (s *slowCreate) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	switch method {
	case agboxv1.SandboxService_CreateSandbox_FullMethodName:
		done := make(chan error, 1)
		go func() {
			close(s.begun)
			<-s.goOn
			done <- s.ClientConnInterface.Invoke(context.WithoutCancel(ctx), method, in, out, opts...)
			close(s.made)
		}()
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case err := <-done:
			return err
		}
	case agboxv1.SandboxService_DeleteSandbox_FullMethodName:
		defer close(s.deleted)
	}
	return s.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
}

// TestADeleteDoesNotOvertakeTheCreateThatItUndoes: the client leaves while the create is on its way to the daemon.
func TestADeleteDoesNotOvertakeTheCreateThatItUndoes(t *testing.T) {
	s := &slowCreate{begun: make(chan struct{}), goOn: make(chan struct{}), made: make(chan struct{}), deleted: make(chan struct{})}
	f := newFixture(t, conformance.Settings{}, func(o *e2b.Options) { s.ClientConnInterface, o.Conn = o.Conn, s })
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-s.begun
		leave()
		select {
		case <-s.deleted: // too early
		case <-time.After(200 * time.Millisecond): // a shorter time only makes the test easier
		}
		close(s.goOn)
	}()
	if _, err := f.try(ctx, f.key, "POST", "/v2/sandboxes", nil); err == nil {
		t.Error("the create was answered")
	}
	<-s.made
	<-s.deleted
	f.leftOnly()
}

// TestARestartKeepsAll: deadlines to the second, tokens, and the paused state.
func TestARestartKeepsAll(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	a := f.create(map[string]any{"timeout": 500, "autoPause": true, "autoResume": map[string]any{"enabled": true}, "metadata": map[string]string{"k": "v"}})
	b := f.create(map[string]any{"timeout": 2})
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+b+"/pause", nil)
	wasA, wasB := f.info(a), f.info(b)
	f.daemon.Restart(t)
	f.awaitBack()
	isA := f.info(a)
	if !isA.EndAt.Equal(wasA.EndAt) || isA.EnvdAccessToken != wasA.EnvdAccessToken || isA.Metadata["k"] != "v" || isA.Lifecycle.OnTimeout != "pause" || !isA.Lifecycle.AutoResume {
		t.Errorf("it was %+v and is %+v", wasA, isA)
	}
	time.Sleep(time.Until(wasB.EndAt) + 500*time.Millisecond) // the old deadline of a paused sandbox ends nothing
	if is := f.info(b); is.State != "paused" || !is.EndAt.Equal(wasB.EndAt) {
		t.Errorf("it was %+v and is %+v", wasB, is)
	}
	f.want(http.StatusCreated, b, "POST", "/sandboxes/"+b+"/connect", map[string]any{"timeout": 60})
	f.deadline(b, time.Minute)
}

// awaitBack waits until the daemon answers again.
func (f *fixture) awaitBack() {
	f.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if got, err := f.try(f.Context(), f.key, "GET", "/sandboxes", nil); err == nil && got.code == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			f.Fatal("the daemon is not back")
		}
	}
}

func TestTimeoutsAct(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	dies, sleeps := f.create(map[string]any{"timeout": 1}), f.create(map[string]any{"timeout": 1, "lifecycle": map[string]any{"onTimeout": "pause"}})
	now, nowPause := f.create(nil), f.create(map[string]any{"autoPause": true})
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+now+"/timeout", map[string]any{"timeout": 0})
	f.want(http.StatusNotFound, "", "POST", "/sandboxes/"+now+"/connect", nil)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+nowPause+"/timeout", map[string]any{"timeout": 0})
	if is := f.info(nowPause); is.State != "paused" {
		t.Errorf("%+v", is)
	}
	if _, err := f.api.WaitSandbox(t.Context(), dies, client.Deleted); err != nil {
		t.Error(err)
	}
	f.want(http.StatusNotFound, "", "POST", "/sandboxes/"+dies+"/connect", nil)
	if _, err := f.api.WaitSandbox(t.Context(), sleeps, client.Paused); err != nil {
		t.Error(err)
	}
	f.want(http.StatusCreated, "", "POST", "/sandboxes/"+sleeps+"/connect", nil)
}

// TestTooManyFrozen: a pause that would make the daemon stop another frozen sandbox is refused.
func TestTooManyFrozen(t *testing.T) {
	f := newFixture(t, conformance.Settings{MaxFrozen: 1})
	a, b := f.create(nil), f.create(nil)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+a+"/pause", nil)
	f.want(http.StatusTooManyRequests, "pause.max_frozen", "POST", "/sandboxes/"+b+"/pause", nil)
	if is := f.info(b); is.State != "running" {
		t.Errorf("%+v", is)
	}
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+b+"/pause", map[string]any{"memory": false})
}
