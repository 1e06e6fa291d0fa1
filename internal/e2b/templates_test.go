package e2b_test

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/testing/conformance"
	"github.com/agbox/agbox/internal/testing/conformance/fakedaemon"
)

type madeBuild struct{ TemplateID, BuildID string }

func (f *fixture) template(body map[string]any) (b madeBuild) {
	f.Helper()
	f.want(http.StatusAccepted, `"public":false`, "POST", "/v3/templates", body).into(f, &b)
	return b
}

// buildEnd waits for the end of a build and returns its answer.
func (f *fixture) buildEnd(b madeBuild) (status struct {
	Status     string
	Reason     struct{ Message, Step string }
	LogEntries []struct{ Message, Level, Step string }
}) {
	f.Helper()
	for range 200 {
		f.want(http.StatusOK, b.BuildID, "GET", "/templates/"+b.TemplateID+"/builds/"+b.BuildID+"/status?logsOffset=0", nil).into(f, &status)
		if status.Status != "building" {
			return status
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.Fatal("the build does not end")
	return status
}

func (f *fixture) starts(b madeBuild, body map[string]any) {
	f.Helper()
	f.want(http.StatusAccepted, "", "POST", "/v2/templates/"+b.TemplateID+"/builds/"+b.BuildID, body)
}

func tarOf(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(content))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// put sends a request without a key.
func (f *fixture) put(url string, body []byte) int {
	f.Helper()
	req, err := http.NewRequest(http.MethodPut, url, bytes.NewReader(body))
	f.must(err)
	resp, err := http.DefaultClient.Do(req)
	f.must(err)
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestASandboxFromATemplate(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	b := f.template(map[string]any{"name": "mine", "cpuCount": 1, "memoryMB": 512})
	hash := strings.Repeat("ab", 32)
	var upload struct {
		Present bool
		URL     string
	}
	where := "/templates/" + b.TemplateID + "/files/" + hash
	f.want(http.StatusCreated, "", "GET", where, nil).into(f, &upload)
	for _, url := range []string{
		f.url + where, strings.Replace(upload.URL, "owner=default", "owner=other", 1), strings.Replace(upload.URL, "expires=", "expires=9", 1),
		strings.Replace(upload.URL, hash, strings.Repeat("cd", 32), 1),
	} {
		if code := f.put(url, nil); code != http.StatusUnauthorized {
			t.Errorf("%s: %d", url, code)
		}
	}
	if code := f.put(upload.URL, tarOf(t, "a", "12345")); upload.Present || code != http.StatusOK {
		t.Fatalf("present: %t, uploaded: %d", upload.Present, code)
	}
	f.want(http.StatusCreated, `"present":true`, "GET", where, nil)

	copied := map[string]any{"type": "COPY", "args": []string{"a", "/a", "", ""}, "filesHash": hash}
	f.starts(b, map[string]any{
		"fromImage": fakedaemon.Image, "startCmd": "serve",
		"steps": []any{copied, map[string]any{"type": "RUN", "args": []string{"echo hello"}}, map[string]any{"type": "USER", "args": []string{"root"}}},
	})
	end := f.buildEnd(b)
	if end.Status != "ready" || len(end.LogEntries) == 0 {
		t.Fatalf("%+v", end)
	}
	found := false
	for _, e := range end.LogEntries {
		found = found || e.Message == "hello" && e.Level == "info" && e.Step == "2"
	}
	if !found {
		t.Errorf("the log is %+v", end.LogEntries)
	}
	f.want(http.StatusOK, `"logEntries":[]`, "GET", "/templates/"+b.TemplateID+"/builds/"+b.BuildID+"/status?logsOffset=1000", nil)
	f.want(http.StatusCreated, `"present":false`, "GET", where, nil)
	f.want(http.StatusOK, b.TemplateID, "GET", "/templates/aliases/mine", nil)
	f.want(http.StatusOK, `"buildStatus":"ready"`, "GET", "/templates", nil)

	id := f.create(map[string]any{"templateID": "mine"})
	sb, err := f.api.GetSandbox(t.Context(), id)
	f.must(err)
	if spec := sb.GetSpec(); spec.GetMemoryLimit() != "512MiB" || spec.GetCpuLimit() != 1 || spec.GetUser() != "root" || len(spec.GetCommand()) != 5 || !strings.HasPrefix(spec.GetImage(), "sha256:") {
		t.Errorf("its spec: %v", spec)
	}
	f.want(http.StatusConflict, "delete sandbox "+id+" first", "DELETE", "/templates/mine", nil)

	key := f.key
	f.key = f.newKey("other")
	image := sb.GetSpec().GetImage()
	for _, template := range []string{"mine", b.TemplateID, image, "agbox-template:" + b.BuildID, "docker.io/library/agbox-template:" + b.BuildID} {
		f.want(http.StatusNotFound, "was not found", "POST", "/sandboxes", map[string]any{"templateID": template})
	}
	f.want(http.StatusNotFound, "was not found", "GET", "/templates/aliases/mine", nil)
	f.want(http.StatusNotFound, "was not found", "DELETE", "/templates/"+b.TemplateID, nil)
	f.want(http.StatusNotFound, "was not found", "GET", where, nil)
	f.want(http.StatusNotFound, "was not found", "GET", "/templates/"+b.TemplateID+"/builds/"+b.BuildID+"/status", nil)
	f.want(http.StatusOK, `[]`, "GET", "/templates", nil)
	theft := f.template(map[string]any{"name": "mine"})
	if theft.TemplateID == b.TemplateID {
		t.Error("two owners share a template")
	}
	for _, from := range []string{"agbox-template:" + b.BuildID, image} {
		f.want(http.StatusNotFound, "was not found", "POST", "/v2/templates/"+theft.TemplateID+"/builds/"+theft.BuildID, map[string]any{"fromImage": from})
	}
	f.want(http.StatusNotFound, "was not found", "POST", "/v2/templates/"+theft.TemplateID+"/builds/"+theft.BuildID, map[string]any{"fromTemplate": b.TemplateID})

	f.key = key
	f.want(http.StatusNoContent, "", "DELETE", "/sandboxes/"+id, nil)
	_, err = f.api.WaitSandbox(t.Context(), id, client.Deleted)
	f.must(err)
	f.want(http.StatusNoContent, "", "DELETE", "/templates/mine", nil)
	f.want(http.StatusNotFound, "was not found", "DELETE", "/templates/mine", nil)
	all, err := f.api.Templates(t.Context(), "default")
	f.must(err)
	if len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

func TestTemplateRefusals(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	for _, row := range []struct {
		code int
		text string
		body map[string]any
	}{
		{http.StatusNotImplemented, "tag", map[string]any{"name": "mine:v1"}},
		{http.StatusNotImplemented, "the field tags", map[string]any{"name": "mine", "tags": []string{"v1"}}},
		{http.StatusNotImplemented, "minFreeDiskMb", map[string]any{"name": "mine", "minFreeDiskMb": 100}},
		{http.StatusConflict, "configuration", map[string]any{"name": "base"}},
		{http.StatusConflict, "configuration", map[string]any{"name": "missing"}},
		{http.StatusBadRequest, "name must be", map[string]any{"name": "My Template"}},
		{http.StatusBadRequest, "name must be", map[string]any{}},
		{http.StatusBadRequest, "memory_mib", map[string]any{"name": "mine", "memoryMB": 1}},
	} {
		f.want(row.code, row.text, "POST", "/v3/templates", row.body)
	}
	b := f.template(map[string]any{"alias": "mine"})
	where := "/v2/templates/" + b.TemplateID + "/builds/" + b.BuildID
	step := func(kind string, args ...string) map[string]any {
		return map[string]any{"fromImage": fakedaemon.Image, "steps": []any{map[string]any{"type": kind, "args": args, "filesHash": strings.Repeat("ab", 32)}}}
	}
	for _, row := range []struct {
		code int
		text string
		body map[string]any
	}{
		{http.StatusBadRequest, "either fromImage or fromTemplate", map[string]any{}},
		{http.StatusNotImplemented, "fromImageRegistry", map[string]any{"fromImage": "x:1", "fromImageRegistry": map[string]any{"type": "registry"}}},
		{http.StatusNotFound, "was not found", map[string]any{"fromTemplate": "nosuch"}},
		{http.StatusBadRequest, "step 1: EXPOSE is not supported", step("EXPOSE", "80")},
		{http.StatusBadRequest, "not uploaded", step("COPY", "a", "/a")},
		{http.StatusBadRequest, "leads out", step("COPY", "../a", "/a")},
	} {
		f.want(row.code, row.text, "POST", where, row.body)
	}
	f.want(http.StatusNotFound, "was not found", "POST", "/v2/templates/other/builds/"+b.BuildID, map[string]any{"fromImage": "x:1"})
	f.want(http.StatusNotFound, "none of its builds is ready", "POST", "/sandboxes", map[string]any{"templateID": "mine"})
	f.starts(b, step("RUN", "exit 3"))
	if end := f.buildEnd(b); end.Status != "error" || !strings.Contains(end.Reason.Message, "exit code 3") || end.Reason.Step != "1" {
		t.Errorf("%+v", end)
	}
	f.want(http.StatusConflict, "started before", "POST", where, step("RUN", "true"))
}

func TestABuildOfADeadDaemon(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	b := f.template(map[string]any{"name": "mine"})
	f.starts(b, map[string]any{"fromImage": fakedaemon.Image, "steps": []any{map[string]any{"type": "RUN", "args": []string{"sleep 3600"}}}})
	f.daemon.Restart(t)
	if end := f.buildEnd(b); end.Status != "error" || !strings.Contains(end.Reason.Message, "interrupted") {
		t.Errorf("%+v", end)
	}
	f.want(http.StatusNoContent, "", "DELETE", "/templates/mine", nil)
}
