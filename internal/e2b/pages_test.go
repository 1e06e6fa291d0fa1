package e2b_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/e2b"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/server/servertest"
	"github.com/agbox/agbox/store"
)

// newStoreFixture is a gateway of a server on a real store, where nothing acts on the records.
func newStoreFixture(t *testing.T) (*fixture, *store.Store) {
	t.Helper()
	f := &fixture{TB: t}
	st, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ids.db"), InitialMmapSize: 256 << 20})
	f.must(err)
	api := server.New(servertest.Deps(st))
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- api.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	f.must(err)
	g := e2b.New(e2b.Options{Conn: conn, Log: slog.New(slog.DiscardHandler)})
	f.gateway = httptest.NewServer(g)
	f.api, f.url = client.New(conn), f.gateway.URL
	f.key = f.newKey("")
	t.Cleanup(func() {
		f.gateway.Close()
		g.Wait()
		f.must(conn.Close())
		f.must(api.Shutdown(context.Background()))
		f.must(<-served)
		f.must(st.Close())
	})
	return f, st
}

// fill records n sandboxes of the default owner, and a tenth as many of another. Every third is paused, every tenth has failed.
func fill(t *testing.T, st *store.Store, n int) (running, paused []string) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(256) // they share transactions
	report := func(id string, generation uint64, event agboxv1.EventType, state agboxv1.SandboxState) error {
		return st.Report(ctx, id, store.Report{Generation: generation, Events: []*agboxv1.SandboxEvent{{EventType: event, SandboxState: state}}})
	}
	for i := range n + n/10 {
		id, owner := fmt.Sprintf("page%05d", i), "default"
		switch {
		case i >= n:
			owner = "other"
		case i%10 == 9:
		case i%3 == 0:
			paused = append(paused, id)
		default:
			running = append(running, id)
		}
		g.Go(func() error {
			sb, err := st.CreateSandbox(ctx, id, "", &agboxv1.CreateSpec{
				Image:   "x",
				Gateway: &agboxv1.GatewaySpec{Owner: owner, Template: fmt.Sprint("t", i%2), Metadata: map[string]string{"mod": fmt.Sprint(i % 7), "run": "a b"}},
			}, nil)
			if err != nil {
				return err
			}
			generation := sb.Desired.GetGeneration()
			if i%10 == 9 {
				return report(id, generation, agboxv1.EventType_SANDBOX_FAILED, agboxv1.SandboxState_SANDBOX_STATE_FAILED)
			}
			if err := report(id, generation, agboxv1.EventType_SANDBOX_READY, agboxv1.SandboxState_SANDBOX_STATE_READY); err != nil || i%3 != 0 {
				return err
			}
			if _, err := st.RequestPause(ctx, id, "test"); err != nil {
				return err
			}
			if sb, err = st.Sandbox(ctx, id); err != nil {
				return err
			}
			return report(id, sb.Desired.GetGeneration(), agboxv1.EventType_SANDBOX_PAUSED, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return running, paused
}

// TestPagesOfTenThousand pages with each filter and order, and every sandbox that is selected is on one page.
func TestPagesOfTenThousand(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	f, st := newStoreFixture(t)
	running, paused := fill(t, st, n)
	live := slices.Sorted(slices.Values(slices.Concat(running, paused)))
	number := func(id string) (i int) {
		_, err := fmt.Sscanf(id, "page%d", &i)
		f.must(err)
		return i
	}
	where := func(ids []string, selects func(i int) bool) (some []string) {
		for _, id := range ids {
			if selects(number(id)) {
				some = append(some, id)
			}
		}
		return some
	}
	metadata := url.QueryEscape(url.Values{"mod": {"3"}, "run": {url.PathEscape("a b")}}.Encode())
	for _, test := range []struct {
		query string
		limit int // of a page; 0: none is asked for
		want  []string
	}{
		{"", 0, live},
		{"", 1000, live},
		{"order=asc", 1000, live},
		{"state=running", 1000, running},
		{"state=paused", 333, paused},
		{"state=running,paused", 1000, live},
		{"template=t1", 1000, where(live, func(i int) bool { return i%2 == 1 })},
		{"metadata=" + metadata, 100, where(live, func(i int) bool { return i%7 == 3 })},
		{"metadata=" + metadata + "&state=paused&order=asc", 7, where(paused, func(i int) bool { return i%7 == 3 })},
		{"startedAfter=2200-01-01T00:00:00Z", 100, nil},
	} {
		t.Run(fmt.Sprint(test.query, " limit ", test.limit), func(t *testing.T) {
			f := &fixture{TB: t, url: f.url, key: f.key}
			query, limit := test.query, 100
			if test.limit > 0 {
				query, limit = fmt.Sprint(query, "&limit=", test.limit), test.limit
			}
			var ids []string
			var last time.Time
			begun, pages := time.Now(), 0
			for token, more := "", true; more; pages++ {
				a := f.want(http.StatusOK, "", "GET", "/v2/sandboxes?"+query+"&nextToken="+url.QueryEscape(token), nil)
				var page []sandbox
				a.into(t, &page)
				token = a.header.Get("X-Next-Token")
				if more = token != ""; more && len(page) != limit {
					t.Errorf("page %d has %d sandboxes", pages, len(page))
				}
				for _, sb := range page {
					order := sb.StartedAt.Compare(last)
					if !strings.Contains(query, "order=asc") {
						order = -order
					}
					if len(ids) > 0 && order < 0 {
						t.Errorf("%s of %s follows one of %s", sb.SandboxID, sb.StartedAt, last)
					}
					last = sb.StartedAt
					ids = append(ids, sb.SandboxID)
				}
			}
			t.Logf("%d sandboxes on %d pages, %s a page", len(ids), pages, (time.Since(begun) / time.Duration(pages)).Round(time.Millisecond))
			if slices.Sort(ids); !slices.Equal(ids, test.want) {
				t.Errorf("%d sandboxes, want %d", len(ids), len(test.want))
			}
		})
	}
	f.want(http.StatusBadRequest, "limit", "GET", "/v2/sandboxes?limit=1001", nil)
	f.want(http.StatusBadRequest, "limit", "GET", "/v2/sandboxes?limit=0", nil)
}
